"""The order of the families follows from classes of evidence, ties are said, and replays stand above all."""

from __future__ import annotations

import shlex

import pytest

from lineage.judge.suspects import Suspects, suspects

from .build import (
    STEP,
    batch,
    batches,
    boundary,
    cell,
    change,
    differs,
    effect,
    finding,
    known,
    near,
    outcome,
    parted,
    replay,
)
from .cases import NAN, RANKS, RESUMED


def order(found: Suspects) -> list[tuple[int, str]]:
    return [(s.place, s.family) for s in found.found]


def place(found: Suspects, family: str) -> int:
    return next(s.place for s in found.found if s.family == family)


def test_without_evidence_all_families_are_a_tie_and_the_answer_is_unknown() -> None:
    found = suspects(known(cell(signal="grad_norm"), world=2))
    assert {s.strongest for s in found.found} == {None}
    assert found.unknown
    assert found.answer.startswith("unknown")
    assert not found.first


def test_digests_stand_above_timing() -> None:
    found = suspects(
        known(
            **RESUMED,
            outcomes=[outcome("optimizer_state", "absent")],
            boundaries=[boundary(change("dropout", asked=True))],
        )
    )
    assert order(found)[:2] == [(1, "optimizer"), (2, "code")]


def test_timing_stands_above_where_it_shows() -> None:
    found = suspects(known(**RANKS, symptoms=["one_rank"], boundaries=[boundary(change("code"))]))
    assert order(found)[0] == (1, "code")
    assert {s.family for s in found.found if s.place == 2} >= {"data"}


def test_a_replay_that_flips_stands_above_digests() -> None:
    flips = replay(flips=True, effects=[effect("numerics", "raises", "precision")])
    found = suspects(
        known(
            cell(signal="loss", **NAN),
            batches=batches(batch(STEP, out_of_range=5.0), out_of_range=0.0),
            replays=[flips],
        )
    )
    assert order(found)[:2] == [(1, "numerics"), (2, "data")]
    assert found.first[0].replayed
    assert "confirms it yet" not in found.answer


def test_a_replay_with_several_changes_or_without_a_result_says_nothing() -> None:
    effects = [effect("numerics", "raises")]
    confounded = replay(confounded=True, flips=True, effects=effects)
    unclear = replay(result="inconclusive", effects=effects)
    assert suspects(known(cell(signal="grad_norm"), world=2, replays=[confounded, unclear])).unknown


@pytest.mark.parametrize("in_effect", ["no", "not_shown"])
def test_a_change_that_is_not_shown_to_be_in_effect_flips_nothing(in_effect: str) -> None:
    asked = [{"name": "fp32", "in_effect": in_effect, "text": "parameters stayed float16"}]
    found = suspects(
        known(replays=[replay(flips=True, changes=asked, effects=[effect("numerics", "raises")])])
    )
    assert [s.strongest for s in found.found if s.family == "numerics"] == ["replay"]


def test_a_clean_replay_on_one_device_lowers_data_and_acquits_nothing() -> None:
    clean = replay(
        changes=[{"name": "single-device", "in_effect": "yes", "text": "one device"}],
        effects=[
            effect("data", "lowers"),
            effect("distributed", "raises"),
            effect("numerics", "raises", "precision"),
            effect("hardware", "raises", "timing"),
        ],
    )
    bad_ids = batches(batch(STEP, out_of_range=5.0), out_of_range=0.0)
    found = suspects(known(**RANKS, batches=bad_ids, replays=[clean]))
    assert place(found, "data") == 1, "ids that are in no vocabulary stay what they are"
    without = suspects(known(**RANKS, symptoms=["one_rank"], replays=[clean]))
    assert place(without, "distributed") < place(without, "data")
    assert [s.strongest for s in without.found if s.family == "data"] == ["shape"]


def test_a_family_with_any_evidence_stands_above_all_without() -> None:
    low = replay(effects=[effect("data", "lowers")])
    found = suspects(known(**RANKS, symptoms=["one_rank"], replays=[low]))
    with_any = [s.place for s in found.found if s.strongest is not None]
    without = [s.place for s in found.found if s.strongest is None]
    assert max(with_any) < min(without)


def test_what_evidence_does_not_part_is_a_tie_that_names_what_is_missing() -> None:
    nothing_else = cell(signal="grad_norm_local", **NAN)
    found = suspects(known(nothing_else, **RANKS, symptoms=["one_rank"]))
    assert [s.family for s in found.first] == ["data", "hardware"]
    assert "do not part" in found.answer or "does not part" in found.answer
    assert all(s.missing for s in found.first)
    assert found.missing


def test_the_same_evidence_on_both_sides_ranks_below_evidence_on_one() -> None:
    both = known(
        **RESUMED,
        outcomes=[outcome("optimizer_state", "restored")],
        findings=[finding("LIN-C021")],
        batches=batches(batch(STEP, out_of_range=5.0), out_of_range=0.0),
    )
    assert order(suspects(both))[:2] == [(1, "data"), (2, "optimizer")]


def test_an_event_fits_hardware_and_is_never_more_than_timing() -> None:
    found = suspects(known(events=[near("ecc")]))
    assert order(found)[0] == (1, "hardware")
    assert found.first[0].strongest == "timing"


def test_copies_that_parted_speak_against_data_and_the_others_stand_by_their_digests() -> None:
    found = suspects(known(differs(), **RANKS, compared=parted("weight"), looked_at_elements=True))
    assert order(found)[0] == (1, "distributed")
    assert place(found, "data") > place(found, "hardware")


def test_each_next_check_that_is_a_replay_is_a_command_that_can_be_run() -> None:
    """One that names no place that is not there, and changes nothing or what `lineage replay` knows."""
    conditions = pytest.importorskip("lineage.replay.conditions")
    seen = set()
    for bundled in ((0, 1), (0,)):
        here = known(**RANKS, bundle="/a folder/b", bundled=bundled)
        for command in (s.next.command for s in suspects(here).found if s.next is not None):
            if command is None or "lineage replay" not in command:
                continue
            words = shlex.split(command)
            assert "/a folder/b" in words or "/a folder" in words, command
            changes = conditions.parse([words[words.index("--change") + 1]] if "--change" in words else [])
            seen |= {c.name for c in changes}
            assert bundled == (0, 1) or "other-rank-batch" not in command
    assert {"other-rank-batch", "fp32"} <= seen


def test_ranks_that_made_one_replay_together_give_one_line_with_all_records() -> None:
    clean = replay(changes=[], world_size=2, effects=[effect("hardware", "raises", "transient")])
    (line,) = [
        n
        for s in suspects(known(**RANKS, replays=[clean, ("replay-2", clean[1])])).found
        for n in s.lines
        if n.evidence == "replay"
    ]
    assert line.records == ("replay-1", "replay-2")


def test_no_change_is_asked_for_where_the_step_does_not_show_it_without() -> None:
    clean = replay(changes=[])
    here = known(**RANKS, bundle="b", bundled=(0, 1), replays=[clean])
    commands = [s.next.command or "" for s in suspects(here).found if s.next is not None]
    assert not any("--change" in c for c in commands)
    shown = known(**RANKS, bundle="b", bundled=(0, 1), replays=[replay(changes=[], result="reproduced")])
    assert any("--change" in (s.next.command or "") for s in suspects(shown).found if s.next is not None)
