"""The repaired run against the pre-incident one: inside its own history's bands, or not, or not to be told."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from benchmarks import curves
from lineage.judge import trajectory
from lineage.judge.trajectory import Curve, Given

public = pytest.mark.skipif(not curves.FILES.is_dir(), reason=f"no training curves in {curves.FILES}")
START = 4_000


def loss(step: int, seed: int) -> float:
    """A falling, noisy loss."""
    return 2.0 + 8.0 * step**-0.3 + random.Random(seed * 1_000_003 + step).gauss(0.0, 0.02)


def given(
    after: Callable[[int], float],
    steps: int = 600,
    *,
    signal: str = "loss",
    start: int = START,
    broke: int = 50,
) -> Given:
    """A run that broke some steps after its restart point, and what came after it was repaired."""
    before = {s: loss(s, 1) for s in range(1, start + broke)}
    again = {s: after(s) for s in range(start + 1, start + steps + 1)}
    return Given([Curve(signal, before)], [Curve(signal, again)], start, start + broke - 1)


def positions(g: Given) -> dict[int, str]:
    return {h.steps: h.position for h in trajectory.horizons(g)}


def test_a_run_that_goes_on_as_before_is_inside_at_every_horizon() -> None:
    assert positions(given(lambda s: loss(s, 2))) == {
        1: "inside",
        5: "inside",
        20: "inside",
        100: "inside",
        500: "inside",
        2_000: "not_reached",
    }


@pytest.mark.parametrize(("by", "position"), [(0.15, "above"), (-0.15, "below")])
def test_a_run_that_is_off_by_a_few_percent_is_seen_once_the_noise_is_averaged_out(
    by: float, position: str
) -> None:
    """0.15 of 2.67: within the noise of one step, outside from twenty steps on."""
    found = positions(given(lambda s: loss(s, 2) + by))
    assert found[20] == found[100] == found[500] == position


def test_a_run_that_drifts_away_slowly_is_seen_at_the_far_horizons_only() -> None:
    """What a look at the first steps after a resume cannot see."""
    found = positions(given(lambda s: loss(s, 2) + 0.0006 * (s - START)))
    assert found[1] == found[5] == "inside"
    assert found[500] == "above"


def test_a_value_that_is_not_finite_is_never_inside() -> None:
    found = positions(given(lambda s: math.nan if s == START + 95 else loss(s, 2)))
    assert (found[20], found[100]) == ("inside", "non_finite")


def test_a_history_that_is_too_short_gives_no_band_and_says_what_it_needs() -> None:
    g = given(lambda s: loss(s, 2), start=60, broke=5)
    (far,) = [h for h in trajectory.horizons(g) if h.steps == 20]
    assert (far.position, far.low) == ("not_shown", None)
    assert "a band needs 4 moves over 20 steps in its newer half" in far.text


def test_steps_that_are_not_on_record_leave_it_open() -> None:
    g = given(lambda s: loss(s, 2))
    holes = {s: v for s, v in g.after[0].values.items() if not START + 81 <= s <= START + 99}
    found = positions(Given(g.before, [Curve("loss", holes)], g.from_step, g.last_healthy))
    assert (found[20], found[100], found[500]) == ("inside", "not_shown", "inside")


def test_norms_move_in_the_log_domain_so_that_no_band_goes_below_zero() -> None:
    rng = random.Random(3)
    norm = {s: math.exp(rng.gauss(-3.0, 1.0)) for s in range(1, START + 700)}
    before = Curve("grad_norm", {s: v for s, v in norm.items() if s < START + 50})
    after = Curve("grad_norm", {s: v for s, v in norm.items() if s > START})
    for h in trajectory.horizons(Given([before], [after], START, START + 49)):
        assert h.low is None or h.low > 0


def test_steps_that_were_made_twice_are_compared_bit_by_bit() -> None:
    (same,) = trajectory.same_steps(given(lambda s: loss(s, 1)))
    assert (same.steps, same.equal, same.first, same.last) == (49, 49, START + 1, START + 49)
    (other,) = trajectory.same_steps(given(lambda s: loss(s, 1) + (s == START + 7)))
    assert (other.equal, other.largest) == (48, pytest.approx(1.0))


def test_the_summary_names_what_is_outside_and_never_more_than_was_seen() -> None:
    inside = trajectory.summary(trajectory.horizons(given(lambda s: loss(s, 2))))
    assert inside == "as before at all 5 horizons that were reached, up to 500 steps after the restart"
    found = trajectory.horizons(given(lambda s: loss(s, 2)))
    found = [h for h in found if h.position == "inside"]
    unknown = found[-1].model_copy(update={"position": "not_shown", "low": None, "high": None})
    assert trajectory.summary([*found[:-1], unknown]) == (
        "as before at 4 horizons, up to 100 steps after the restart; not shown at 1 that were reached, up to 500 "
        "steps: its own history has no band for them"
    )
    out = trajectory.summary(trajectory.horizons(given(lambda s: loss(s, 2) + 0.3, 30)))
    assert out.startswith("NOT as before at ")
    assert trajectory.summary([]).startswith("nothing can be said yet")


@public
def test_healthy_public_curves_lie_inside_nine_times_of_ten_at_every_horizon() -> None:
    """Cut at random places as if they had broken there, of eight curves: 4 to 8 % outside, as the pages say."""
    counts: dict[int, list[int]] = {}
    for curve in curves.curves().values():
        values = {n + 1: v for n, v in enumerate(curve.values)}
        if len(values) < 400:
            continue
        rng, sick = random.Random(1), curve.within(("spikes", "minor", "disputed"))
        for _ in range(60):
            at = rng.randint(100, len(values) - 50)
            old = Curve(curve.signal, {s: v for s, v in values.items() if s <= at})
            new = Curve(curve.signal, {s: v for s, v in values.items() if s > at})
            for h in trajectory.horizons(Given([old], [new], at, at), (1, 5, 20, 100, 500)):
                healthy = not any(i in sick for i in range(at - 21, at + h.steps))
                if healthy and h.position in ("inside", "above", "below"):
                    counts.setdefault(h.steps, []).append(h.position != "inside")
    shares = {steps: sum(found) / len(found) for steps, found in counts.items()}
    assert set(shares) == {1, 5, 20, 100, 500}
    assert all(len(found) > 90 for found in counts.values())
    assert all(0.02 < share < 0.1 for share in shares.values()), shares
