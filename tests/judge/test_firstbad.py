"""The first bad cell, and the detectors behind it."""

from __future__ import annotations

import math
import random

import pytest

from lineage.judge.detectors import LOSS, NORM, Detector
from lineage.judge.firstbad import Point, RankSeen, Seen, cells, first_bad
from lineage.judge.graph import build

from .builders import History, uid


def healthy(n: int, seed: int = 0) -> list[float]:
    """A falling, noisy loss."""
    r = random.Random(seed)
    return [2.0 + 3.0 * math.exp(-i / 30) + r.gauss(0, 0.05) for i in range(n)]


def stream(segment: int, rank: int, signal: str, values: list[float]) -> list[Point]:
    """A series from step 1 on."""
    return [Point(uid(segment), rank, i, signal, v) for i, v in enumerate(values, 1)]


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_loss_is_never_flagged(seed: int) -> None:
    """Trend and noise alone are no alarm."""
    detector = Detector(LOSS)
    assert [v for v in healthy(300, seed) if detector.update(v)] == []


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_norm_is_never_flagged(seed: int) -> None:
    """Log-normal noise with a sigma of 0.25 around a slow drift."""
    r = random.Random(seed)
    detector = Detector(NORM)
    assert [i for i in range(500) if detector.update(math.exp(r.gauss(0, 0.25) + i / 500))] == []


def test_a_tenfold_norm_is_flagged_with_what_was_usual() -> None:
    """The finding carries baseline and threshold."""
    detector = Detector(NORM)
    for i in range(50):
        assert detector.update(1.0 + 0.01 * (i % 3)) is None
    found = detector.update(10.0)
    assert found is not None
    assert found.abnormal == "out_of_range"
    assert found.baseline == pytest.approx(1.01, abs=0.02)
    assert found.threshold is not None
    assert found.baseline is not None
    assert found.baseline < found.threshold < 10.0


def test_nan_does_not_blind_the_detector() -> None:
    """Non-finite values never enter the baseline: the next spike is still found."""
    detector = Detector(LOSS)
    for v in healthy(40):
        detector.update(v)
    for bad in (math.nan, math.inf, -math.inf):
        found = detector.update(bad)
        assert found is not None
        assert found.abnormal == "non_finite"
    assert detector.update(healthy(41)[40]) is None
    assert detector.update(50.0) is not None


def test_flagged_values_do_not_enter_the_baseline() -> None:
    """A long excursion stays flagged: it does not become the new normal by itself."""
    detector = Detector(NORM)
    for _ in range(20):
        detector.update(1.0)
    assert all(detector.update(100.0) for _ in range(50))


def seen(points: list[Point], world: int) -> Seen:
    """The summary of the ranks that a ledger of these values would give."""
    steps: dict[int, list[int]] = {}
    signals: dict[int, set[str]] = {}
    for p in points:
        steps.setdefault(p.rank, []).append(p.step)
        signals.setdefault(p.rank, set()).add(p.signal)
    ranks = {r: RankSeen(min(s), max(s), frozenset(signals[r])) for r, s in steps.items()}
    return Seen(ranks, world)


def history() -> History:
    """One segment with checkpoints at 10 and 30."""
    h = History()
    h.segment(1, steps=40)
    h.checkpoint(10, 1, 10)
    h.checkpoint(30, 1, 30, [10])
    return h


def test_the_earliest_step_wins_then_the_order_of_execution() -> None:
    """Local gradient before the reduced one: the rank where it began is named, not the one that shows it."""
    norms = [1.0] * 40
    bad = [*norms[:19], math.nan, *norms[20:]]
    points = [
        *stream(1, 0, "grad_norm_local", norms),
        *stream(1, 1, "grad_norm_local", bad),
        *stream(1, 0, "grad_norm", bad),
        *stream(1, 1, "grad_norm", bad),
    ]
    found = first_bad(build(history().records), uid(1), cells(points), seen(points, 2))
    assert found.cell is not None
    assert (found.cell.rank, found.cell.step, found.cell.signal) == (1, 20, "grad_norm_local")
    assert found.ties == []
    assert found.last_good_step == 19
    assert found.last_good_checkpoint == uid(10)
    assert found.first_bad_checkpoint == uid(30)
    assert found.later == ["step 20: reduced gradient norm abnormal on ranks 0, 1"]
    assert found.spread == [
        "step 20: the reduced gradient is abnormal on all 2 ranks that recorded it, while the gradients of rank 0 lie "
        "in their range before the reduction: it was on rank 1 before the reduction, and on all of them after it"
    ]


def test_non_finite_beats_out_of_range_at_the_same_place() -> None:
    """Rank 0 is high, rank 1 is NaN in the same step: rank 1 is first."""
    high = [*[1.0] * 19, 100.0]
    nan = [*[1.0] * 19, math.nan]
    found = first_bad(
        build(history().records),
        uid(1),
        cells([*stream(1, 0, "grad_norm", high), *stream(1, 1, "grad_norm", nan)]),
    )
    assert found.cell is not None
    assert (found.cell.rank, found.cell.abnormal) == (1, "non_finite")


def test_ties_are_all_named() -> None:
    """Two ranks at the same point of the same step: neither is picked as the culprit."""
    nan = [*[1.0] * 19, math.nan]
    found = first_bad(
        build(history().records), uid(1), cells([*stream(1, 0, "loss", nan), *stream(1, 1, "loss", nan)])
    )
    assert [t.rank for t in found.ties] == [1]


def test_a_rank_that_stopped_recording_is_a_gap() -> None:
    """What the ledger does not show is said."""
    points = [*stream(1, 0, "loss", [*[1.0] * 19, math.nan]), *stream(1, 1, "loss", [1.0] * 5)]
    found = first_bad(build(history().records), uid(1), cells(points), seen(points, 3))
    assert found.gaps == [
        "rank 2 left nothing in this ledger: no journal and no values",
        "rank 1 stopped recording after step 5, without a word of the end (killed, hanging, or the layer off)",
    ]


def test_a_healthy_segment_has_no_first_bad_cell() -> None:
    """None is an answer."""
    points = stream(1, 0, "loss", healthy(40))
    assert first_bad(build(history().records), uid(1), cells(points), seen(points, 1)).cell is None
