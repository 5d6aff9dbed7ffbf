"""The test of the mixture: its error rate is honoured, and it finds what it says that it finds."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from lineage.judge.mixture import FOLLOWED, MixTest

MIX = {"a": 0.5, "b": 0.3, "c": 0.1, "d": 0.07, "e": 0.03}
TWICE = {k: (0.2 if k == "c" else w * 0.8 / 0.9) for k, w in MIX.items()}


def found_after(
    rng: random.Random, weights: dict[str, float], most: int, *, healthy: int = 0, error: float
) -> int:
    """Samples after which a shift that follows `healthy` ones is found; 0 where it is not."""
    test, done = MixTest(MIX, error), 0
    while done < healthy + most:
        now = MIX if done < healthy else weights
        done += 16
        if test.add(Counter(rng.choices(list(now), list(now.values()), k=16))) >= -math.log(error):
            return done - healthy
    return 0


def test_false_findings_stay_within_the_stated_odds() -> None:
    """Looked at after each step: at odds of 5 % at most 5 % of 400 healthy runs, at 1 in 1,000 none of 200."""
    rng = random.Random(7)
    assert sum(bool(found_after(rng, MIX, 2000, error=0.05)) for _ in range(400)) <= 20
    assert sum(bool(found_after(rng, MIX, 3000, error=1e-3)) for _ in range(200)) == 0


def test_the_martingale_has_expectation_1() -> None:
    """Exactly, for all sequences of three samples of two domains: the bound rests on nothing else."""
    mix = {"a": 0.8, "b": 0.2}
    total = 0.0
    for bits in range(8):
        names = ["ab"[bits >> i & 1] for i in range(3)]
        test = MixTest(mix)
        value = [test.add({n: 1}) for n in names][-1]
        total += math.exp(value) * math.prod(mix[n] for n in names)
    assert total == pytest.approx(1.0)


def test_a_domain_of_a_tenth_that_doubles_is_found() -> None:
    """Within 1,000 samples from the start, within 1,500 after 20,000 healthy ones."""
    rng = random.Random(8)
    early = [found_after(rng, TWICE, 1000, error=1e-3) for _ in range(60)]
    late = [found_after(rng, TWICE, 1504, healthy=20_000, error=1e-3) for _ in range(12)]
    assert all(early)
    assert all(late)


def test_the_finding_says_both_shares() -> None:
    """With the domain that departs most, and the samples that it rests on."""
    test = MixTest({"web": 6, "code": 3, "math": 1})
    found = None
    for step in range(1, 400):
        found = test.look(step, {"web": 3, "code": 4, "math": 1})
        if found:
            break
    assert found is not None
    assert (found.code, found.severity, found.names[0]) == ("LIN-B005", "warning", "web")
    assert found.values["share of code"].value == pytest.approx(0.5)
    assert found.values["declared of code"].value == pytest.approx(0.3)
    assert found.values["samples"].value == 8 * found.values["step"].value


def test_learners_are_bounded_and_of_all_ages() -> None:
    """After a million samples as many are followed as at first, and the oldest is among them."""
    test = MixTest({"a": 0.5, "b": 0.5})
    for _ in range(1000):
        test.add({"a": 500, "b": 500})
    starts = [s.start for s in test._learners]
    assert len(starts) == FOLLOWED
    assert starts[0] == 0
    assert starts[-1] > 990_000
    assert any(100_000 < s < 900_000 for s in starts)


@pytest.mark.parametrize("mix", [{}, {"a": 0.0}, {"a": -1.0, "b": 2.0}, {"a": math.nan}, {"a": math.inf}])
def test_weights_that_are_no_mixture_are_refused(mix: dict[str, float]) -> None:
    """With the weights in the message."""
    with pytest.raises(ValueError, match="a mixture needs weights"):
        MixTest(mix)
