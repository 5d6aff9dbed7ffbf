"""`attach` never raises, wherever it fails; and what failed before the ledger was open is in the ledger."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lineage
from lineage.recorder import attach as attach_
from lineage.recorder import contain
from lineage.recorder.off import Off
from lineage.recorder.recorder import Recorder

from .loop import Loop, attach, only


def broken(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("broken on purpose")


WITHIN = {
    "settings": "lineage.recorder.attach.resolve",
    "world": "lineage.recorder.attach.world",
    "watched objects": "lineage.recorder.attach.Watched",
    "recorder": "lineage.recorder.attach.Recorder",
    "what was seen": "lineage.recorder.recorder.effective.Seen",
    "stepping": "lineage.recorder.recorder.Stepping",
    "streams": "lineage.recorder.stepping.streams.Streams",
    "drift in the run": "lineage.recorder.stepping.InRun",
    "last exception": "lineage.recorder.recorder.incidents.last_unhandled",
    "recent batches": "lineage.recorder.recorder.Recent",
    "tracker": "lineage.recorder.attach._tracker",
}
"""What the construction of a recorder goes through."""


def every_verb(rec: Recorder, loop: Loop, folder: Path) -> None:
    """All that training code may call, as it would."""
    with rec:
        rec.watch(model=loop.model)
        rec.resumed_from(folder)
        rec.mitigate("grad_clip", why="spikes", before=1.0, after=0.3)
        assert len(loop.run(rec, 3)) == 3
        with rec.step(4) as st:
            st.batch({"x": torch.ones(2, 3)})
            st.loss(1.0)
        rec.checkpoint(folder, step=3)
        with rec.saving(3) as save:
            pass
        save.commit(folder)
        rec.evaluation("ck", {"loss": 1.0}, evaluator="e", evaluator_version="1")
        uid = rec.incident("odd", owner="ann", step=2)
        rec.close_incident(uid or "none", why="was nothing")
        rec.segment()
        rec.regime_id()
        assert rec.should_stop is False
    rec.close(ValueError("late"))


@pytest.mark.parametrize("place", WITHIN.values(), ids=WITHIN)
def test_a_recorder_that_cannot_be_made_is_off_and_training_goes_on(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every verb is there and does nothing; it is said once; nothing is written."""
    monkeypatch.setattr(place, broken)
    loop = Loop()
    rec = attach(loop, tmp_path / "runs")
    every_verb(rec, loop, loop.save(tmp_path / "ck"))
    assert isinstance(rec, Recorder)
    assert not (tmp_path / "runs").exists()
    assert caplog.text.count("attaching failed (RuntimeError: broken on purpose)") == 1


def test_a_failure_that_cannot_even_be_put_into_words_is_said_by_its_type(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Masking fails as well, so the message must not be shown."""
    monkeypatch.setattr(attach_, "_attach", broken)
    monkeypatch.setattr(attach_, "describe", broken)
    assert isinstance(lineage.attach(None), Off)
    assert "attaching failed (RuntimeError); nothing is recorded" in caplog.text
    assert "on purpose" not in caplog.text


def test_an_exception_of_the_training_code_passes_through_a_recorder_that_is_off() -> None:
    rec = Off()
    with pytest.raises(ValueError, match="mine"), rec, rec.step(1):
        raise ValueError("mine")


def test_every_verb_of_the_recorder_does_nothing_on_one_that_is_off() -> None:
    """A verb that is added later must be thought of here too: the inherited one would need a made recorder."""
    own = {n for n, f in inspect.getmembers(Recorder, callable) if not n.startswith("_")}
    assert {n for n in own if getattr(Off, n) is getattr(Recorder, n)} == set()
    assert {n for n in ("__enter__", "__exit__", "close") if hasattr(Off, n)} == {
        "__enter__",
        "__exit__",
        "close",
    }


AFTERWARDS = {
    "hooks": ("lineage.recorder.stepping.clip.watch", "some live values are not recorded"),
    "config": ("lineage.capture.config.capture", "the requested config is not recorded"),
    "threads": ("lineage.recorder.surroundings.Surroundings.read", "code and environment are not recorded"),
    "code": ("lineage.capture.code.capture", "the code is not recorded"),
    "environment": ("lineage.capture.environment.capture", "the environment is not recorded"),
    "exit": ("lineage.recorder.attach.atexit.register", "the end is recorded only by rec.close()"),
}


@pytest.mark.parametrize(("place", "consequence"), AFTERWARDS.values(), ids=AFTERWARDS)
def test_what_fails_before_the_ledger_is_open_is_in_the_ledger(
    tmp_path: Path,
    place: str,
    consequence: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The rest is recorded as ever; the ledger says what failed and what is not recorded for it."""
    monkeypatch.setattr(place, broken)
    loop = Loop()
    with attach(loop, tmp_path, config={"lr": 0.1}) as rec:
        rec.surroundings.wait_read(300)
        loop.run(rec, 3)
    ledger = only(tmp_path)
    told = [(r.payload.error, r.payload.consequence) for r in ledger.of("degraded")]
    assert told == [("RuntimeError: broken on purpose", consequence)]
    assert ledger.last("segment_end").payload.last_step == 3
    assert caplog.text.count(consequence) == 1


def test_several_early_failures_of_one_part_are_all_in_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Config, code and environment: three things that the ledger lacks, not one."""
    for place in ("config", "code", "environment"):
        monkeypatch.setattr(f"lineage.capture.{place}.capture", broken)
    loop = Loop()
    with attach(loop, tmp_path, config={"lr": 0.1}) as rec:
        rec.surroundings.wait_read(300)
        loop.run(rec, 2)
    told = {r.payload.consequence for r in only(tmp_path).of("degraded")}
    assert told == {f"the {what} is not recorded" for what in ("requested config", "code", "environment")}


def test_a_capture_that_fails_while_the_ledger_is_being_opened_is_in_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Capture threads run beside the first verb: no failure falls between the two."""
    opening, told = threading.Event(), threading.Event()
    original: Callable[..., Any] = Recorder._open

    def late(**kwargs: Any) -> Any:
        assert opening.wait(300)
        raise RuntimeError("broken while opening")

    def slow(self: Recorder, ids: Any) -> Any:
        opening.set()
        self.surroundings.wait_read(300)
        told.set()
        return original(self, ids)

    monkeypatch.setattr("lineage.capture.code.capture", late)
    monkeypatch.setattr(Recorder, "_open", slow)
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 2)
    assert told.is_set()
    assert [r.payload.error for r in only(tmp_path).of("degraded")] == ["RuntimeError: broken while opening"]


def test_secrets_in_an_early_failure_are_masked_in_log_and_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from tests.secret_samples import SAMPLES, planted

    name = next(iter(SAMPLES))

    def leak(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(planted(name))

    monkeypatch.setattr("lineage.capture.config.capture", leak)
    loop = Loop()
    with attach(loop, tmp_path, config={"lr": 0.1}) as rec:
        loop.run(rec, 2)
    ledger = only(tmp_path)
    written = "".join(p.read_text() for p in (ledger.path / "journal").rglob("*.jsonl"))
    assert SAMPLES[name] not in written + caplog.text
    assert contain.describe(RuntimeError(planted(name))) in {r.payload.error for r in ledger.of("degraded")}
