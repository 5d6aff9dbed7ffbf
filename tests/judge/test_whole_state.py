"""Adding up what ranks hold: a digest where all is there, and else the reason why there is none."""

from __future__ import annotations

from dataclasses import replace

from lineage import digest_text
from lineage.judge import resharded
from lineage.judge.whole_state import Part, add_up


def halves(name: str = "w", kind: str = "weight", low: int = 5) -> list[Part]:
    """A tensor of 8 elements on two ranks."""
    return [
        Part(0, kind, name, "S(0) 1 of 2", (low, 2**63 - 1), "float32[8]", 4),
        Part(1, kind, name, "S(0) 2 of 2", (7, 3), "float32[8]", 4),
    ]


def whole(rank: int = 0, name: str = "w", lanes: tuple[int, int] = (12, 2**63 + 2 - 2**64)) -> Part:
    return Part(rank, "weight", name, "whole", lanes, "float32[8]", 8)


def test_parts_add_up_modulo_2_64_to_what_one_rank_has_whole() -> None:
    two, one = add_up(halves(), 2), add_up([whole()], 1)
    assert two.tensors == one.tensors
    assert two.roots == {"weights": digest_text.root({"w": two.tensors["weight", "w"].digest or ""})}
    assert (two.ranks, two.missing) == ((0, 1), ())


def test_equal_replicas_count_once_and_differing_ones_are_named() -> None:
    assert add_up([whole(r) for r in range(4)]).tensors == add_up([whole()]).tensors
    found = add_up([whole(0), whole(1), whole(2, lanes=(9, 9))]).tensors["weight", "w"]
    assert found.digest is None
    assert found.why == "ranks 0-1 and rank 2 hold different values of the same part (whole)"


def test_a_rank_that_wrote_nothing_down_is_named() -> None:
    found = add_up(halves()[:1], 2)
    assert found.missing == (1,)
    assert found.tensors["weight", "w"].why == "4 of its 8 elements are on record: rank 1 wrote nothing down"
    assert found.roots == {"weights": None}


def test_parts_that_overlap_or_are_of_different_tensors_are_not_added() -> None:
    assert "overlap" in (add_up([*halves(), whole(2)]).tensors["weight", "w"].why or "")
    other = replace(halves()[1], whole="bfloat16[8]")
    assert "different kinds" in (add_up([halves()[0], other]).tensors["weight", "w"].why or "")
    unplaced = replace(whole(), whole=None)
    assert "not known" in (add_up([unplaced]).tensors["weight", "w"].why or "")


def test_a_scalar_and_an_empty_shape_have_their_number_of_elements() -> None:
    scalar = Part(0, "buffer", "n", "whole", (1, 1), "int64[]", 1)
    assert add_up([scalar]).tensors["buffer", "n"].digest is not None


def test_two_states_are_compared_tensor_by_tensor() -> None:
    saved = add_up([*halves(), *halves("m", "moment1"), *halves("gone")], 2)
    live = add_up([whole(), *halves("m", "moment1", low=6), whole(name="extra")], 1)
    found = resharded.compare(saved, live)
    assert found.status == "differs"
    assert found.components["optimizer_state"].differing == ["m.moment1"]
    weights = found.components["weights"]
    assert (weights.status, weights.equal, weights.absent, weights.new) == ("absent", 1, ["gone"], ["extra"])
    assert found.lines()[0] == "saved on 2 ranks, resumed on 2 ranks: not equal"


def test_what_cannot_be_compared_is_never_called_restored() -> None:
    found = resharded.compare(add_up(halves()[:1], 2), add_up([whole()], 1))
    assert found.status == "not_recorded"
    assert found.lines()[0].endswith("cannot be told")
    assert "at the save: rank 1 wrote nothing down" in found.lines()
    assert resharded.compare(add_up([], 2), add_up([whole()], 1)).status == "not_recorded"
    assert resharded.compare(add_up([]), add_up([])).status == "not_recorded"
