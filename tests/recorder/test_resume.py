"""Resumes: what was restored, what changed, and what cannot be told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import schemas
from lineage.ledger import resumes

from .loop import Counted, Loop, Plain, attach, only, parent_run, sidecar


def resumed(
    root: Path,
    loop: Loop,
    ck: Path | None,
    steps: int = 8,
    before: Callable[[int], None] = lambda step: None,
    **options: object,
) -> list[schemas.Record]:
    """Run a resumed segment and return its records."""
    with attach(loop, root, resumed_from=ck, **options) as rec:
        loop.run(rec, steps, before=before)
    ledger = only(root)
    return [r for r in ledger.records if r.segment == ledger.segments[-1].uid]


def one(records: list[schemas.Record], kind: str) -> schemas.Record:
    """The last record of a kind."""
    return [r for r in records if r.kind == kind][-1]


def look(root: Path) -> resumes.Resumed:
    """What `lineage resume` tells of the last segment."""
    ledger = only(root)
    found = resumes.look(ledger, ledger.segments[-1])
    assert found is not None
    return found


def changed(records: list[schemas.Record]) -> set[str]:
    """Concepts in the drift record."""
    return {c.concept for c in one(records, "drift").payload.changes}


CONFIG = {"lr": 0.1, "clip": 1.0}


def test_a_faithful_resume_has_no_drift_and_holds(tmp_path: Path) -> None:
    """Everything restored: the same run, the same regime, no change."""
    ck = tmp_path / "ck"
    parent_run(tmp_path / "runs", ck)
    found = resumed(tmp_path / "runs", Loop().load(ck), ck, config=CONFIG)
    assert changed(found) == set()
    assert {c.status for c in one(found, "restore").payload.components} == {"restored"}
    before, now = only(tmp_path / "runs").of("regime")
    assert (now.payload.id, now.payload.index, now.payload.from_step) == (before.payload.id, 0, 6)
    assert one(found, "verdict").payload.status == "holds"
    assert one(found, "segment").payload.parent_checkpoint == sidecar(ck)["checkpoint"]["uid"]


@pytest.mark.parametrize("named", [True, False])
def test_what_is_known_of_a_resume_only_after_the_ledger_was_opened_is_what_the_segment_shows(
    tmp_path: Path, named: bool
) -> None:
    """A run id opens the ledger at attach; `rec.resumed_from` or the weights say later where it came from."""
    ck = tmp_path / "ck"
    parent_run(tmp_path / "runs", ck)
    loop = Loop().load(ck)
    with attach(loop, tmp_path / "runs", run_id=only(tmp_path / "runs").run, config=CONFIG) as rec:
        if named:
            rec.resumed_from(ck)
        loop.run(rec, 8)
    shown = only(tmp_path / "runs").segments[-1].info
    assert (shown.start, shown.parent_checkpoint) == ("resume", sidecar(ck)["checkpoint"]["uid"])


def test_the_usual_habits_are_all_found(tmp_path: Path) -> None:
    """Learning rate, clip, optimizer, data: four changes, confounded, a new regime."""
    ck = tmp_path / "ck"
    parent_run(tmp_path / "runs", ck)
    loop = Loop(clip=0.3).load(ck, optimizer=False, skip=3)
    loop.scheduler.base_lrs = [0.01]
    found = resumed(tmp_path / "runs", loop, ck, config={"lr": 0.01, "clip": 0.3})
    assert changed(found) == {"learning_rate", "grad_clip", "optimizer_state", "batch_skip"}
    assert one(found, "drift").payload.confounded
    assert one(found, "regime").payload.index == 1
    assert one(found, "verdict").payload.status == "broken"


def test_a_new_learning_rate_that_the_checkpoint_overrides_is_not_in_effect(tmp_path: Path) -> None:
    """The config says 0.01; optimizer and scheduler took 0.1 from the checkpoint."""
    ck = tmp_path / "ck"
    parent_run(tmp_path / "runs", ck)
    found = resumed(tmp_path / "runs", Loop(lr=0.01).load(ck), ck, config={"lr": 0.01, "clip": 1.0})
    change = one(found, "drift").payload.changes[0]
    assert change.concept == "learning_rate"
    assert change.requested_after.plain() == 0.01
    assert change.effective_after.plain() == 0.1
    assert "not in effect" in change.text
    looked = look(tmp_path / "runs")
    assert looked.faithful
    assert looked.not_in_effect == [change.text]


def test_random_numbers_that_were_not_restored_break_bitwise_reproduction_only(tmp_path: Path) -> None:
    """Dropout draws other numbers; the distribution is the same."""
    ck = tmp_path / "ck"
    parent_run(tmp_path / "runs", ck)
    found = resumed(tmp_path / "runs", Loop(seed=7).load(ck, rng=False), ck, config=CONFIG)
    status = {c.claim: c.status for c in one(found, "verdict").payload.claims}
    assert "rng" in changed(found)
    assert status["bitwise"] == "broken"
    assert status["loss_curve"] == "caveat"


def test_skipped_batches_of_a_plain_loader_are_found_by_their_fingerprints(tmp_path: Path) -> None:
    """The first batch after the resume is one that the other branch had two steps later."""
    ck, root = tmp_path / "ck", tmp_path / "runs"
    loop = Loop(loader=Plain())
    with attach(loop, root, config=CONFIG) as rec:
        loop.run(rec, 5)
        rec.checkpoint(loop.save(ck), step=5)
        loop.run(rec, 9)
    found = resumed(root, Loop(loader=Plain()).load(ck, skip=2), ck, config=CONFIG)
    drift = one(found, "drift").payload
    assert "batch_skip" in changed(found)
    assert any("the one that step 8 had" in c.text and "2 skipped" in c.text for c in drift.changes)
    (position,) = [o for o in look(root).outcomes if o.component == "loader_position"]
    assert position.status == "differs"
    assert "2 skipped" in position.text
    assert look(root).faithful is False


def test_the_same_batch_of_a_plain_loader_shows_its_position(tmp_path: Path) -> None:
    """The batch of step 6 is the batch that step 6 had before: the position is shown by content."""
    ck, root = tmp_path / "ck", tmp_path / "runs"
    loop = Loop(loader=Plain())
    with attach(loop, root, config=CONFIG) as rec:
        loop.run(rec, 5)
        rec.checkpoint(loop.save(ck), step=5)
        loop.run(rec, 7)
    found = resumed(root, Loop(loader=Plain()).load(ck), ck, config=CONFIG)
    assert "loader_position" not in one(found, "drift").payload.not_shown
    assert changed(found) == set()


def test_data_that_is_read_again_at_each_resume_is_found_at_each(tmp_path: Path) -> None:
    """A plain loader that starts afresh: the second resume is found like the first, though batch 1 came twice."""
    root = tmp_path / "runs"
    for part in range(3):
        loop = Loop(loader=Plain())
        options = {}
        if part:
            loop.load(tmp_path / f"ck{part - 1}").loader.position = 0
            options = {"resumed_from": tmp_path / f"ck{part - 1}"}
        with attach(loop, root, config=CONFIG, **options) as rec:
            loop.run(rec, loop.done + 5)
            rec.checkpoint(loop.save(tmp_path / f"ck{part}"), step=loop.done)
            loop.run(rec, loop.done + 3)
        if part:
            found = {c.concept: c.text for c in one(only(root).records, "drift").payload.changes}
            assert "data is read again" in found["loader_position"]
            said = [o.text for o in look(root).outcomes if o.component == "loader_position"]
            assert said == [found["loader_position"]]


def test_data_that_comes_again_after_an_epoch_is_no_change(tmp_path: Path) -> None:
    """Five batches make an epoch, and the checkpoint is at its end: step 6 has the batch of step 1, as it should."""

    class Epochs(Plain):
        def __len__(self) -> int:
            return 5

    root, ck = tmp_path / "runs", tmp_path / "ck"
    parent_run(root, ck, loader=Epochs())
    loop = Loop(loader=Epochs()).load(ck)
    loop.loader.position = 0
    found = resumed(root, loop, ck, config=CONFIG)
    assert changed(found) == set()
    assert "loader_position" in one(found, "drift").payload.not_shown


def test_a_plain_loader_without_a_second_branch_is_not_shown(tmp_path: Path) -> None:
    """Nothing to compare the batch with: not shown, never fine."""
    ck, root = tmp_path / "ck", tmp_path / "runs"
    parent_run(root, ck, loader=Plain())
    found = resumed(root, Loop(loader=Plain()).load(ck), ck, config=CONFIG)
    assert "loader_position" in one(found, "drift").payload.not_shown
    assert one(found, "verdict").payload.status == "not_shown"


def test_a_checkpoint_without_a_sidecar_is_said_and_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """LIN-C001, no claim holds, and the loop runs to its end."""
    ck = Loop().save(tmp_path / "ck")
    found = resumed(tmp_path / "runs", Loop().load(ck), ck, config=CONFIG)
    assert "LIN-C001" in caplog.text
    assert one(found, "tracker_note").payload.code == "LIN-C001"
    assert one(found, "segment_end").payload.last_step == 8
    assert one(found, "verdict").payload.status == "not_shown"


@pytest.mark.parametrize(
    "damage", ["{not json", '{"schema": "lineage/sidecar/9-0-0"}', '{"schema": "lineage/sidecar/1-0-0"}', ""]
)
def test_a_damaged_or_unknown_sidecar_is_said_and_training_goes_on(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The file is named, nothing raises, the checkpoint is untouched."""
    ck = tmp_path / "ck"
    parent_run(tmp_path / "runs", ck)
    (ck / "lineage.json").write_text(damage)
    loop = Loop().load(ck)
    with attach(loop, tmp_path / "other", resumed_from=ck) as rec:
        assert len(loop.run(rec, 8)) == 3
    assert "lineage.json" in caplog.text
    assert (ck / "lineage.json").read_text() == damage


