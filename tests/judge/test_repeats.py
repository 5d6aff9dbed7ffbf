"""Samples that are read more than once: found once, with bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from lineage.judge.repeats import QUIET, Repeats


@dataclass
class Some:
    keys: list[int]
    ids: list[str] | None = None
    tokens: list[int] | None = None
    name_of: dict[int, str] = field(default_factory=dict)

    def name(self, i: int) -> str:
        return self.ids[i] if self.ids else str(self.keys[i])


def test_duplicates_within_a_step_are_found_over_its_micro_batches() -> None:
    """With the samples, how many there are too many, and of how many."""
    (found,) = Repeats().look(3, [Some([1, 2, 1]), Some([4, 2, 2])], None)
    assert (found.code, found.severity, found.names, found.count) == ("LIN-B001", "warning", ["1", "2"], 2)
    assert {k: v.value for k, v in found.values.items()} == {
        "step": 3,
        "samples": 6,
        "surplus": 3,
        "most_often": 3,
    }


def test_a_repeat_is_told_with_both_steps_and_again_only_after_a_quiet_while() -> None:
    """Once while it goes on."""
    r = Repeats()
    assert r.look(1, [Some([10, 11])], None) == []
    assert r.look(2, [Some([12, 13])], None) == []
    (found,) = r.look(3, [Some([10, 14])], None)
    assert (found.code, found.severity, found.names) == ("LIN-B002", "warning", ["10"])
    assert (found.values["step"].value, found.values["last_step"].value) == (3, 1)
    assert r.look(4, [Some([11])], None) == []
    later = 4 + QUIET + 1
    assert len(r.look(later, [Some([12])], None)) == 1


def test_a_few_among_many_are_a_note() -> None:
    """Sampling with replacement makes them: one of 20 twice in a step, one of 20 read before."""
    r = Repeats()
    (twice,) = r.look(1, [Some([*range(19), 3])], None)
    (again,) = r.look(2, [Some([5, *range(100, 119)])], None)
    assert (twice.code, twice.severity) == ("LIN-B001", "note")
    assert (again.code, again.severity) == ("LIN-B002", "note")


def test_an_id_counts_as_much_as_the_content() -> None:
    """Masked at random, a sample has other content and the same id."""
    r = Repeats()
    assert r.look(1, [Some([1, 2], ["a", "b"])], None) == []
    assert r.look(2, [Some([3], ["a"])], None)[0].names == ["a"]
    assert Repeats().look(1, [Some([5, 5], ["c", "d"])], None)[0].names == ["d"]


def test_a_new_pass_over_the_data_is_a_note() -> None:
    """And a repeat within one pass is a warning."""
    r = Repeats()
    r.look(1, [Some([1])], 0)
    assert r.look(2, [Some([1])], 1)[0].severity == "note"
    r = Repeats()
    r.look(1, [Some([1])], 0)
    assert r.look(2, [Some([1])], 0)[0].severity == "warning"


def test_after_a_resume_a_pass_that_either_count_shows_to_have_ended_is_a_note() -> None:
    """The loader began again, or went on where it was: which, is not known. A repeat that neither explains is none."""
    r = Repeats()
    r.look(11, [Some([1])], (0, 2))
    assert r.look(12, [Some([1])], (0, 3))[0].severity == "note"
    r = Repeats()
    r.look(11, [Some([1, 2])], (0, 2))
    r.look(12, [Some([3])], (0, 2))
    assert r.look(13, [Some([1, 3])], (0, 3))[0].severity == "note"
    r = Repeats()
    r.look(11, [Some([1])], (0, 2))
    assert r.look(12, [Some([1])], (0, 2))[0].severity == "warning"


def test_going_back_is_no_repeat_and_short_samples_are_not_compared() -> None:
    """A loop that rewinds reads again on purpose; sequences of a few tokens are alike by chance."""
    r = Repeats()
    r.look(5, [Some([1])], None)
    assert r.look(3, [Some([1])], None) == []
    assert Repeats().look(1, [Some([1, 1], tokens=[7, 7])], None) == []
    assert len(Repeats().look(1, [Some([1, 1], tokens=[8, 8])], None)) == 1


def test_memory_is_bounded_and_what_left_it_is_not_found() -> None:
    """The oldest samples go first; one that came again counts from its last time."""
    r = Repeats(kept=4)
    r.look(1, [Some([1, 2])], None)
    r.look(2, [Some([3, 1])], None)  # 1 again, told
    r.look(3, [Some([4, 5])], None)  # the ring holds 3 1 4 5
    assert len(r._ring) == 4
    assert set(r._seen) == {3, 1, 4, 5}
    for step in range(4, 400):
        r.look(step, [Some([step * 10, step * 10 + 1])], None)
    assert len(r._seen) == 4
    assert r.look(500, [Some([1, 2])], None) == []
