"""The recorder in one process: what it records, and that it never gets in the way."""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lineage
import schemas
import trackers
from lineage.judge import graph

from .loop import Loop, attach, only


def test_a_run_without_a_tracker_is_recorded_whole(tmp_path: Path) -> None:
    """attach(None) is normal: config, code, environment, live values, verdict, coverage, end."""
    loop = Loop()
    with attach(loop, tmp_path, config={"lr": 0.1}, name="mine") as rec:
        loop.run(rec, 6)
    ledger = only(tmp_path)
    kinds = {r.kind for r in ledger.records}
    assert kinds >= {
        "run",
        "segment",
        "config",
        "code",
        "environment",
        "effective",
        "regime",
        "verdict",
        "coverage",
        "segment_end",
        "seal",
    }
    assert ledger.damage == []
    assert ledger.last("coverage").payload.missing == {"checkpoints": "rec.checkpoint(path, step=step)"}
    assert (ledger.path / "view" / "verdict.md").read_text().startswith("**")


def test_the_series_holds_every_step(tmp_path: Path) -> None:
    """Loss, local and reduced gradient norm, learning rate, clip threshold, and one fingerprint per step."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        losses = loop.run(rec, 6)
    rows = only(tmp_path).series("probes").to_pylist()
    by_signal = {s: [r["value"] for r in rows if r["signal"] == s] for s in {r["signal"] for r in rows}}
    assert by_signal["loss"] == pytest.approx(losses)
    assert {"loss", "grad_norm_local", "grad_norm", "lr", "clip_threshold"} <= set(by_signal)
    assert {len(by_signal[s]) for s in ("loss", "grad_norm_local", "grad_norm", "lr", "clip_threshold")} == {
        6
    }
    assert by_signal["grad_norm"] == pytest.approx(by_signal["grad_norm_local"], rel=1e-5)
    batches = only(tmp_path).series("batches").to_pylist()
    assert [b["step"] for b in batches] == [1, 2, 3, 4, 5, 6]
    assert len({b["digest"] for b in batches}) == 6
    assert {(b["samples"], b["tokens"]) for b in batches} == {(4, 20)}


def test_an_alarm_names_the_step_and_calls_back(tmp_path: Path) -> None:
    """The callback gets the alarm; the batch of that step is kept."""
    got: list[schemas.Alarm] = []
    loop = Loop()
    with attach(loop, tmp_path, on_alarm=got.append) as rec:
        loop.run(rec, 12, spoil=10)
    ledger = only(tmp_path)
    assert got
    assert got[0].signal == "loss"
    assert math.isnan(got[0].value)
    assert ledger.last("first_bad").payload.cell.step == 10
    assert list((ledger.path / "captured").glob("*/rank0-step10-*/batches/step10-micro0.safetensors"))


def test_request_stop_sets_the_flag_and_blocks_nothing(tmp_path: Path) -> None:
    """rec.should_stop is the training code's to read."""
    loop = Loop()
    with attach(loop, tmp_path, on_alarm="request_stop") as rec:
        loop.run(rec, 9)
        assert not rec.should_stop
        loop.run(rec, 12, spoil=10)
        assert rec.should_stop
    assert only(tmp_path).last("segment_end").payload.reason == "stop_requested"


def test_a_callback_that_raises_is_contained(tmp_path: Path) -> None:
    """The user's own callback may fail; the step does not."""

    def angry(alarm: schemas.Alarm) -> None:
        raise RuntimeError("pager is down")

    loop = Loop()
    with attach(loop, tmp_path, on_alarm=angry) as rec:
        assert len(loop.run(rec, 12, spoil=10)) == 12
    assert any("pager is down" in r.payload.error for r in only(tmp_path).of("degraded"))


def test_an_exception_of_the_training_code_passes_through(tmp_path: Path) -> None:
    """The layer swallows its own failures and nobody else's."""
    loop = Loop()

    def fail(step: int) -> None:
        if step == 4:
            raise ValueError("bad shard")

    with pytest.raises(ValueError, match="bad shard"), attach(loop, tmp_path) as rec:
        loop.run(rec, 6, before=fail)
    end = only(tmp_path).last("segment_end").payload
    assert (end.reason, end.last_step) == ("exception", 3)
    assert "bad shard" in end.error