def test_a_resume_that_names_no_checkpoint_is_recognised_by_its_weights(tmp_path: Path) -> None:
    """The live weights equal the digests of exactly one checkpoint of this run."""
    ck = tmp_path / "ck"
    run = parent_run(tmp_path / "runs", ck).run
    loop = Loop().load(ck)
    found = resumed(tmp_path / "runs", loop, None, config=CONFIG, run_id=run)
    segment = one(found, "segment").payload
    assert (segment.start, segment.parent_evidence) == ("resume", "content")
    assert segment.parent_checkpoint == sidecar(ck)["checkpoint"]["uid"]
    assert changed(found) == set()


def test_a_resume_from_nothing_known_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Step 6 is the first step seen, and no checkpoint explains it."""
    ck = Loop().save(tmp_path / "ck")
    loop = Loop().load(ck)
    loop.done = 5
    with attach(loop, tmp_path / "runs") as rec:
        loop.run(rec, 7)
    ledger = only(tmp_path / "runs")
    assert ledger.last("segment").payload.start == "unknown"
    assert "LIN-C007" in caplog.text
    assert ledger.last("verdict").payload.status == "not_shown"


def test_the_late_verb_finds_the_parents_ledger(tmp_path: Path) -> None:
    """attach, load, resumed_from: the run id comes from the checkpoint, since no record was due before."""
    ck = tmp_path / "ck"
    parent_run(tmp_path / "runs", ck)
    loop = Loop()
    with attach(loop, tmp_path / "runs", config=CONFIG) as rec:
        loop.load(ck)
        rec.resumed_from(ck)
        loop.run(rec, 8)
    ledger = only(tmp_path / "runs")
    assert len(ledger.segments) == 2
    assert ledger.last("drift").payload.changes == []


def test_a_resume_from_a_bad_checkpoint_is_said_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint after the first bad step is marked; resuming from it is an audit finding."""
    root, ck = tmp_path / "runs", tmp_path / "bad"
    loop = Loop()
    with attach(loop, root) as rec:
        loop.run(rec, 10, spoil=9)
        rec.checkpoint(loop.save(ck), step=10)
    found = resumed(root, Loop().load(ck), ck, steps=11)
    assert "LIN-C006" in caplog.text
    assert any(r.kind == "finding" and r.payload.code == "LIN-C006" for r in found)


