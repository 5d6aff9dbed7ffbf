"""A loss that creeps up while it is recorded: an alarm of its own kind, which stops nothing."""

from __future__ import annotations

import math
import random
from pathlib import Path

import lineage

from .loop import only


def train(folder: Path, values: list[float], **options: object) -> lineage.Recorder:
    """Record a run that has nothing but losses."""
    rec = lineage.attach(None, dir=folder, quiet=True, report=False, **options)
    for step, value in enumerate(values, 1):
        with rec.step(step) as st:
            st.loss(value)
    return rec


def creeping(n: int, start: int) -> list[float]:
    """Two and a little noise; from `start` on, half a percent more at each step."""
    r = random.Random(0)
    return [(2.0 + r.gauss(0, 0.02)) * 1.005 ** max(0, i - start) for i in range(n)]


def test_a_slow_rise_is_alarmed_and_neither_stops_the_run_nor_is_a_first_bad_cell(tmp_path: Path) -> None:
    """The alarm holds the detector's parameters; `request_stop` waits for spikes."""
    rec = train(tmp_path, creeping(240, 200), on_alarm="request_stop")
    assert not rec.should_stop
    rec.close()
    ledger = only(tmp_path)
    (alarm,) = [r for r in ledger.records if r.kind == "alarm"]
    a = alarm.payload
    assert (a.code, a.phase, a.abnormal, a.signal) == ("LIN-A005", "onset", "slow_rise", "loss")
    assert alarm.step is not None
    assert 200 < alarm.step <= 240
    assert a.detector["name"].value == "loss-rise/1"
    assert "rises slowly: from 1.9" in a.text or "rises slowly: from 2" in a.text
    assert ledger.last("first_bad") is None


def test_a_spike_after_a_slow_rise_is_the_first_bad_cell(tmp_path: Path) -> None:
    """The rise before it is on record and does not hide it."""
    rec = train(tmp_path, [*creeping(240, 200), math.nan, 2.4], on_alarm="request_stop")
    assert rec.should_stop
    rec.close()
    ledger = only(tmp_path)
    assert [r.payload.abnormal for r in ledger.records if r.kind == "alarm"] == ["slow_rise", "non_finite"]
    assert ledger.last("first_bad").payload.cell.step == 241


def test_an_end_says_what_has_ended(tmp_path: Path) -> None:
    """A loss out of its range, then healthy again: both records have the code of the range."""
    rec = train(tmp_path, [*creeping(60, 100), 9.0, *creeping(10, 100)])
    rec.close()
    alarms = [r.payload for r in only(tmp_path).records if r.kind == "alarm"]
    assert [(a.phase, a.code, a.abnormal) for a in alarms] == [
        ("onset", "LIN-A003", "out_of_range"),
        ("end", "LIN-A003", "out_of_range"),
    ]
    assert alarms[1].text == "loss is in its range again"
