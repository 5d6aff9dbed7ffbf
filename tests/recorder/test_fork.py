"""Forks: another run, whose parent is a checkpoint of the first."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from lineage.ledger.reader import open_ledger

from .loop import Loop, attach, only, parent_run


def test_a_fork_is_a_run_of_its_own_that_names_its_parent(tmp_path: Path) -> None:
    """fork=True: another lineage run id, the same parent checkpoint."""
    ck = tmp_path / "ck"
    run = parent_run(tmp_path / "runs", ck).run
    loop = Loop().load(ck)
    with attach(loop, tmp_path / "forks", resumed_from=ck, fork=True) as rec:
        loop.run(rec, 7)
    ledger = only(tmp_path / "forks")
    assert ledger.run != run
    assert ledger.last("run").payload.fork_of == run
    assert ledger.last("segment").payload.start == "fork"


def test_a_fork_whose_parent_is_named_after_its_ledger_was_opened_names_it_too(tmp_path: Path) -> None:
    """A run id opens the ledger at once, before the loop says what it loaded; the report has the parent as well."""
    from lineage.report import facts

    ck = tmp_path / "ck"
    run = parent_run(tmp_path / "runs", ck).run
    loop = Loop().load(ck)
    with attach(loop, tmp_path / "forks", run_id="branch") as rec:
        rec.resumed_from(ck, fork=True)
        loop.run(rec, 7)
    loop = Loop()
    with attach(loop, tmp_path / "forks", run_id="branch") as rec:  # a later process knows of no fork
        loop.run(rec, 2)
    ledger = open_ledger(tmp_path / "forks" / "branch")
    assert [r.payload.fork_of for r in ledger.of("run")] == [None, run, None]
    assert facts.gather(ledger).fork_of == run