def test_the_sidecar_alone_walks_the_lineage(tmp_path: Path) -> None:
    """Ancestors, parent and live digests stand in the checkpoint folder itself."""
    root = tmp_path / "runs"
    loop = Loop()
    with attach(loop, root) as rec:
        for step in (3, 6, 9):
            loop.run(rec, step)
            rec.checkpoint(loop.save(tmp_path / f"ck{step}"), step=step)
    uids = [sidecar(tmp_path / f"ck{s}")["checkpoint"]["uid"] for s in (3, 6, 9)]
    last = sidecar(tmp_path / "ck9")
    assert last["ancestors"] == [uids[1], uids[0]]
    assert last["checkpoint"]["samples"] == 9 * 4
    assert {c["component"] for c in last["checkpoint"]["live"]} >= {
        "weights",
        "optimizer_state",
        "rng",
        "loader_position",
    }
    assert json.dumps(last)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_lost_sidecar_is_answered_by_the_ledger(tmp_path: Path, rank: int) -> None:
    """The ledger knows the path; of what only rank 0 held it says nothing to another rank."""
    from lineage.recorder.boundary import read_parent

    ck = tmp_path / "ck"
    ledger = parent_run(tmp_path / "runs", ck)
    uid = sidecar(ck)["checkpoint"]["uid"]
    (ck / "lineage.json").unlink()
    parent = read_parent(ck, rank)
    assert parent.checkpoint is None
    parent.ask(ledger.path, rank)
    assert parent.checkpoint is not None
    assert parent.checkpoint.uid == uid
    effective = parent.side().effective
    assert effective is not None
    assert effective.values["grad_clip"].value.plain() == 1.0
    rng = next(c for c in parent.live() if c.component == "rng")
    assert (rng.digest is None) == (rank == 1)


