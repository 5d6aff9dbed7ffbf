"""W&B when it is away, finished too early, or refuses steps: training goes on and nothing of ours is lost."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import wandb

from lineage.cli.sync import sync
from tests.ledger.helpers import fill, small_disk
from tests.recorder.loop import Loop, only
from tests.trackers.wandb.stub_backend import StubBackend
from tests.trackers.wandb.test_outage import IMPATIENT

from .training import CHANGED, FIRST, attach, finished, logged, points, resumed, start_wandb, train

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("gone", ["503", "403", "refused", "silent"])
def test_a_backend_that_fails_in_the_middle_delays_nothing_and_gets_all_of_it_later(
    backend: StubBackend, home: Path, gone: str
) -> None:
    """503, 403: each request fails. refused: nobody listens. silent: no request is answered."""
    run, loop = start_wandb(mode="online", id="r1", config=FIRST, settings=IMPATIENT), Loop()
    rec = attach(loop, home / "runs", run=run, exit_timeout=2.0)
    losses = train(loop, rec, 3, lambda step, loss: run.log({"loss": loss}, step=step))
    away = ExitStack()
    if gone == "silent":
        away.enter_context(backend.silent())
    elif gone == "refused":
        backend.close()
    else:
        backend.status = int(gone)
    # Who waited for the backend, here or at the end, would wait for ever: it is not back before the end.
    losses |= train(loop, rec, 30, lambda step, loss: run.log({"loss": loss}, step=step), slow=False)
    rec.checkpoint(loop.save(home / "ck"), step=30)
    writer = rec.begin()
    assert writer is not None
    assert writer.tasks.drain(120.0)  # with this exit_timeout the layer waits twelve seconds for its judging
    rec.close()
    away.close()
    backend.status = 0
    if gone == "refused":
        backend.open()
    run.finish()
    page = backend.runs["r1"]
    assert logged(page.history) == pytest.approx(losses)
    assert points(page.history)[0] == (1, 0)
    assert len([p for p in points(page.history) if p[0] == 1]) == 1
    assert page.summary["lineage/status"] == "holds"
    assert only(home / "runs").last("verdict").payload.status == "holds"  # type: ignore[union-attr]


def test_a_full_disk_of_w_b_s_own_folder_stops_nothing_and_the_ledger_has_everything(
    backend: StubBackend, home: Path
) -> None:
    """What becomes of the client's log is the client's business; the page of an online run has each thing once."""
    with small_disk(home / "disk", "8m") as disk:
        options = {"mode": "online", "id": "r1", "config": FIRST, "settings": IMPATIENT}
        run, loop = start_wandb(dir=str(disk), **options), Loop()
        rec = attach(loop, home / "runs", run=run, exit_timeout=5.0)
        train(loop, rec, 3, lambda step, loss: run.log({"loss": loss}, step=step))
        filler = fill(disk)
        train(loop, rec, 9, lambda step, loss: run.log({"loss": loss}, step=step), slow=False)
        rec.checkpoint(loop.save(home / "ck"), step=9)
        rec.close()
        filler.unlink()
        run.finish()
        ledger = only(home / "runs")
        assert ledger.last("segment_end").payload.last_step == 9  # type: ignore[union-attr]
        assert ledger.damage == []
        (alias,) = ledger.of("run")[0].payload.aliases
        assert sync(ledger, alias).problems == []
        page = backend.runs["r1"]
        assert page.values["lineage/anchor"]["root"] == ledger.of("seal")[-1].payload.root
        assert ["step-9" in a.aliases for a in backend.artifacts] == [True]
        assert len([p for p in points(page.history) if p == (1, 0)]) == 1
        assert any(name.startswith("r1/lineage/journal/") for name in backend.files)
        wandb.teardown()


@pytest.mark.slow
def test_after_wandb_core_is_killed_training_goes_on_the_process_ends_and_a_sync_makes_the_page_whole_once(
    backend: StubBackend, home: Path
) -> None:
    """Every call to W&B raises from then on, the user's own too."""
    root = home / "runs"
    command = [sys.executable, "-m", "tests.e2e.core_killed", str(root), "r1"]
    environment = {k: v for k, v in os.environ.items() if k != "WANDB_SERVICE"}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.split()[-1:] == ["6"], done.stdout + done.stderr[-3000:]
    ledger = only(root)
    assert ledger.last("segment_end").payload.last_step == 6  # type: ignore[union-attr]
    (trouble,) = [r.payload for r in ledger.of("degraded") if r.payload.part == "tracker"]
    assert trouble.remedy == "lineage sync"

    (alias,) = ledger.of("run")[0].payload.aliases
    assert sync(ledger, alias).problems == []
    page = backend.runs["r1"]
    assert page.values["lineage/anchor"]["root"] == ledger.of("seal")[-1].payload.root
    assert ["step-6" in a.aliases for a in backend.artifacts] == [True]
    before = {k: v for k, v in page.values.items() if k != "lineage/state"}
    assert sync(only(root), alias).shown == 0
    assert {k: v for k, v in page.values.items() if k != "lineage/state"} == before
    starts = [p for p in points(page.history) if p == (1, 0)]
    assert len(starts) == 1


