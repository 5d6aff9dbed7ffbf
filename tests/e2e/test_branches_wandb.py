"""Rewinds, forks and groups in W&B: what the first segment said stays, and branches are told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from lineage.cli.sync import sync
from lineage.ledger.reader import Ledger
from tests.recorder.loop import Loop, only
from tests.trackers.wandb.stub_backend import StubBackend

from .training import CHANGED, FIRST, attach, finished, logged, points, resumed, start_wandb, train


def first_segment(backend: StubBackend, root: Path, ck: Path, *, spoil: int = -1) -> dict[int, float]:
    """Nine updates on the page r1, of which a checkpoint holds five."""
    run, loop = start_wandb(mode="online", id="r1", config=FIRST, tags=["mine"]), Loop()
    with attach(loop, root, run=run) as rec:
        losses = train(loop, rec, 5, lambda step, loss: run.log({"loss": loss}, step=step))
        rec.checkpoint(loop.save(ck), step=5)
        losses |= train(loop, rec, 9, lambda step, loss: run.log({"loss": loss}, step=step), spoil=spoil)
    run.finish()
    return losses


def notes(ledger: Ledger, code: str) -> list[str]:
    return [r.payload.text for r in ledger.of("tracker_note") if r.payload.code == code]


def test_after_a_rewind_the_facts_of_the_first_segment_and_the_user_s_tags_are_still_on_the_page(
    backend: StubBackend, home: Path
) -> None:
    """W&B cuts the history and starts the summary anew, and its client does not know the tags of before."""
    root, ck = home / "runs", home / "ck"
    before = first_segment(backend, root, ck, spoil=8)
    words = backend.runs["r1"].summary["lineage/first_non_finite"]

    run, loop = start_wandb(mode="online", resume_from="r1?_step=5"), resumed(ck)
    run.config.update(CHANGED, allow_val_change=True)
    with attach(loop, root, run=run, resumed_from=ck) as rec:
        after = train(loop, rec, 8, lambda step, loss: run.log({"loss": loss}, step=step))
    run.finish()

    page = backend.runs["r1"]
    kept = {step: loss for step, loss in before.items() if step <= 5}
    assert logged(page.history) == pytest.approx(kept | after)
    assert page.tags == ["mine", "lineage:broken"]
    assert page.summary["lineage/first_non_finite"] == words
    assert words.startswith("rank 0, step 8: ")
    starts = [page.values[f"lineage/segments/{n}/start"]["parent_step"] for n in ("001", "002")]
    assert starts == ["none", 5]
    assert page.values["lineage/segments/001"]["config"] != page.values["lineage/segments/002"]["config"]
    assert page.values["lineage/segments/001/code"]["revision"]
    assert page.values["lineage/drift/002"]["learning_rate"]["requested_before"] == 0.1
    assert (6, 1) in points(page.history)
    (note,) = notes(only(root), "LIN-T001")
    assert "rewound to its step 5" in note
    assert "W&B drops" not in note
    assert page.summary["lineage/notes/LIN-T004"] == (
        "This run stands on segment 1 to step 5, then segment 2 from step 6. Abandoned: steps 6 to 9 of segment 1"
    )


def test_a_fork_names_its_parent_run_also_after_it_was_resumed_and_its_regimes_are_counted_on(
    backend: StubBackend, home: Path
) -> None:
    """W&B itself loses its branch point on a resume."""
    root, ck, ck8 = home / "runs", home / "ck", home / "ck8"
    first_segment(backend, root, ck)
    parent = only(root).run
    run, loop = start_wandb(mode="online", id="r2", fork_from="r1?_step=5", config=CHANGED), resumed(ck)
    with attach(loop, root, run=run, resumed_from=ck, fork=True) as rec:
        train(loop, rec, 8, lambda step, loss: run.log({"loss": loss}, step=step))
        rec.checkpoint(loop.save(ck8), step=8)
    run.finish()
    run, loop = start_wandb(mode="online", id="r2", resume="must"), resumed(ck8)
    with attach(loop, root, run=run, resumed_from=ck8) as rec:
        train(loop, rec, 10, lambda step, loss: run.log({"loss": loss}, step=step))
    run.finish()

    page, old = backend.runs["r2"], backend.runs["r1"]
    assert page.values["lineage/run"]["fork_of"] == parent
    assert page.values["lineage/run"]["id"] != parent
    assert page.values["lineage/segments/001/start"]["start"] == "fork"
    assert page.values["lineage/drift/001"]["learning_rate"]["effective_before"] == 0.1
    assert [p for p in points(page.history) if p[0] == 6] == [(6, 1)]
    assert backend.uses[0] == backend.artifact("step-5").id
    assert page.summary["lineage/status"] == "broken"
    # the parent's page is as it was
    assert old.summary["lineage/status"] == "holds"
    assert old.tags == ["mine"]
    assert "lineage/notes/LIN-T004" not in {**old.summary, **page.summary}


def test_in_a_group_with_one_run_per_segment_each_page_says_where_the_others_are(
    backend: StubBackend, home: Path
) -> None:
    """The page of the abandoned branch learns of it from `lineage sync`, once."""
    root, ck = home / "runs", home / "ck"
    first_segment(backend, root, ck)
    run, loop = start_wandb(mode="online", id="r2", group="campaign", config=CHANGED), resumed(ck)
    with attach(loop, root, run=run, resumed_from=ck) as rec:
        after = train(loop, rec, 8, lambda step, loss: run.log({"loss": loss}, step=step))
    run.finish()
    page = backend.runs["r2"]
    assert logged(page.history) == pytest.approx(after)
    assert notes(only(root), "LIN-T001") == []  # nothing overlays: the steps were made on another page
    assert page.summary["lineage/notes/LIN-T004"] == (
        "This run stands on segment 1 (W&B run r1) to step 5, then segment 2 from step 6. "
        "Abandoned: steps 6 to 9 of segment 1 (W&B run r1)"
    )
    assert page.values["lineage/segments/002/start"]["parent_step"] == 5
    assert "lineage/notes/LIN-T004" not in backend.runs["r1"].summary
    ledger = only(root)
    first, _ = (r.payload.aliases[0] for r in ledger.of("run"))
    assert sync(ledger, first).problems == []
    told = backend.runs["r1"].summary["lineage/notes/LIN-T004"]
    assert told == (
        "This run stands on segment 1 to step 5, then segment 2 (W&B run r2) from step 6. "
        "Abandoned: steps 6 to 9 of segment 1"
    )
    assert sync(only(root), first).shown == 0


def test_offline_the_log_of_a_later_segment_names_the_log_of_the_one_before(home: Path) -> None:
    root, ck = home / "runs", home / "ck"
    run, loop = start_wandb(id="r1", config=FIRST), Loop()
    folder = Path(run.settings.sync_dir).name
    with attach(loop, root, run=run) as rec:
        train(loop, rec, 5, slow=False)
        rec.checkpoint(loop.save(ck), step=5)
    finished(run)
    run, loop = start_wandb(id="r1", config=FIRST), Loop().load(ck)
    with attach(loop, root, run=run, resumed_from=ck) as rec:
        train(loop, rec, 8, slow=False)
    told = finished(run).summary["lineage/notes/LIN-T004"]
    assert told == f"This run stands on segment 1 (W&B {folder}) to step 5, then segment 2 from step 6"