class Doubled(Counted):
    """The same positions, and twice the numbers: other data at the same place."""

    def __next__(self) -> dict[str, torch.Tensor]:
        batch = super().__next__()
        return {**batch, "x": batch["x"] * 2}


@pytest.mark.parametrize("kind", [Counted, Doubled])
def test_a_loader_at_the_same_position_with_other_data_is_found_by_its_batch(
    tmp_path: Path, kind: type[Counted]
) -> None:
    """The position is restored, and the batch of step 6 is compared all the same with that of the other branch."""
    ck, root = tmp_path / "ck", tmp_path / "runs"
    loop = Loop()
    with attach(loop, root, config=CONFIG) as rec:
        loop.run(rec, 5)
        rec.checkpoint(loop.save(ck), step=5)
        loop.run(rec, 9)
    found = resumed(root, Loop(loader=kind()).load(ck), ck, config=CONFIG)
    status = {c.claim: c.status for c in one(found, "verdict").payload.claims}
    assert changed(found) == ({"data_order"} if kind is Doubled else set())
    assert status["bitwise"] == ("broken" if kind is Doubled else "holds")
    assert (status["loss_curve"] == "holds") == (kind is Counted)


def test_a_resume_of_a_changed_branch_is_compared_with_that_branch(tmp_path: Path) -> None:
    """Two branches made step 9 with other data: what goes on from the second one is faithful to it."""
    ck, later, root = tmp_path / "ck", tmp_path / "later", tmp_path / "runs"
    loop = Loop()
    with attach(loop, root, config=CONFIG) as rec:
        loop.run(rec, 5)
        rec.checkpoint(loop.save(ck), step=5)
        loop.run(rec, 12)
    other = Loop(loader=Doubled()).load(ck)
    with attach(other, root, resumed_from=ck, config=CONFIG) as rec:
        other.run(rec, 8)
        rec.checkpoint(other.save(later), step=8)
    found = resumed(root, Loop(loader=Doubled()).load(later), later, steps=10, config=CONFIG)
    assert changed(found) == set()