def test_a_value_changed_between_steps_opens_a_regime(tmp_path: Path) -> None:
    """Undeclared run-time drift: somebody sets weight decay while the run goes on."""
    loop = Loop()

    def edit(step: int) -> None:
        if step == 5:
            loop.optimizer.param_groups[0]["weight_decay"] = 0.0

    with attach(loop, tmp_path) as rec:
        loop.run(rec, 8, before=edit)
    ledger = only(tmp_path)
    drift = ledger.last("drift").payload
    assert (drift.moment, drift.from_step) == ("in_run", 5)
    assert [c.concept for c in drift.changes] == ["weight_decay"]
    assert [r.payload.index for r in ledger.of("regime")] == [0, 1]
    assert ledger.last("verdict").payload.status == "broken"
    assert ledger.last("verdict").payload.since_step == 5


def test_a_schedule_moving_the_learning_rate_is_no_drift(tmp_path: Path) -> None:
    """Twenty steps of warm-up: no change of regime."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 25)
    assert only(tmp_path).of("drift") == []


def test_a_declared_mitigation_is_in_effect_only_with_evidence(tmp_path: Path) -> None:
    """Declared and seen: yes, from that step. Declared and not done: no."""
    loop = Loop()

    def edit(step: int) -> None:
        if step == 5:
            rec.mitigate("weight_decay", after=0.0, why="decay on norms", who="ann")
            loop.optimizer.param_groups[0]["weight_decay"] = 0.0

    with attach(loop, tmp_path) as rec:
        loop.run(rec, 8, before=edit)
    ledger = only(tmp_path)
    effect = ledger.last("mitigation_effect").payload
    assert (effect.in_effect, effect.from_step) == ("yes", 5)
    assert ledger.last("drift").payload.undeclared == []
    assert ledger.last("verdict").payload.claims[0].chain[0].declared


def test_micro_batches_are_counted(tmp_path: Path) -> None:
    """Gradient accumulation: one fingerprint each, the global batch is their sum."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        for step in (1, 2):
            with rec.step(step) as st:
                for _ in range(3):
                    batch = next(loop.loader)
                    st.batch(batch)
                    loss = loop.model(batch["x"]).pow(2).mean() / 3
                    loss.backward()
                    st.loss(loss * 3)
                loop.optimizer.step()
                loop.optimizer.zero_grad()
    ledger = only(tmp_path)
    held = next(r.payload for r in ledger.of("effective") if r.payload.moment == "after_first_step").values
    assert (held["grad_accum"].value.plain(), held["global_batch"].value.plain()) == (3, 12)
    assert [b["micro"] for b in ledger.series("batches").to_pylist()] == [0, 1, 2, 0, 1, 2]


def test_a_loop_that_counts_from_zero_is_shifted(tmp_path: Path) -> None:
    """step_base=0: the first update is step 1 in the ledger, as everywhere."""
    loop = Loop()
    with attach(loop, tmp_path, step_base=0) as rec:
        for i in range(3):
            with rec.step(i, next(loop.loader)):
                pass
    assert [b["step"] for b in only(tmp_path).series("batches").to_pylist()] == [1, 2, 3]


def test_asynchronous_saves_digest_the_state_at_the_start(tmp_path: Path) -> None:
    """The weights go on changing while the save is under way; the digests are of the saved state."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 3)
        with rec.saving(3) as save:
            folder = loop.save(tmp_path / "ck")
        loop.run(rec, 5)
        save.commit(folder)
    ledger = only(tmp_path)
    records = [r.payload for r in ledger.of("checkpoint")]
    assert [c.status for c in records] == ["pending", "complete"]
    again = Loop().load(tmp_path / "ck")
    from lineage.capture.state import capture
    from lineage.capture.watched import Watched

    weights = {c.component: c.digest for c in capture(Watched(model=again.model))}["weights"]
    assert {c.component: c.digest for c in records[-1].live}["weights"] == weights


def test_an_evaluation_is_a_record(tmp_path: Path) -> None:
    """Checkpoint, evaluator and version, data digest, results; NaN survives."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 2)
        uid = rec.checkpoint(loop.save(tmp_path / "ck"), step=2)
        rec.evaluation(
            uid, {"acc": 0.5, "loss": math.nan}, evaluator="mmlu", evaluator_version="1.2", data="sha256:ab"
        )
    got = only(tmp_path).last("evaluation").payload
    assert got.checkpoint == uid
    assert math.isnan(got.results["loss"])


