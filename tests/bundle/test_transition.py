"""Which steps get a bundle, and what is on disk first: the bad transition itself, and what only its process has."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import lineage
import schemas
from lineage.bundle import reading, verifying
from lineage.capture.state import Lanes
from lineage.cli import bundle as cli_bundle
from lineage.ledger import layout
from lineage.recorder import incidents
from lineage.recorder.live_agreement import Raised
from lineage.recorder.surroundings import Surroundings
from tests.recorder.loop import Loop, attach, only

NAN = float("nan")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # so that no git repository that is being worked on is captured


def bundles(root: Path) -> list[reading.Bundle]:
    return reading.within(only(root).path)


def train(
    loop: Loop, rec: Any, steps: int, gradient: Callable[[int], float | None], *, first: int = 1
) -> None:
    """Real steps, in which a reduction puts the given value into the gradients, as another rank's would."""
    for step in range(first, steps + 1):
        batch = next(loop.loader)
        with rec.step(step, batch) as st:
            loss = loop.model(batch["x"]).pow(2).mean()
            loop.optimizer.zero_grad()
            loss.backward()
            bad = gradient(step)
            if bad is not None:
                for p in loop.model.parameters():
                    p.grad.fill_(bad)
            torch.nn.utils.clip_grad_norm_(loop.model.parameters(), 1.0)
            loop.optimizer.step()
            st.loss(loss)


def test_what_another_ranks_nan_does_to_the_weights_is_no_second_transition(tmp_path: Path) -> None:
    """The reduced norm breaks at step 10, the loss at step 11 through the weights: one bundle, of step 10."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        train(loop, rec, 14, lambda step: NAN if step == 10 else None)
    onsets = [(a.step, a.payload.signal) for a in only(tmp_path).of("alarm") if a.payload.phase == "onset"]
    assert (10, "grad_norm") in onsets
    assert (11, "loss") in onsets
    assert [b.step for b in bundles(tmp_path)] == [10]


def test_a_step_that_made_no_update_explains_no_later_one(tmp_path: Path) -> None:
    """The first bad step ends in an exception that the loop catches: the next bad one is a fault of its own."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 9)
        try:
            with rec.step(10, next(loop.loader)) as st:
                st.loss(NAN)
                raise FloatingPointError("loss is not finite")
        except FloatingPointError:
            pass
        train(loop, rec, 12, lambda step: NAN if step == 11 else None, first=11)
    first, second = bundles(tmp_path)
    assert (first.step, second.step) == (10, 11)
    assert first.manifest.state is not None, "no update was made"
    assert second.manifest.alarm.signal == "grad_norm"


def test_a_spike_that_becomes_nan_leaves_both_steps(tmp_path: Path) -> None:
    """The alarm changes its kind and does not begin anew: the step of the NaN is evidence too."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        for step in range(1, 64):
            with rec.step(step, next(loop.loader)) as st:
                st.loss(NAN if step == 62 else 1e9 if step == 61 else 2.0 + 0.01 * (step % 7))
    alarms = [(a.step, a.payload.phase, a.payload.abnormal) for a in only(tmp_path).of("alarm")]
    assert (61, "onset", "out_of_range") in alarms
    assert (62, "change", "non_finite") in alarms
    assert [b.step for b in bundles(tmp_path)] == [61, 62]


def test_a_step_that_the_loss_scaler_skipped_leaves_the_state_that_it_began_with(tmp_path: Path) -> None:
    """With a scaler no gate is needed: the update was not made, and the weights are those from before it."""
    loop, scaler = Loop(), torch.amp.GradScaler("cpu", init_scale=8.0)
    before: str | None = None
    with attach(loop, tmp_path, scaler=scaler) as rec:
        for step in range(1, 10):
            batch = next(loop.loader)
            with rec.step(step, batch) as st:
                if step == 8:
                    before = Lanes().found(dict(loop.model.named_parameters()))[0]
                loss = loop.model(batch["x"]).pow(2).mean() * (NAN if step == 8 else 1.0)
                loop.optimizer.zero_grad()
                scaler.scale(loss).backward()
                scaler.step(loop.optimizer)
                scaler.update()
                st.loss(loss)
    (found,) = bundles(tmp_path)
    assert found.step == 8
    assert found.signals(8)["update_skipped"] == 1.0
    assert found.manifest.state is not None
    assert found.manifest.state.updates_after == 0
    assert {c.component: c.digest for c in found.manifest.state.live}["weights"] == before
    assert found.facts_of(8)["scaler"]["_scale"] == 8.0


def test_what_only_the_process_has_is_on_disk_before_anything_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed in its first seconds, while its environment is read, leaves the batch and the states."""
    seen: list[set[str]] = []
    written = Surroundings.wait_written

    def wait(self: Surroundings, seconds: float) -> bool:
        hidden = list(tmp_path.rglob(".rank*"))
        seen.extend({str(p.relative_to(h)) for p in h.rglob("*") if p.is_file()} for h in hidden)
        assert verifying.verify(hidden[0]).partial
        return written(self, seconds)

    monkeypatch.setattr(Surroundings, "wait_written", wait)
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 3, spoil=2)
    (there,) = seen
    assert {"step.json", "rng.safetensors", "series.json", "batches/step2-micro0.safetensors"} <= there
    (found,) = bundles(tmp_path)
    assert verifying.verify(found.path).whole
    assert found.records("environment")


