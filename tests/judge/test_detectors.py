"""The detector of spikes, and what its findings carry."""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage.judge.detect_signal import SIGNALS, SignalDetector, replay
from lineage.judge.detect_window import Window
from lineage.judge.detectors import LOSS, NORM, RULES, Detector, Finding


def norms(n: int, seed: int = 0, sigma: float = 0.15) -> list[float]:
    """Log-normal norms on one level."""
    r = random.Random(seed)
    return [math.exp(r.gauss(0.0, sigma)) for _ in range(n)]


def losses(n: int, seed: int = 0) -> list[float]:
    """A falling, noisy loss."""
    r = random.Random(seed)
    return [2.0 + 6.0 * math.exp(-i / 40) + r.gauss(0, 0.03) for i in range(n)]


MIXED = st.lists(
    st.one_of(
        st.floats(0.01, 100.0),
        st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -1.0, 1e300, 5e-324]),
    ),
    max_size=150,
)


@given(MIXED, st.integers(0, 150), st.sampled_from(SIGNALS))
def test_a_detector_restored_from_json_goes_on_as_if_it_had_never_stopped(
    values: list[float], cut: int, signal: str
) -> None:
    """State that goes into a checkpoint holds all that later verdicts depend on."""
    whole = [repr(f) for f in _updates(SignalDetector(signal), values)]
    first = SignalDetector(signal)
    before = [repr(f) for f in _updates(first, values[:cut])]
    state = json.loads(json.dumps(first.state(), allow_nan=False))
    after = [repr(f) for f in _updates(SignalDetector(signal, state), values[cut:])]
    assert before + after == whole


def _updates(detector: SignalDetector, values: list[float]) -> list[tuple[Finding | None, Finding | None]]:
    return [detector.update(v) for v in values]


@given(MIXED, st.sampled_from(SIGNALS))
def test_a_recorded_stream_is_judged_again_with_the_same_verdict(values: list[float], signal: str) -> None:
    """Pure: equal values, equal findings, live or later."""
    live = SignalDetector(signal)
    said = [(i, repr(f)) for i, v in enumerate(values) for f in live.update(v) if f]
    assert [(i, repr(f)) for i, f in replay(signal, values)] == said


@given(st.lists(st.floats(-5.0, 5.0), min_size=1, max_size=60), st.integers(1, 20))
def test_a_window_orders_what_a_list_would(values: list[float], size: int) -> None:
    """Median and newest value agree with sorting the last values afresh, repeated values included."""
    window = Window(size)
    for i, v in enumerate(values):
        window.push(v)
        last = values[max(0, i + 1 - size) : i + 1]
        ordered = sorted(last)
        middle = 0.5 * (ordered[(len(last) - 1) // 2] + ordered[len(last) // 2])
        assert window.values() == last
        assert window.median() == middle
        assert window.quantile(1.0) == max(last)
        assert window.tail(3) == last[-3:]


@pytest.mark.parametrize("rule", [LOSS, NORM])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_storm_of_non_finite_values_does_not_move_the_baseline(rule: object, bad: float) -> None:
    """Each is flagged, none enters, and the value after a thousand of them is judged as before."""
    detector = Detector(RULES["loss"] if rule is LOSS else RULES["grad_norm"])
    for v in norms(100):
        detector.update(v)
    before = detector.state()
    for _ in range(1000):
        found = detector.update(bad)
        assert found is not None
        assert found.abnormal == "non_finite"
    assert detector.state() == before
    assert detector.update(1.0) is None
    assert detector.update(10.0) is not None


@pytest.mark.parametrize("size", [6.0, 10.0, 30.0])
def test_a_norm_at_six_times_or_more_is_found_in_ordinary_noise(size: float) -> None:
    """At every place of a stream with a deviation of 0.15 nats."""
    detector = Detector(NORM)
    for i, v in enumerate(norms(400)):
        if i > NORM.window:
            found = Detector(NORM, detector.state()).update(max(v, 1.0) * size)
            assert found is not None, i
        assert detector.update(v) is None


def test_the_scale_follows_the_stream() -> None:
    """A jump that is ordinary in a noisy loss is found in a quiet one."""
    for noise, found in ((0.01, True), (0.2, False)):
        r = random.Random(1)
        detector = Detector(LOSS)
        for _ in range(100):
            detector.update(2.5 + r.gauss(0, noise))
        assert (detector.update(2.5 + 0.3) is not None) is found


def test_a_constant_stream_has_a_floor() -> None:
    """No scatter at all must not make every digit an alarm."""
    detector = Detector(LOSS)
    for _ in range(50):
        assert detector.update(2.0) is None
    assert detector.update(2.01) is None
    assert detector.update(2.5) is not None


def test_a_level_that_stays_becomes_the_baseline_and_is_said_to() -> None:
    """After `patience` flagged values in a row, with the old and the new level in the finding."""
    detector = Detector(NORM)
    for v in norms(100):
        detector.update(v)
    said = [detector.update(20.0 * v) for v in norms(NORM.patience, seed=1)]
    assert [f.abnormal for f in said if f] == ["out_of_range"] * (NORM.patience - 1) + ["new_level"]
    last = said[-1]
    assert last is not None
    assert last.baseline == pytest.approx(1.0, rel=0.2)
    assert last.threshold == pytest.approx(20.0, rel=0.2)
    assert last.since == NORM.patience - 1
    assert detector.update(20.0) is None
    assert detector.update(400.0) is not None


def test_an_excursion_shorter_than_patience_leaves_the_baseline_alone() -> None:
    """One healthy value in between starts the count afresh."""
    detector = Detector(NORM)
    for _ in range(20):
        detector.update(1.0)
    for _ in range(5):
        assert all(f and f.abnormal == "out_of_range" for f in (detector.update(50.0) for _ in range(60)))
        assert detector.update(1.0) is None


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_finding_carries_the_version_and_every_parameter(signal: str) -> None:
    """Without them a verdict could not be had again from the ledger."""
    detector = SignalDetector(signal)
    for v in norms(50):
        detector.update(v)
    found, _ = detector.update(1000.0)
    assert found is not None
    assert found.detector == RULES[signal].parameters()
    assert str(found.detector["name"]).endswith("/2")
    assert {"sigmas", "window", "warmup", "patience"} <= set(found.detector)


def test_a_state_of_another_version_is_refused() -> None:
    """Its numbers may mean something else."""
    state = Detector(LOSS).state()
    with pytest.raises(ValueError, match=r"'loss-jump/2'.*'norm-jump/2'"):
        Detector(NORM, state)


def test_zero_and_negative_norms_are_no_spikes() -> None:
    """They have no logarithm; a dead gradient is another finding."""
    detector = Detector(NORM)
    assert [detector.update(v) for v in [1.0] * 20 + [0.0, -1.0]] == [None] * 22
