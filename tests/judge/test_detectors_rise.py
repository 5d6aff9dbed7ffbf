"""The detector of slow rises."""

from __future__ import annotations

import math
import random

import pytest

from lineage.judge.detect_rise import LOSS_RISE, NORM_RISE, Rise
from lineage.judge.detect_signal import SignalDetector
from lineage.judge.detectors import Finding


def loss(n: int, seed: int, rise: float = 1.0, start: int = 0) -> list[float]:
    """A loss that falls, and from `start` on is multiplied by `rise` more at each step."""
    r = random.Random(seed)
    out = []
    for i in range(n):
        v = 2.0 + 3.0 / (1 + i / 50) + r.gauss(0, 0.03)
        out.append(v * rise ** max(0, i - start))
    return out


def first(detector: SignalDetector, values: list[float]) -> tuple[int, Finding] | None:
    """The first finding of either kind."""
    for i, v in enumerate(values):
        for f in detector.update(v):
            if f:
                return i, f
    return None


@pytest.mark.parametrize("seed", range(10))
def test_a_falling_loss_does_not_rise(seed: int) -> None:
    """A trend down, with noise, is no finding over three thousand steps."""
    assert first(SignalDetector("loss"), loss(3000, seed)) is None


@pytest.mark.parametrize("rise", [1.0003, 1.001, 1.003])
@pytest.mark.parametrize("seed", range(3))
def test_a_rise_too_slow_for_a_spike_is_found_with_its_beginning(rise: float, seed: int) -> None:
    """Every step is ordinary; the sum of them is not."""
    start = 2000
    found = first(SignalDetector("loss"), loss(2600, seed, rise, start))
    assert found is not None
    i, f = found
    assert f.abnormal == "slow_rise"
    assert start < i < start + 400
    assert abs((i - f.since) - start) < 150
    assert f.detector["name"] == "loss-rise/1"


def test_a_norm_that_triples_over_a_thousand_steps_is_healthy() -> None:
    """Small models show it; what is a finding is a rise within the reference's window."""
    r = random.Random(0)
    values = [math.exp(r.gauss(0, 0.15) + math.log(3.0) * i / 1500) for i in range(2000)]
    assert first(SignalDetector("grad_norm"), values) is None


def test_a_norm_that_doubles_within_the_window_is_found() -> None:
    """At one half of a percent per step."""
    r = random.Random(0)
    values = [math.exp(r.gauss(0, 0.15) + 0.005 * max(0, i - 600)) for i in range(1000)]
    found = first(SignalDetector("grad_norm"), values)
    assert found is not None
    assert found[1].abnormal == "slow_rise"
    assert 600 < found[0] < 850


def test_a_rise_is_said_once_and_its_level_is_taken_in_the_end() -> None:
    """Onset, then a new level after `patience` blocks; what is under alarm stays out of the reference."""
    rule = LOSS_RISE
    detector = Rise(rule)
    r = random.Random(0)
    for _ in range(600):
        detector.update(2.0 + r.gauss(0, 0.02))
    said = [f for f in (detector.update(2.3 + r.gauss(0, 0.02)) for _ in range(600)) if f]
    assert [f.abnormal for f in said] == ["slow_rise", "new_level"]
    assert said[0].baseline == pytest.approx(2.0, abs=0.02)
    assert said[1].threshold == pytest.approx(2.3, abs=0.02)
    assert not detector.alarmed
    assert not any(detector.update(2.3 + r.gauss(0, 0.02)) for _ in range(600))


def test_a_rise_that_goes_back_is_over_without_a_new_level() -> None:
    """The reference is where it was."""
    detector = Rise(LOSS_RISE)
    r = random.Random(0)
    for _ in range(600):
        detector.update(2.0 + r.gauss(0, 0.02))
    for _ in range(80):
        detector.update(2.3 + r.gauss(0, 0.02))
    assert detector.alarmed
    back = [detector.update(2.0 + r.gauss(0, 0.02)) for _ in range(200)]
    assert not detector.alarmed
    assert not any(back)


def test_non_finite_values_are_left_out() -> None:
    """They neither fill a block nor break one."""
    values = loss(1000, 0)
    plain, broken = Rise(LOSS_RISE), Rise(LOSS_RISE)
    for v in values:
        plain.update(v)
        broken.update(math.nan)
        broken.update(v)
        broken.update(math.inf)
    assert plain.state() == broken.state()


def test_a_state_of_another_version_is_refused() -> None:
    """Its numbers may mean something else."""
    with pytest.raises(ValueError, match=r"'loss-rise/1'.*'norm-rise/1'"):
        Rise(NORM_RISE, Rise(LOSS_RISE).state())
