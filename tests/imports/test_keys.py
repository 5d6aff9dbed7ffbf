"""A value of a compared config stands under its key, wherever it is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lineage.cli.app import app
from lineage.imports import into_ledger, read, read_configs
from lineage.judge import graph, phases, reported
from lineage.ledger.reader import Ledger, open_ledger
from lineage.report import write


def output(command: str, ledger: Ledger) -> str:
    result = CliRunner().invoke(app, [command, str(ledger.path)], env={"COLUMNS": "400"})
    return " ".join(result.output.split())


@pytest.fixture
def decay(tmp_path: Path) -> Ledger:
    """Decay of embeddings switched off; the weight decay itself stays."""
    (tmp_path / "a.yaml").write_text("optimizer: {weight_decay: 0.1, decay_embeddings: true}\nlr: 1e-4\n")
    (tmp_path / "b.yaml").write_text("optimizer: {weight_decay: 0.1, decay_embeddings: false}\nlr: 1e-4\n")
    return open_ledger(
        into_ledger(read_configs([tmp_path / n for n in ("a.yaml", "b.yaml")]), tmp_path / "out")
    )


def test_a_change_of_one_key_of_a_concept_is_not_told_as_one_of_the_concept(decay: Ledger) -> None:
    """`weight_decay: True -> False` would read as decay switched off."""
    (drift,) = [r.payload for r in decay.of("drift")]
    (change,) = drift.changes
    assert change.keys == ["optimizer.decay_embeddings"]
    assert change.text.startswith("weight_decay: optimizer.decay_embeddings requested True -> False")


@pytest.mark.parametrize("command", ["show", "tree"])
def test_the_terminal_names_the_key(command: str, decay: Ledger) -> None:
    """Beside both values."""
    assert "optimizer.decay_embeddings requested True -> False" in output(command, decay)


def test_the_report_names_the_key(decay: Ledger, tmp_path: Path) -> None:
    """In the table of changes and in the tree."""
    made = write(decay, tmp_path / "report")
    page = next(p for p in made if p.suffix == ".md").read_text(encoding="utf-8")
    assert page.count("optimizer.decay\\_embeddings") + page.count("optimizer.decay_embeddings") >= 2


def test_a_key_of_one_side_is_named_where_it_is_left_open(tmp_path: Path) -> None:
    """`min_lr: not stated -> 1e-5` by its key."""
    (tmp_path / "a.yaml").write_text("optim: {lr: 1e-4}\n")
    (tmp_path / "b.yaml").write_text("optim: {lr: 1e-4, min_lr: 1e-5}\n")
    book = read_configs([tmp_path / "a.yaml", tmp_path / "b.yaml"])
    (judged,) = reported.judge(book.entries)
    assert judged.regime_change == "cannot_tell"
    assert "optim.min_lr requested none -> 1e-5" in judged.reason


def test_cells_of_the_phase_table_name_the_keys(tmp_path: Path) -> None:
    """A ramp of the batch is told as what it is, beside the size that it leads to; `bf16` is no precision `true`."""
    base = {"--global-batch-size": "2048", "--bf16": "true", "--clip-grad": "1.0", "--nodes": "48"}
    rows = [
        {"date": "2022-03-01", "args": {**base, "--rampup-batch-size": "16 16 9_765_625"}},
        {"date": "2022-03-09", "args": {**base, "--rampup-batch-size": "192 16 9_765_625"}},
    ]
    (tmp_path / "launch.json").write_text(json.dumps(rows))
    (book,) = read(tmp_path / "launch.json")
    ledger = open_ledger(into_ledger(book, tmp_path / "out"))
    (only,) = phases.phases(ledger.records, graph.build(ledger.records))
    assert only.batch is not None
    assert only.batch.text == (
        "rampup-batch-size=16 16 9_765_625 (a ramp: starts at 16, grows by 16, over 9,765,625 samples), then "
        "rampup-batch-size=192 16 9_765_625 (a ramp: starts at 192, grows by 16, over 9,765,625 samples) (2022-03-09); "
        "step not stated; global-batch-size=2,048"
    )
    assert only.batch.one is None
    assert only.precision is not None
    assert only.precision.text == "bf16=true"
    assert only.clip is not None
    assert only.clip.text == "clip-grad=1.0"


def test_configs_of_one_segment_that_differ_are_listed_in_order(tmp_path: Path) -> None:
    """A clip that only the last of three states held in none of the others."""
    for name, text in (("a", "lr: 1e-4\n"), ("b", "lr: 2e-4\n"), ("c", "lr: 2e-4\nclip_grad: 0.3\n")):
        (tmp_path / f"{name}.yaml").write_text(text)
    book = read_configs([tmp_path / f"{n}.yaml" for n in "abc"])
    ledger = open_ledger(into_ledger(book, tmp_path / "out"))
    (only,) = phases.phases(ledger.records, graph.build(ledger.records))
    assert only.clip is not None
    assert only.clip.text == "not stated, then clip_grad=0.3"
    assert only.learning_rate is not None
    assert only.learning_rate.text == "lr=1e-4, then lr=2e-4 (no date); step not stated"


@pytest.mark.parametrize("command", ["show", "tree", "phases"])
def test_what_is_odd_about_a_source_is_said_wherever_the_run_is_shown(command: str, tmp_path: Path) -> None:
    """A restart that cannot be, and entries with the same oddity in one line."""
    rows = [
        {"step": 2000, "concept": "grad_clip", "before": 1.0, "after": 0.5, "restart_from": 20_000},
        {"concept": "weight_decay", "before": 0.1, "after": 0.2},
        {"concept": "optimizer", "before": "AdamW", "after": "Lion"},
    ]
    (tmp_path / "run.json").write_text(json.dumps(rows))
    (book,) = read(tmp_path / "run.json")
    shown = output(command, open_ledger(into_ledger(book, tmp_path / "out")))
    assert "odd: entry 1: it restarts from 20000, which is after its own step 2000" in shown
    assert "odd: entries 2 to 3: no step, date or restart is given" in shown
