"""`lineage checkpoint`: what it prints, its JSON, its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lineage.cli import checkpoint

from .test_folder import tensors
from .test_torch_file import save, state

torch = pytest.importorskip("torch")


def ask(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(checkpoint.app, [str(w) for w in words])
    return done.exit_code, done.output


def test_it_takes_a_path_without_a_word_before_it(tmp_path: Path) -> None:
    code, text = ask(save(state(), tmp_path / "ckpt.pt"))
    assert code == 0
    assert "step 3 (the key 'step')" in text
    assert "nothing is missing that a resume needs" in text
    assert "no tensor was loaded, no code was run" in text


def test_a_finding_is_printed_with_severity_code_and_what_to_do(tmp_path: Path) -> None:
    left = {k: v for k, v in state().items() if k != "optimizer"}
    code, text = ask(save(left, tmp_path / "ckpt.pt"))
    assert code == 1
    assert "a resume would silently differ" in text
    assert "LIN-K005" in text
    assert "do: Save optimizer.state_dict() too" in text
    assert ask("--fail-on", "fails", tmp_path / "ckpt.pt")[0] == 0


def test_json_has_tensors_with_their_places_and_findings(tmp_path: Path) -> None:
    code, text = ask("--json", tensors(tmp_path / "model.safetensors", {"w": [2, 3]}))
    found: dict[str, Any] = json.loads(text)
    assert code == 1
    assert found["format"] == "safetensors"
    assert found["tensors"][0]["shape"] == [2, 3]
    assert found["tensors"][0]["pieces"][0]["bytes"] == 24
    assert found["findings"][0]["code"] == "LIN-K004"


def test_tensors_are_listed_when_asked(tmp_path: Path) -> None:
    assert "0.weight" in ask("--tensors", save(state(), tmp_path / "ckpt.pt"))[1]


def test_an_unknown_folder_cannot_be_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    code, text = ask(tmp_path)
    assert code == 4
    assert "blake3:" in text


def test_a_path_that_is_not_there_is_an_error_of_use(tmp_path: Path) -> None:
    done = CliRunner().invoke(checkpoint.app, [str(tmp_path / "gone")])
    assert "cannot be opened" in str(done.exception)


def test_a_wrong_severity_is_an_error_of_use(tmp_path: Path) -> None:
    done = CliRunner().invoke(checkpoint.app, ["--fail-on", "bad", str(tmp_path)])
    assert "takes fails, differs or fine" in str(done.exception)
