"""What an exception says stays on the machine: its class goes to the tracker, its words to the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lineage.ledger.reader import Ledger
from tests.recorder.loop import Loop, only

from . import plants
from .conftest import Store
from .training import FIRST, attach, finished, settle, start_wandb, train

SAID = ("the prompt was colourless green", "the pager is at door seven", "lost the key to drawer nine")
"""Messages of three exceptions: training's own, a callback's, and one inside the layer's capture."""


def where_said(*folders: Path) -> set[str]:
    """Which of the messages stand below some folders, in any form that a person or a program can read."""
    return {
        said for _, text in plants.texts([f for f in folders if f.exists()]) for said in SAID if said in text
    }


class Unreadable:
    """A scheduler whose state raises when it is read."""

    def state_dict(self) -> dict[str, Any]:
        raise KeyError(SAID[2])


def broken_training(run: Any, root: Path, **options: Any) -> Ledger:
    """A segment that ends in an exception, with an alarm whose callback raised and an object nobody can read."""

    def pager(alarm: object) -> None:
        raise ConnectionError(SAID[1])

    loop = Loop()
    rec = attach(loop, root, run=run, config=FIRST, on_alarm=pager, **options)
    rec.watched.scheduler = Unreadable()
    train(loop, rec, 4, spoil=3)
    rec.checkpoint(loop.save(root / "ck"), step=4)
    settle(rec)
    rec.close(RuntimeError(SAID[0]))
    return only(root)


def test_on_mlflow_the_words_of_exceptions_are_in_no_tag_artifact_or_report(
    store: Store, tmp_path: Path
) -> None:
    root = tmp_path / "runs"
    ledger = broken_training(store.start(), root, report=True)
    assert where_said(tmp_path / "mlflow.db", tmp_path / "artifacts") == set()
    # Their classes are, with where to read the rest.
    (run,) = store.client.search_runs([store.experiment])
    tag = run.data.tags["lineage/degraded/on_alarm"]
    assert tag.startswith("LIN-L001: on_alarm failed with ConnectionError: the callback was not heard")
    assert tag.endswith(f"in the ledger: lineage report {ledger.run}")
    for name in ("report.html", "report.md"):
        (shown,) = (tmp_path / "artifacts").rglob(name)
        assert "RuntimeError, its own words are in the ledger" in shown.read_text()
        assert "ConnectionError, its own words are in the ledger" in shown.read_text()
    saved = ledger.of("checkpoint")[0].payload.live
    assert "could not be read (KeyError)" in [c.note for c in saved if c.component == "lr_scheduler"]
    # The local report has the words of those that ended training or a part of the layer.
    for name in ("report.html", "report.md"):
        assert where_said(ledger.path / "report" / name) == set(SAID[:2])
        assert where_said(ledger.path / "report" / "tracker" / name) == set()


def test_on_w_b_they_are_in_no_part_of_the_log_and_no_file_of_the_run(home: Path) -> None:
    run = start_wandb(config=FIRST)
    ledger = broken_training(run, home / "runs", report=True)
    log = finished(run)
    assert "failed with ConnectionError" in log.summary["lineage/degraded"]
    assert where_said(Path(run.settings.sync_dir)) == set()
    assert {"lineage/report.html", "lineage/report.md"} <= set(log.files)
    assert where_said(ledger.path / "report") == set(SAID[:2])


def test_shared_text_brings_them_to_the_page(store: Store, tmp_path: Path) -> None:
    broken_training(store.start(), tmp_path / "runs", report=True, share=["text"])
    assert where_said(tmp_path / "artifacts") == set(SAID[:2])
    (run,) = store.client.search_runs([store.experiment])
    assert run.data.tags["lineage/degraded/on_alarm"].endswith(SAID[1])
