"""On a ledger that was made of logs the commands work as on a recorded one, and say what it cannot show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lineage.cli.app import app

from .reading import done, megatron, written


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run that breaks at step 45, is rewound to 30, and goes on with a NaN at the end."""
    tmp_path = tmp_path_factory.mktemp("run")
    first = [megatron(s, 3.0 - s / 100 if s < 45 else 9.0 + s / 100) for s in range(1, 51)]
    second = [megatron(s, 3.0 - s / 100) for s in range(31, 60)]
    last = megatron(60, None, number_of_nan_iterations="  1")
    _, made = done(tmp_path, written(tmp_path, "a.log", "using world size: 16", *first, *second, last))
    return str(made.path)


def told(ledger: str, *command: str) -> tuple[int, str]:
    """Exit code and output of a command."""
    result = CliRunner().invoke(app, [command[0], ledger, *command[1:]])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_first_bad_names_the_step_of_each_segment(ledger: str) -> None:
    """Out of range on the abandoned branch, not finite at the end of the other."""
    for segment, step, abnormal in (("1", 45, "out_of_range"), ("2", 60, "non_finite")):
        code, text = told(ledger, "first-bad", "--segment", segment, "--json")
        assert code == 1
        cell = json.loads(text)["first_bad"]["cell"]
        assert (cell["step"], cell["signal"], cell["abnormal"]) == (step, "loss", abnormal)


def test_show_tree_phases_verify_and_check_know_both_branches(ledger: str) -> None:
    """Nothing of it was seen live, and nothing is damaged."""
    assert list(json.loads(told(ledger, "show", "--json")[1])["abandoned"].values()) == [30]
    assert "30" in told(ledger, "tree")[1]
    assert "nothing of this run was seen live" in told(ledger, "phases")[1]
    assert told(ledger, "verify")[0] == 0
    code, text = told(ledger, "check", "--json")
    assert code in (0, 1)
    assert {s["key"] for x in json.loads(text)["segments"] for s in x["series"]} >= {"lm loss", "grad norm"}


def test_the_report_is_written_with_what_the_log_contradicts(ledger: str) -> None:
    """The lost field stands in it."""
    pytest.importorskip("jinja2")
    assert told(ledger, "report")[0] in (0, 1)
    text = (Path(ledger) / "report" / "report.md").read_text(encoding="utf-8")
    assert "LIN-S004" in text
    assert "it was NaN" in text
