"""`lineage ranks` on a run that was saved on four ranks and resumed on other ones."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lineage.cli.app import app
from tests.probes import ranks

from .test_resharded import FSDP2_ON_CPU, resuming, saving

pytestmark = pytest.mark.skipif(not FSDP2_ON_CPU, reason="FSDP2 on the CPU asks for torch 2.7")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    ranks.run(functools.partial(saving, root=str(folder)), 4, tmp_path_factory.mktemp("ranks"))
    return folder


@pytest.fixture(scope="module")
def ask() -> Any:
    def run(*words: object) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["ranks", *map(str, words)])
        return done.exit_code, done.stdout

    return run


def test_a_resume_on_two_ranks_of_what_four_saved_is_said_to_be_equal(
    root: Path, tmp_path: Path, ask: Any
) -> None:
    """The save lies in the ledger of another run, which is found beside this one."""
    ranks.run(functools.partial(resuming, root=str(root), name="good"), 2, tmp_path)
    text = ask(root / "good")[1]
    assert "saved on 4 ranks, resumed on 2 ranks: equal" in text
    assert "optimizer_state: 10 tensors equal" in text
    told = json.loads(ask(root / "good", "--json")[1])["segments"][0]["resume"]
    assert (told["status"], told["saved_on"], told["resumed_on"]) == ("restored", "0-3", "0-1")
    assert told["components"]["weights"]["equal"] == 5


def test_an_equal_resume_on_one_rank_is_all_that_one_rank_can_be_held_against(
    root: Path, tmp_path: Path, ask: Any
) -> None:
    ranks.run(functools.partial(resuming, root=str(root), name="one"), 1, tmp_path)
    code, text = ask(root / "one")
    assert code == 0, text
    assert "saved on 4 ranks, resumed on 1 rank: equal" in text


def test_a_moment_that_was_not_restored_is_named_also_on_one_rank(
    root: Path, tmp_path: Path, ask: Any
) -> None:
    body = functools.partial(resuming, root=str(root), name="lost", damage="no moments")
    ranks.run(body, 1, tmp_path)
    code, text = ask(root / "lost")
    assert code == 1, text
    assert "saved on 4 ranks, resumed on 1 rank: not all restored" in text
    assert "10 absent (down.weight.moment1, norm.bias.moment1" in text


def test_a_segment_that_resumed_nothing_says_nothing_of_a_resume(root: Path, ask: Any) -> None:
    text = ask(root / "saved", "--json")[1]
    assert json.loads(text)["segments"][0]["resume"] is None