def test_a_resume_in_eval_mode_trains_without_dropout_and_is_told(tmp_path: Path) -> None:
    """model.eval() before the loop: dropout 0.1 was in effect and is off."""
    ck = tmp_path / "ck"
    parent_run(tmp_path / "runs", ck)
    loop = Loop().load(ck)
    loop.model.eval()
    found = resumed(tmp_path / "runs", loop, ck, config=CONFIG)
    change = next(c for c in one(found, "drift").payload.changes if c.concept == "dropout")
    assert change.effective_after is not None
    assert change.effective_after.plain() == [0.0]
    assert "eval mode" in (change.read_from or "")
    assert one(found, "verdict").payload.status == "broken"


def test_eval_mode_between_the_steps_is_no_change(tmp_path: Path) -> None:
    """An evaluation before the first step, and a save in eval mode: only the mode within a step counts."""
    ck, root = tmp_path / "ck", tmp_path / "runs"
    loop = Loop()
    with attach(loop, root, config=CONFIG) as rec:
        loop.run(rec, 5)
        loop.model.eval()
        rec.checkpoint(loop.save(ck), step=5)
    again = Loop().load(ck)
    again.model.eval()
    found = resumed(root, again, ck, config=CONFIG, before=lambda _: again.model.train())
    assert changed(found) == set()
    assert one(found, "verdict").payload.status == "holds"


def test_eval_mode_that_is_never_left_again_is_told_in_the_run(tmp_path: Path) -> None:
    """After an evaluation at step 4 nobody calls model.train(): a drift of the run itself."""
    loop, root = Loop(), tmp_path / "runs"
    with attach(loop, root, config=CONFIG) as rec:
        loop.run(rec, 4)
        loop.model.eval()
        loop.run(rec, 8)
    drift = one(only(root).records, "drift").payload
    assert (drift.moment, drift.from_step) == ("in_run", 5)
    assert [c.concept for c in drift.changes] == ["dropout"]


@pytest.mark.parametrize("late", [False, True])
def test_a_lost_sidecar_joins_the_run_whose_ledger_knows_the_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, late: bool
) -> None:
    """No lineage.json, and the same dir: the run goes on in its own ledger, and the clip threshold is compared."""
    ck, root = tmp_path / "ck", tmp_path / "runs"
    parent_run(root, ck)
    (ck / "lineage.json").unlink()
    loop = Loop(clip=0.3).load(ck)
    with attach(loop, root, resumed_from=None if late else ck, config={"lr": 0.1, "clip": 0.3}) as rec:
        if late:
            rec.resumed_from(ck)
        loop.run(rec, 8)
    ledger = only(root)
    assert len(ledger.segments) == 2
    assert ledger.last("run").payload.source == "loaded"
    assert "grad_clip" in {c.concept for c in ledger.last("drift").payload.changes}
    assert "tells of the save at that path" in caplog.text
    assert "nothing is known" not in caplog.text


@pytest.mark.parametrize(("there", "words"), [(True, "has no lineage.json"), (False, "does not exist")])
def test_a_checkpoint_that_nothing_tells_of_is_said_with_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, there: bool, words: str
) -> None:
    """The path was named: what is wrong with it, and how the run is joined; never that it was not named."""
    ck = Loop().save(tmp_path / "ck")
    found = resumed(
        tmp_path / "runs", Loop().load(ck), ck if there else tmp_path / "no" / "such", config=CONFIG
    )
    assert words in caplog.text
    assert "pass run_id=" in caplog.text
    reasons = " ".join(c.reason for c in one(found, "verdict").payload.claims)
    assert "was not named" not in reasons
    assert "a checkpoint was named" in reasons