def test_after_a_rollback_the_regime_is_on_the_page_and_a_note_says_which_rows_w_b_dropped(
    backend: StubBackend, home: Path
) -> None:
    root, ck = home / "runs", home / "ck"
    run, loop = start_wandb(mode="online", id="r1", config=FIRST), Loop()
    with attach(loop, root, run=run) as rec:
        before = train(loop, rec, 5, lambda step, loss: run.log({"loss": loss}, step=step))
        rec.checkpoint(loop.save(ck), step=5)
        before |= train(loop, rec, 9, lambda step, loss: run.log({"loss": loss}, step=step))
    run.finish()
    run, loop = start_wandb(mode="online", id="r1", resume="must"), resumed(ck)
    run.config.update(CHANGED, allow_val_change=True)
    with attach(loop, root, run=run, resumed_from=ck) as rec:
        after = train(loop, rec, 12, lambda step, loss: run.log({"loss": loss}, step=step))
    run.finish()

    page = backend.runs["r1"]
    assert sorted(after) == [6, 7, 8, 9, 10, 11, 12]  # training was not disturbed
    kept = {step: loss for step, loss in after.items() if step > 9}
    assert logged(page.history) == pytest.approx(before | kept)  # W&B itself keeps no other rows
    (note,) = [r for r in only(root).of("tracker_note") if r.payload.code == "LIN-T001"]
    assert "steps 6 to 9 of this branch are missing there" in note.payload.text
    assert page.summary["lineage/notes/LIN-T001"] == note.payload.text
    assert (6, 1) in points(page.history)
    assert page.values["lineage/regime/002"]["from_step"] == 6
    assert page.summary["lineage/status"] == "broken"


def test_nan_and_infinite_metrics_of_the_user_s_stay_and_the_page_says_where_they_began(home: Path) -> None:
    run, loop = start_wandb(config=FIRST), Loop()
    with attach(loop, home / "runs", run=run) as rec:
        losses = train(loop, rec, 6, lambda step, loss: run.log({"loss": loss}, step=step), spoil=4)
        run.log({"ppl": float("inf")}, step=7)
    log = finished(run)
    rows = logged(log.history)
    assert sorted(rows) == sorted(losses)
    assert [step for step, value in rows.items() if isinstance(value, str) or math.isnan(value)] == [4, 5, 6]
    assert log.history[-1]["ppl"] in (math.inf, "Infinity")
    assert log.summary["lineage/first_non_finite"].startswith("rank 0, step 4: ")
    assert log.summary["lineage/first_bad"].startswith("rank 0, step 4: loss is NaN")
    assert [(a.level, a.title.partition(",")[0]) for a in log.alerts] == [
        ("WARN", "Lineage: non-finite loss"),
        ("ERROR", "Lineage: 4 claims broken since step 4"),
    ]


def test_a_run_that_the_user_finished_first_is_said_and_nothing_is_lost(home: Path) -> None:
    run, loop = start_wandb(config=FIRST), Loop()
    rec = attach(loop, home / "runs", run=run, exit_timeout=1.0)
    losses = train(loop, rec, 3, lambda step, loss: run.log({"loss": loss}, step=step))
    log = finished(run)
    rec.close()
    assert logged(log.history) == pytest.approx(losses)
    ledger = only(home / "runs")
    assert ledger.last("verdict").payload.status == "holds"  # type: ignore[union-attr]
    (trouble,) = [r.payload for r in ledger.of("degraded") if r.payload.part == "tracker"]
    assert trouble.remedy == "lineage sync"


def test_sync_completes_the_page_of_an_online_run_that_the_user_finished_first(
    backend: StubBackend, home: Path
) -> None:
    root, ck = home / "runs", home / "ck"
    run, loop = start_wandb(mode="online", id="r1", config=FIRST), Loop()
    rec = attach(loop, root, run=run, exit_timeout=1.0)
    losses = train(loop, rec, 3, lambda step, loss: run.log({"loss": loss}, step=step))
    run.finish()
    losses |= train(loop, rec, 6, slow=False, spoil=6)
    rec.checkpoint(loop.save(ck), step=6)
    rec.close()
    assert "lineage/first_bad" not in backend.runs["r1"].summary

    ledger = only(root)
    (alias,) = ledger.of("run")[0].payload.aliases
    result = sync(ledger, alias)
    assert result.problems == []
    page = backend.runs["r1"]
    assert page.summary["lineage/first_bad"].startswith("rank 0, step 6: loss is NaN")
    assert page.values["lineage/anchor"]["root"] == ledger.of("seal")[-1].payload.root
    assert json.loads(backend.artifact("step-6").given["metadata"])["step"] == 6
    assert sync(only(root), alias).shown == 0
    assert logged(page.history) == pytest.approx({s: v for s, v in losses.items() if s <= 3})
