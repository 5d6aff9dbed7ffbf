"""Values that come off a device late.

No GPU is here: a stand-in for the event of an asynchronous copy becomes ready when the test says so, and
reading a value before that fails, as it would give garbage on a device.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from lineage.capture.later import Later
from lineage.recorder import stepping

from .loop import Loop, Plain, attach, only

CONFIG = {"lr": 0.1, "clip": 1.0}


class Device:
    """What the stand-in values share: whether copies have arrived, and who asked."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.asked_by: set[int] = set()
        self.asked_off_thread = threading.Event()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """Fingerprints come off the device when `arrived` is set."""
    found = Device()
    training = threading.get_ident()

    class Late(Later):
        def ready(self) -> bool:
            found.asked_by.add(threading.get_ident())
            if threading.get_ident() != training:
                found.asked_off_thread.set()
            return found.arrived.is_set()

        def values(self) -> list[Any]:
            assert found.arrived.is_set(), "read before it had arrived"
            return super().values()

    monkeypatch.setattr("lineage.capture.batch.Later", Late)
    yield found
    found.arrived.set()


def broken_off(root: Path, ck: Path) -> None:
    """A segment with a checkpoint at step 5 that went on to step 9."""
    loop = Loop(loader=Plain())
    with attach(loop, root, config=CONFIG) as rec:
        loop.run(rec, 5)
        rec.checkpoint(loop.save(ck), step=5)
        loop.run(rec, 9)


def test_the_judgement_of_the_first_step_waits_for_its_fingerprint_and_training_does_not(
    tmp_path: Path, device: Device
) -> None:
    """All steps are made while nothing has arrived; then the skipped batches are found all the same."""
    root, ck = tmp_path / "runs", tmp_path / "ck"
    device.arrived.set()
    broken_off(root, ck)
    device.arrived.clear()
    loop = Loop(loader=Plain()).load(ck, skip=2)
    with attach(loop, root, resumed_from=ck, config=CONFIG) as rec:
        loop.run(rec, 8)
        assert device.asked_off_thread.wait(300), "the judgement is not waiting on a thread of its own"
        assert only(root).of("drift", rec.segment().uid) == []
        device.arrived.set()
    drift = only(root).of("drift", rec.segment().uid)[0].payload
    assert "batch_skip" in {c.concept for c in drift.changes}
    assert [
        b["step"] for b in only(root).series("batches").to_pylist() if b["segment"] == rec.segment().uid
    ] == [6, 7, 8]


def test_a_fingerprint_that_never_arrives_is_a_gap_and_the_rest_is_judged(
    tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait has an end, on its thread and when the run closes; what could not be judged is not shown."""
    root, ck = tmp_path / "runs", tmp_path / "ck"
    device.arrived.set()
    broken_off(root, ck)
    device.arrived.clear()
    monkeypatch.setattr(stepping, "ARRIVAL", 0.2)
    loop = Loop(loader=Plain(), clip=0.3).load(ck)
    with attach(loop, root, resumed_from=ck, config=CONFIG, exit_timeout=0.2) as rec:
        loop.run(rec, 8)
        assert rec._writer.tasks.drain(300)
    ledger = only(root)
    drift = ledger.last("drift").payload
    assert "grad_clip" in {c.concept for c in drift.changes}
    assert "loader_position" in drift.not_shown
    gaps = " ".join(ledger.last("coverage").payload.gaps)
    assert "the fingerprint of the first batch had not come off the device after 0.2 s" in gaps
    assert "values of 3 steps had not come off the device when the run ended" in gaps
