"""`lineage checkpoint verify`: re-checks a checkpoint that a real run recorded, here and in a store."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lineage
from lineage.cli import main


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint of two files, with its lineage.json and its run's ledger."""
    monkeypatch.setenv("LINEAGE_DIR", str(tmp_path / "runs"))
    model = torch.nn.Linear(3, 3)
    at = tmp_path / "checkpoint"
    at.mkdir()
    with lineage.attach(
        None, dir=tmp_path / "runs", run_id="r", model=model, quiet=True, report=False
    ) as rec:
        with rec.step(1, {"x": torch.ones(2, 3)}):
            pass
        torch.save(model.state_dict(), at / "model.pt")
        (at / "config.json").write_text("{}")
        rec.checkpoint(at, step=1)
    return at


@dataclass
class Done:
    exit_code: int
    stdout: str


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command, in this process: another one would not see what lies in memory://."""

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["lineage", "checkpoint", "verify", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        return Done(int(stop.value.code or 0), capsys.readouterr().out)

    return run


def test_an_untouched_checkpoint_is_as_recorded(saved: Path, verify: Any) -> None:
    found = verify(str(saved))
    assert found.exit_code == 0, found.stdout
    assert "as recorded" in found.stdout
    assert "2 files equal" in found.stdout


def test_what_changed_is_named_and_the_exit_code_is_1(saved: Path, verify: Any) -> None:
    data = bytearray((saved / "model.pt").read_bytes())
    data[-100] ^= 4
    (saved / "model.pt").write_bytes(data)
    (saved / "config.json").unlink()
    (saved / "new.bin").write_bytes(b"1")
    found = verify(str(saved), "--json")
    assert found.exit_code == 1
    told = json.loads(found.stdout)
    assert told["changed"] == {"model.pt": "has other content than was recorded"}
    assert (told["missing"], told["new"], told["whole"]) == (["config.json"], ["new.bin"], False)
    text = verify(str(saved)).stdout
    assert "NOT AS RECORDED" in text
    assert "missing config.json" in text


def test_without_its_sidecar_the_ledger_tells(saved: Path, verify: Any) -> None:
    (saved / "lineage.json").unlink()
    found = verify(str(saved), "--json")
    assert found.exit_code == 0, found.stdout
    assert json.loads(found.stdout)["recorded_in"].endswith("runs/r")


def test_without_a_ledger_the_sidecar_tells_and_a_forged_one_is_refused(
    saved: Path, verify: Any, tmp_path: Path
) -> None:
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    found = verify(str(saved), "--json")
    assert (found.exit_code, json.loads(found.stdout)["recorded_in"]) == (0, "lineage.json")
    text = (saved / "lineage.json").read_text()
    data = json.loads(text)
    data["checkpoint"]["manifest"]["files"].pop()
    (saved / "lineage.json").write_text(json.dumps(data))
    assert verify(str(saved)).exit_code == 3


def test_where_nothing_is_recorded_it_cannot_tell(
    verify: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINEAGE_DIR", str(tmp_path / "none"))
    (tmp_path / "f.pt").write_bytes(b"1")
    assert verify(str(tmp_path / "f.pt")).exit_code == 4


def test_a_url_is_read_where_it_lies(saved: Path, verify: Any) -> None:
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    for p in saved.iterdir():
        store.pipe_file(f"/verify/step/{p.name}", p.read_bytes())
    assert verify("memory://verify/step").exit_code == 0
    store.pipe_file("/verify/step/config.json", b"[]")
    found = verify("memory://verify/step", "--json")
    assert (found.exit_code, json.loads(found.stdout)["changed"]) == (
        1,
        {"config.json": "has other content than was recorded"},
    )
    assert verify("memory://verify/absent").exit_code == 2