class Angry:
    """A tracker that fails in every call: what a real one does when its service has died."""

    kind = "angry"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def alias(self) -> schemas.TrackerAlias:
        return schemas.TrackerAlias(tracker="angry", id="1")

    def requested(self) -> None:
        return None

    def show(self, record: Any, page: Any) -> str | None:
        raise self.error

    def publish(self, file: Path, name: str) -> None:
        raise self.error

    def close(self) -> None:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [trackers.TrackerUnavailable("down"), ConnectionResetError("gone"), trackers.TrackerRefused("no")],
)
def test_a_tracker_that_raises_costs_the_page_and_nothing_else(
    tmp_path: Path, error: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said once in the log and in the ledger; every record is in the ledger."""
    monkeypatch.setattr("lineage.recorder.attach._tracker", lambda run: Angry(error))
    loop = Loop()
    with attach(loop, tmp_path, run=object(), exit_timeout=0.2) as rec:
        assert len(loop.run(rec, 6)) == 6
    ledger = only(tmp_path)
    assert [r.payload.part for r in ledger.of("degraded")] == ["tracker"]
    assert ledger.last("degraded").payload.remedy == "lineage sync"
    assert ledger.last("verdict") is not None
    assert caplog.text.count("tracker failed") == 1


def test_a_run_object_of_no_known_tracker_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The type and the known trackers are named; the ledger is kept."""
    loop = Loop()
    with attach(loop, tmp_path, run=object()) as rec:
        loop.run(rec, 2)
    assert "no run of a known tracker (wandb, mlflow)" in caplog.text
    assert only(tmp_path).last("segment_end")


def test_a_ledger_folder_that_cannot_be_made_falls_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder's parent is a file: records go to the fallback folder, and the log says where."""
    monkeypatch.setattr("lineage.ledger.layout.fallback_root", lambda: tmp_path / "fallback")
    (tmp_path / "file").write_text("")
    loop = Loop()
    with attach(loop, tmp_path / "file" / "runs") as rec:
        assert len(loop.run(rec, 4)) == 4
    assert only(tmp_path / "fallback").last("segment_end").payload.last_step == 4
    assert "cannot be written" in caplog.text


def test_switched_off_means_nothing_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LINEAGE_ENABLED=0: no folder, no hooks."""
    monkeypatch.setenv("LINEAGE_ENABLED", "0")
    loop = Loop()
    with attach(loop, tmp_path / "runs") as rec:
        loop.run(rec, 2)
    assert not (tmp_path / "runs").exists()


def test_attach_never_raises_whatever_it_is_given(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nonsense for a model, an unreadable config: said, and the loop goes on."""
    rec = lineage.attach(None, model=42, optimizer="adam", config=object(), dir=tmp_path, quiet=True)
    loop = Loop()
    assert len(loop.run(rec, 2)) == 2
    rec.close()
    assert "Training goes on" in caplog.text


def test_a_forked_child_records_nothing(tmp_path: Path) -> None:
    """Loader workers are forks: they must not write to their parent's journal."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 2)
        pid = os.fork()
        if pid == 0:
            try:
                loop.run(rec, 4)
                rec.close()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        loop.run(rec, 3)
    ledger = only(tmp_path)
    assert ledger.damage == []
    assert ledger.last("segment_end").payload.last_step == 3
    assert sorted({b["step"] for b in ledger.series("batches").to_pylist()}) == [1, 2, 3]


def test_two_attaches_in_one_process_are_two_segments(tmp_path: Path) -> None:
    """Each attach is a segment of its own, with its own writer."""
    for run in ("a", "b"):
        loop = Loop()
        with attach(loop, tmp_path, run_id=run) as rec:
            loop.run(rec, 2)
    assert {p.name for p in tmp_path.iterdir()} == {"a", "b"}


def test_nan_metrics_survive_the_series(tmp_path: Path) -> None:
    """NaN and infinities are values, with their counts beside them."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 9)
        for step, value in ((10, math.inf), (11, -math.inf), (12, math.nan)):
            with rec.step(step) as st:
                st.loss(value)
    rows = {r["step"]: r for r in only(tmp_path).series("probes").to_pylist() if r["signal"] == "loss"}
    assert rows[10]["value"] == math.inf
    assert (rows[10]["n_posinf"], rows[11]["n_neginf"], rows[12]["n_nan"]) == (1, 1, 1)


def test_the_last_lines_say_where_and_what_next(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Ledger, what was recorded, what was not with the line that adds it, next command."""
    caplog.set_level(logging.WARNING)
    loop = Loop()
    with lineage.attach(None, model=loop.model, dir=tmp_path) as rec:
        loop.run(rec, 2)
    lines = [r.message for r in caplog.records if r.message.startswith("lineage:")]
    assert str(tmp_path) in lines[-4]
    assert "steps 1-2" in lines[-3]
    assert "add lineage.attach(run, optimizer=optimizer)" in lines[-2]
    assert lines[-1].startswith("lineage: next: lineage show")


def test_attach_alone_records_the_run(tmp_path: Path) -> None:
    """No step, no save: config, code, environment and coverage are there all the same."""
    rec = lineage.attach(None, config={"lr": 1}, dir=tmp_path, quiet=True, report=False)
    rec.close()
    ledger = only(tmp_path)
    assert {r.kind for r in ledger.records} >= {"run", "segment", "config", "code", "environment", "coverage"}
    assert ledger.last("verdict").payload.status == "not_shown"


@pytest.mark.parametrize("bad", ["../evil", "/etc/evil", "a/b", "", ".hidden", "x" * 200])
def test_a_run_id_is_a_name_and_never_a_path(
    tmp_path: Path, bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It names a folder: anything else is left out, said, and a new id is taken."""
    loop = Loop()
    with attach(loop, tmp_path / "runs", run_id=bad) as rec:
        loop.run(rec, 2)
    assert only(tmp_path / "runs").last("segment_end")
    assert [p.name for p in tmp_path.iterdir()] == ["runs"]
    assert "is left out" in caplog.text


def test_a_deleted_ledger_folder_is_written_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody cleans up while the run goes on: the journal's lines are still held, and come back."""
    import shutil

    loop = Loop()
    with attach(loop, tmp_path / "runs") as rec:
        loop.run(rec, 3)
        while (tmp_path / "runs").exists():  # a thread of the layer may write while it is being removed
            shutil.rmtree(tmp_path / "runs", ignore_errors=True)
        loop.run(rec, 6)
    ledger = only(tmp_path / "runs")
    assert ledger.damage == []
    assert {r.kind for r in ledger.records} >= {"journal_header", "segment", "effective", "segment_end"}
    assert "was deleted" in caplog.text


def test_a_rate_set_beside_the_scheduler_is_found(tmp_path: Path) -> None:
    """Somebody cuts the rate in the param groups; the scheduler knows nothing of it."""
    loop = Loop()

    def cut(step: int) -> None:
        if step == 5:
            loop.optimizer.param_groups[0]["lr"] *= 0.1

    with attach(loop, tmp_path) as rec:
        loop.run(rec, 8, before=cut)
    found = [c for r in only(tmp_path).of("drift") for c in r.payload.changes]
    assert [c.concept for c in found] == ["learning_rate"]
    assert "the schedule says" in found[0].text


def test_a_smaller_batch_from_some_step_on_is_found_and_one_at_an_epochs_end_is_not(tmp_path: Path) -> None:
    """A size counts once it has come twice in a row."""
    loop = Loop()
    with attach(loop, tmp_path / "epoch", run_id="a") as rec:
        for step in range(1, 9):
            with rec.step(step, {"ids": torch.ones(2 if step == 4 else 4, 5, dtype=torch.long)}):
                pass
    assert only(tmp_path / "epoch").of("drift") == []
    with attach(Loop(), tmp_path / "cut", run_id="b") as rec:
        for step in range(1, 9):
            with rec.step(step, {"ids": torch.ones(2 if step >= 4 else 4, 5, dtype=torch.long)}):
                pass
    assert {c.concept for r in only(tmp_path / "cut").of("drift") for c in r.payload.changes} == {
        "global_batch",
        "micro_batch",
    }


def test_autocast_is_seen_where_it_is_on(tmp_path: Path) -> None:
    """It is on inside the forward pass only; the first one is looked at."""
    loop = Loop()
    with attach(loop, tmp_path) as rec, rec.step(1, next(loop.loader)), torch.autocast("cpu", torch.bfloat16):
        loop.model(torch.ones(2, 3))
    held = only(tmp_path).of("effective")[-1].payload.values["precision"].value.plain()
    assert held == "float32, autocast bfloat16"


def test_a_mitigation_that_nothing_bears_out_is_judged_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Declared and never done; and a concept that nobody knows."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 3)
        rec.mitigate("grad_clip", after=0.1, why="spikes")
        rec.mitigate("dropuot", after=0.0, why="typo")
        loop.run(rec, 6)
    effects = [r.payload.in_effect for r in only(tmp_path).of("mitigation_effect")]
    assert effects == ["no", "not_shown"]
    assert "did you mean dropout" in caplog.text


def test_a_step_that_is_no_number_is_counted_on(tmp_path: Path) -> None:
    """rec.step(None) must not stop a training run."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        for label in (None, "a", 3):
            with rec.step(label, next(loop.loader)):  # type: ignore[arg-type]
                pass
    assert [b["step"] for b in only(tmp_path).series("batches").to_pylist()] == [1, 2, 3]


def test_steps_that_go_back_in_one_segment_are_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A rollback inside one process: nothing shows from which state it went on."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        for step in (1, 2, 3, 4, 2, 3, 4, 5):
            with rec.step(step, next(loop.loader)):
                pass
    ledger = only(tmp_path)
    assert [c.text for r in ledger.of("drift") for c in r.payload.unclassified] == [
        "the step went back from 4 to 2 within one segment, from a state that nothing shows"
    ]
    assert caplog.text.count("the step went back") == 1
    assert ledger.last("verdict").payload.status == "caveat"


def test_a_loop_that_counts_from_zero_unsaid_is_a_gap(tmp_path: Path) -> None:
    """The label of the first update is 0: said, with the argument that would shift it."""
    loop = Loop()
    with attach(loop, tmp_path) as rec, rec.step(0, next(loop.loader)):
        pass
    assert (
        "the loop counts from 0: pass step_base=0 to lineage.attach"
        in only(tmp_path).last("coverage").payload.gaps
    )


ENDS = """
import sys
from tests.recorder.loop import Loop, attach

loop, how = Loop(), sys.argv[2]
rec = attach(loop, sys.argv[1])
loop.run(rec, 3)
if how == "close":
    rec.close()
elif how in ("exit in a step", "exit 0 in a step"):
    with rec.step(4):
        sys.exit(3 if how == "exit in a step" else 0)
elif how == "exception":
    with rec.step(4):
        raise ValueError("bad shard")
"""


@pytest.mark.parametrize(
    ("how", "reason", "error", "last"),
    [
        ("close", "finished", None, 3),
        ("falls off the end", "exited", None, 3),
        ("exit in a step", "exception", "SystemExit: 3", 3),
        ("exit 0 in a step", "exited", None, 3),
        ("exception", "exception", "ValueError: bad shard", 3),
    ],
)
def test_how_a_segment_ended_is_no_more_than_was_seen(
    tmp_path: Path, how: str, reason: str, error: str | None, last: int
) -> None:
    """Closed by the code, left behind at exit, or ended by an error; a step that failed is no step that was made."""
    subprocess.run(
        [sys.executable, "-c", ENDS, str(tmp_path), how],
        cwd=Path(__file__).parents[2],
        check=False,
        stderr=subprocess.DEVNULL,
    )
    ledger = only(tmp_path)
    end = ledger.last("segment_end").payload
    assert (end.reason, end.error, end.last_step) == (reason, error, last)
    found = graph.build(ledger.records, reached=ledger.reached)
    assert list(found.last_step.values()) == [last]


def test_an_evaluation_of_something_that_is_no_uid_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The message says what to give; nothing is recorded."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 2)
        rec.evaluation("step-2", {"mmlu": 0.3}, evaluator="harness", evaluator_version="1")
    assert "takes the uid that rec.checkpoint() returned" in caplog.text
    assert not only(tmp_path).of("evaluation")
