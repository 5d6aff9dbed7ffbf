"""Family of one step judged as a family."""

from __future__ import annotations

import json
import math
import random

import pytest

from lineage.judge.detect_family import LAYERS, Family


def steps(n: int, size: int, seed: int = 0) -> list[dict[str, float]]:
    """Norms of a family: levels and noise differ by layer, one factor is common to all."""
    r = random.Random(seed)
    levels = [r.uniform(-4.0, 1.0) for _ in range(size)]
    scales = [r.uniform(0.05, 0.3) for _ in range(size)]
    out = []
    for _ in range(n):
        common = r.gauss(0.0, 0.2)
        pairs = zip(levels, scales, strict=True)
        out.append({f"layer{i}": math.exp(a + common + r.gauss(0, s)) for i, (a, s) in enumerate(pairs)})
    return out


def warm(rows: list[dict[str, float]]) -> Family:
    """A detector that has seen the rows, and flagged none of them."""
    detector = Family()
    for i, row in enumerate(rows):
        assert detector.update(row) == [], i
    return detector


@pytest.mark.parametrize("size", [1, 10, 100, 400])
def test_more_layers_do_not_mean_more_false_alarms(size: int) -> None:
    """400 layers over 300 steps are 120,000 values, and none is flagged."""
    warm(steps(300, size))


def test_one_layer_at_ten_times_its_norm_is_named_where_the_global_norm_hides_it() -> None:
    """Among 300 layers; the quietest layer is the hardest to see in the whole."""
    rows = steps(101, 300)
    detector = warm(rows[:100])
    quiet = min(rows[100], key=lambda n: rows[100][n])
    row = {**rows[100], quiet: rows[99][quiet] * 10.0}
    assert math.hypot(*row.values()) == pytest.approx(math.hypot(*rows[100].values()), rel=0.001)
    (found,) = detector.update(row)
    assert found.by == "worst"
    assert found.members == (quiet,)
    assert found.of == 300
    assert found.baseline is not None
    assert found.threshold is not None
    assert found.baseline < found.threshold < found.value


def test_all_layers_at_ten_times_are_a_vote_and_no_single_layer() -> None:
    """A batch or a rate at fault moves all: no layer is singled out."""
    rows = steps(101, 40)
    detector = warm(rows[:100])
    (found,) = detector.update({n: 10.0 * v for n, v in rows[99].items()})
    assert found.by == "vote"
    assert len(found.members) >= 10


def test_non_finite_layers_are_named_and_the_others_still_judged() -> None:
    """One layer is NaN, one infinite, one too large."""
    rows = steps(101, 40)
    detector = warm(rows[:100])
    row = {**rows[100], "layer3": math.nan, "layer7": math.inf, "layer9": rows[99]["layer9"] * 50.0}
    broken, large = detector.update(row)
    assert (broken.by, broken.members) == ("non_finite", ("layer3", "layer7"))
    assert (large.by, large.members) == ("worst", ("layer9",))


def test_flagged_and_non_finite_values_never_enter_a_baseline() -> None:
    """After ten bad steps of a layer its eleventh is flagged as the first was."""
    rows = steps(120, 40)
    detector = warm(rows[:100])
    for i, bad in enumerate([10.0, math.nan, math.inf] * 5):
        (found, *_) = detector.update({**rows[100 + i], "layer5": bad * 10.0 * rows[50]["layer5"]})
        assert "layer5" in found.members, i


def test_a_layer_without_a_value_is_absent_and_not_zero() -> None:
    """An expert without tokens in a step is no outlier, nor is it one when it comes back."""
    rows = steps(200, 20)
    detector = Family()
    for i, row in enumerate(rows):
        present = {n: v for n, v in row.items() if n != "layer4" or i % 3 == 0}
        zeroed = {n: 0.0 if n == "layer6" and i % 5 == 0 else v for n, v in present.items()}
        assert detector.update(zeroed) == [], i


def test_a_layer_that_stays_at_a_new_level_is_taken_there_and_said_to_be() -> None:
    """After `patience` flagged steps."""
    rows = steps(300, 40)
    detector = warm(rows[:100])
    said = [f for row in rows[100:] for f in detector.update({**row, "layer2": 30.0 * row["layer2"]})]
    by = [f.by for f in said]
    assert by.count("worst") == LAYERS.patience
    assert by[-1] == "new_level"
    assert said[-1].members == ("layer2",)


def test_state_goes_through_json_and_later_verdicts_are_the_same() -> None:
    """Whole, and cut in the middle of an excursion."""
    rows = steps(140, 30)
    rows[115:125] = [{**row, "layer1": 40.0 * row["layer1"]} for row in rows[115:125]]
    whole = Family()
    said = [repr(whole.update(row)) for row in rows]
    assert any("worst" in s for s in said)
    first = Family()
    before = [repr(first.update(row)) for row in rows[:120]]
    second = Family(state=json.loads(json.dumps(first.state(), allow_nan=False)))
    assert before + [repr(second.update(row)) for row in rows[120:]] == said


def test_a_finding_carries_the_parameters_of_all_three_rules() -> None:
    """The layers' own, the worst layer's and the vote's."""
    detector = warm(steps(60, 10))
    (found,) = detector.update({"layer0": math.nan})
    assert found.detector["name"] == "layers/1"
    assert found.detector["worst.name"] == "worst-member/1"
    assert found.detector["vote.name"] == "member-vote/1"
    with pytest.raises(ValueError, match=r"'layers/0'.*'layers/1'"):
        Family(state={**detector.state(), "name": "layers/0"})
