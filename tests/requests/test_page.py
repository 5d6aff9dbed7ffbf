"""The page of public requests: its examples run in one folder, and print what stands beside them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("mlflow")
pytest.importorskip("wandb")

from lineage.cli import common
from tests.wandb_home import own_home

from .page import Example, Played, examples, play

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "requests.md"
EXAMPLES = examples(PAGE.read_text())

STARRED = (
    *("wandb/wandb#1395", "wandb/wandb#912", "leggedrobotics/rsl_rl PR 194", "m2lines/Samudra#279"),
    *("thinking-machines-lab/tinker-cookbook PR 305", "wandb/wandb#10694", "wandb/wandb PR 11045"),
    *("wandb/wandb#9449", "wandb/wandb#3409", "wandb/wandb#1548", "wandb/wandb#9631", "#5712", "#1308"),
    *("wandb/wandb#6449", "mlflow/mlflow#3999", "#7152", "tier4/autoware-ml PR 66"),
    *("mlflow/mlflow PR 22826", "radixark/miles PR 2571", "TensorAuto/OpenTau PR 421"),
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Played]]:
    """All examples of the page, run once, top to bottom."""
    folder = tmp_path_factory.mktemp("requests")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(REPOSITORY / "examples"))
        patch.setenv("COLUMNS", "160")
        for console in (common.console, common.errors):  # they read it when they are made
            patch.setattr(console, "_width", 160)
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("PYTHONPATH", str(REPOSITORY))
        (folder / "home").mkdir()
        with own_home(folder / "home", patch):
            patch.delenv("WANDB_DIR")  # runs lie where the page is run, as a reader's do
            yield {p.example.line: p for p in play(PAGE)}
    for name in ("common",):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_example_prints_what_the_page_says(example: Example, played: dict[int, Played]) -> None:
    done = played[example.line]
    assert not done.error, done.error
    missing = done.missing()
    assert not missing, f"{example}: the output lacks {missing[0]!r}:\n{done.printed}"


def test_each_starred_request_has_an_example_that_shows_its_output() -> None:
    text = PAGE.read_text()
    said = {e.section for e in EXAMPLES if e.expected}
    for request in STARRED:
        section = next(
            s for s in re.split(r"^## ", text, flags=re.M) if re.search(re.escape(request) + r"\b", s)
        )
        assert section.splitlines()[0] in said, request


@pytest.mark.parametrize("line", ["step 12 ... other than that", "exit code 0", "first"])
def test_an_output_that_lacks_a_line_of_the_page_is_found(line: str) -> None:
    example = Example("s", "console", "lineage x", ["second", line])
    assert Played(example, "first\nsecond\nstep 12 is another\nexit code 1\n").missing() == [line]


def test_an_excerpt_may_leave_out_lines_and_parts_and_what_tables_are_drawn_with() -> None:
    example = Example("s", "console", "lineage x", ["a ┃ b", "...", "step 12 ... bad", ""])
    assert Played(example, "a  │  b\nanything\nstep 12 of 4711 is bad\n").missing() == []


def test_every_command_of_the_page_is_run(played: dict[int, Played]) -> None:
    commands = [line for line in PAGE.read_text().splitlines() if line.startswith("$ ")]
    assert len(commands) == sum(p.example.kind == "console" for p in played.values()) > 8
    assert os.getcwd() != str(REPOSITORY)