def test_a_ledger_whose_disk_is_full_has_its_bundle_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes where journals go then, is on record with its whole path, and the way back is on record too."""

    def full(path: Path) -> None:
        if "captured" in path.parts and "elsewhere" not in path.parts:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(layout, "fsync_folder", full)
    monkeypatch.setattr(layout, "fallback_root", lambda: tmp_path / "elsewhere")
    loop = Loop()
    with attach(loop, tmp_path / "runs") as rec:
        loop.run(rec, 12, spoil=10)
    ledger = only(tmp_path / "runs")
    (record,) = ledger.of("bundle")
    path = Path(record.payload.location)
    assert path.is_relative_to(tmp_path / "elsewhere")
    assert verifying.verify(path).whole
    assert reading.Bundle(path).manifest.limit == record.payload.limit == 64 << 20
    (said,) = ledger.of("degraded")
    assert said.payload.part == "bundle"
    assert str(path) in said.payload.consequence
    assert said.payload.remedy is not None
    assert f"mv {path}" in said.payload.remedy
    assert [p for p in (ledger.path / "captured").rglob("*") if p.is_file()] == []


def test_a_batch_of_which_nothing_could_be_kept_is_not_said_to_be_kept(tmp_path: Path) -> None:
    """A generator is used up: its place is there, its content is not, and a replay is told so."""
    with attach(Loop(), tmp_path) as rec:
        for step in range(1, 4):
            with rec.step(step, (i for i in range(3))) as st:
                st.loss(NAN if step == 3 else 1.0)
    (found,) = bundles(tmp_path)
    assert [(b.kept, b.same) for s in found.manifest.steps for b in s.batches] == [(False, None)] * 3
    assert found.steps() == []
    with pytest.raises(reading.BundleError, match="a builtins:generator"):
        found.batches(3)


def test_text_that_utf8_does_not_have_costs_no_batch(tmp_path: Path) -> None:
    """Half a surrogate pair, as a broken tokenizer leaves it, comes back as it was, beside the tensors."""
    with attach(Loop(), tmp_path) as rec:
        for step in range(1, 3):
            with rec.step(step, {"x": torch.ones(2), "text": ["a\ud800", "b"]}) as st:
                st.loss(NAN if step == 2 else 1.0)
    (found,) = bundles(tmp_path)
    (batch,) = found.batches(2)
    assert batch["text"] == ["a\ud800", "b"]
    assert torch.equal(batch["x"], torch.ones(2))


class Odd:
    """A batch whose fingerprint cannot be made."""

    def __init__(self, x: Any) -> None:
        self.x = x

    @property
    def data(self) -> Any:
        raise RuntimeError("no")


def test_a_batch_without_a_fingerprint_is_evidence_all_the_same(tmp_path: Path) -> None:
    """And it is not held against the fingerprint of another micro-batch."""
    with attach(Loop(), tmp_path) as rec:
        for step in range(1, 3):
            with rec.step(step) as st:
                st.batch(Odd(torch.full((2,), float(step))))
                st.batch({"x": torch.ones(2)})
                st.loss(NAN if step == 2 else 1.0)
    (found,) = bundles(tmp_path)
    first, second = found.batches(2)
    assert torch.equal(first.x, torch.full((2,), 2.0))
    assert torch.equal(second["x"], torch.ones(2))
    assert [b.same for b in found.manifest.steps[-1].batches] == [None, None]


def test_ranks_that_differ_leave_what_each_holds_of_the_tensors_that_do(tmp_path: Path) -> None:
    """The alarm comes some steps after the digest: the batch of that step, the named weight and its moments."""
    loop, name = Loop(), "2.weight"
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 12)
        writer = rec.begin()
        assert writer is not None
        alarm = schemas.Alarm(
            code="LIN-A007",
            phase="onset",
            signal="replicas",
            scope="group",
            abnormal="differs",
            value=1.0,
            tensors=[name],
            text="rank 0 holds other bits than ranks 1-2 at step 10",
        )
        incidents.of_group(rec, writer, Raised(alarm, 10, None, own=False))
        incidents.of_group(rec, writer, Raised(alarm, 10, None, own=False))
        held = dict(loop.model.named_parameters())[name].detach().clone()
        moment = loop.optimizer.state[dict(loop.model.named_parameters())[name]]["exp_avg"].clone()
    (found,) = bundles(tmp_path)
    assert (found.step, found.manifest.done, found.manifest.alarm.abnormal) == (10, 12, "differs")
    kept = found.tensors("differing.safetensors")
    assert torch.equal(kept[f"weight|{name}"], held)
    assert torch.equal(kept[f"exp_avg|{name}"], moment)
    assert {n.partition("|")[2] for n in kept} == {name}
    assert 10 in found.steps()
    assert verifying.verify(found.path).whole
    assert reading.choose(only(tmp_path).path).path == found.path


def test_an_alarm_over_ranks_counts_where_the_run_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The line at the end says how many there were, of values and of ranks that differ; the next command follows it."""
    loop = Loop()
    with lineage.attach(None, **loop.objects, dir=tmp_path, report=False) as rec:
        loop.run(rec, 3)
        writer = rec.begin()
        assert writer is not None
        alarm = schemas.Alarm(
            code="LIN-A007",
            phase="onset",
            signal="replicas",
            scope="group",
            abnormal="differs",
            value=1.0,
            text="rank 0 holds other bits than ranks 1-2 at step 2",
        )
        incidents.of_group(rec, writer, Raised(alarm, 2, None, own=True))
    assert "1 alarms" in caplog.text
    assert "next: lineage first-bad" in caplog.text


def test_what_is_shown_of_the_checkpoints_is_what_the_ledger_knows_by_now(tmp_path: Path) -> None:
    """The bundle is written before the first bad one is saved, and before anything is preserved."""
    loop = Loop()
    with attach(loop, tmp_path / "runs") as rec:
        writer = rec.begin()
        assert writer is not None
        for until, saved in ((5, True), (10, False), (12, True)):
            loop.run(rec, until, spoil=10)
            if saved:
                rec.checkpoint(loop.save(tmp_path / f"step-{until}"), step=until)
            assert writer.tasks.drain(60.0)
            assert writer.bundles.drain(60.0)
        (found,) = bundles(tmp_path / "runs")
        good = found.manifest.last_good
        assert good is not None
        writer.write(schemas.CheckpointMark(checkpoint=good.uid, mark="preserved", why="a test"))
    assert found.manifest.first_bad is None
    told = dict(cli_bundle._checkpoints(found))
    assert "step 5, " in told["last good checkpoint"]
    assert told["last good checkpoint"].endswith("; preserved")
    assert "step 12, " in told["first bad checkpoint"]
    assert "on record since the alarm" in told["first bad checkpoint"]
    assert "not preserved: lineage incident preserve" in told["first bad checkpoint"]
