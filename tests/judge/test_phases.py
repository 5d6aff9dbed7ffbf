"""The phase table: where it is cut, what its cells hold, and what it says where nothing is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import schemas
from lineage.judge import phases as ph
from lineage.judge.graph import build
from lineage.judge.phase_amounts import Amounts, amount
from lineage.judge.phases import Measured, Phase

from .builders import History, config, effective, uid
from .test_pairs import changed, unchanged


def regime(index: int, from_step: int, because: tuple[str, ...] = (), **values: Any) -> schemas.Regime:
    held = {"learning_rate": 1e-3, "grad_clip": 1.0, "data_mix": "web", "precision": "bfloat16", **values}
    return schemas.Regime(
        id=f"sha256:{index:02d}",
        index=index,
        from_step=from_step,
        values={k: schemas.Scalar.of(v) for k, v in held.items()},
        because=list(because),
    )


def table(h: History, measured: Measured | None = None) -> list[Phase]:
    return ph.phases(h.records, build(h.records), measured)


def steps(found: list[Phase]) -> list[tuple[str, tuple[int, ...], bool]]:
    return [(p.steps, p.segments, p.abandoned) for p in found]


def recovered() -> History:
    """Segment 1 to step 30, left after 20; 2 a faithful resume; 3 from 30 with another clip, changed again at 41."""
    h = History()
    h.segment(1, steps=30)
    h.add(regime(0, 1), 1, step=1)
    h.checkpoint(20, 1, 20, tokens=2_000)
    h.segment(2, parent=20, at=20)
    h.drift(2, unchanged(21))
    h.add(regime(0, 21), 2, step=21)
    h.checkpoint(30, 2, 30, [20], tokens=3_000)
    h.segment(3, parent=30, at=30, steps=20)
    h.drift(3, changed(31, parent=30, grad_clip=0.3))
    h.add(regime(1, 31, ("clip 1 -> 0.3",), grad_clip=0.3), 3, step=31)
    h.drift(3, changed(41, moment="in_run", learning_rate=1e-4))
    h.add(regime(2, 41, ("rate",), grad_clip=0.3, learning_rate=1e-4), 3, step=41)
    return h


def test_a_phase_lasts_from_one_change_of_regime_to_the_next_across_restarts_that_change_none() -> None:
    """The faithful resume is a restart within the first phase; its abandoned tail follows it."""
    found = table(recovered())
    assert steps(found) == [
        ("1 to 30", (1, 2), False),
        ("21 to 30", (1,), True),
        ("31 to 40", (3,), False),
        ("41 to 50", (3,), False),
    ]
    assert [p.restarts for p in found] == [1, 0, 0, 0]
    assert [p.regime for p in found] == [0, 0, 1, 2]
    assert found[2].start == f"step 30 of segment 2 ({uid(30)[-8:]})"
    assert found[2].start_checkpoint == uid(30)
    assert found[3].start == "went on without a restart after step 40"
    assert "gradient clipping 1 -> 0.3" in found[2].because[0]


def test_every_step_of_every_segment_lies_in_one_phase() -> None:
    """No step is told twice, and none is left out."""
    seen: dict[tuple[str, int], int] = {}
    for p in table(recovered()):
        for piece in p.pieces:
            assert piece.last is not None
            for s in range(piece.first, piece.last + 1):
                seen[piece.segment, s] = seen.get((piece.segment, s), 0) + 1
    assert set(seen.values()) == {1}
    assert {s for uid_, s in seen if uid_ == uid(1)} == set(range(1, 31))
    assert {s for uid_, s in seen if uid_ == uid(3)} == set(range(31, 51))


def test_cells_hold_what_was_in_effect() -> None:
    """Of the regime that held in the phase."""
    first, _, third, fourth = table(recovered())
    assert first.clip is not None
    assert (first.clip.text, first.clip.how) == ("1", "effective")
    assert third.clip is not None
    assert third.clip.text == "0.3"
    assert fourth.learning_rate is not None
    assert fourth.learning_rate.text == "0.0001; schedule LambdaLR(a)"
    assert first.precision is not None
    assert first.precision.text == "bfloat16"
    assert first.hardware is not None
    assert first.hardware.text == "1 rank, 1 node, CPU"
    assert first.tokens == "3,000 tokens at step 30"


def test_the_learning_rate_is_the_range_of_the_series_else_what_the_schedule_predicts() -> None:
    """A measured rate stands above a predicted one, and that above a peak."""
    h = recovered()
    ahead = effective("after_load").model_copy(update={"lr_ahead": {s: [s * 1e-4] for s in range(31, 51)}})
    h.add(ahead, 3, step=30)
    rates: Mapping[str, Mapping[int, float]] = {uid(1): {s: s * 1e-5 for s in range(1, 31)}}
    first, tail, third, _ = table(h, Measured(rates=rates))
    assert first.learning_rate is not None
    assert (first.learning_rate.text, first.learning_rate.how) == ("1e-05 to 0.0002", "measured")
    assert tail.learning_rate is not None
    assert tail.learning_rate.text == "0.00021 to 0.0003"
    assert third.learning_rate is not None
    assert (third.learning_rate.text, third.learning_rate.how) == ("0.0031 to 0.004", "predicted")


def test_consumed_is_counted_from_the_start_of_the_run_where_that_is_known() -> None:
    """From the parent checkpoint on; of some ranks only, it says so."""
    h = recovered()
    counted = {
        uid(n): Amounts(dict.fromkeys(range(a, b), 4), dict.fromkeys(range(a, b), 100), 1)
        for n, a, b in ((1, 1, 31), (2, 21, 31), (3, 31, 51))
    }
    found = table(h, Measured(amounts=counted))
    assert [p.tokens for p in found] == [
        "0 to 3,000 tokens",
        "2,000 to 3,000 tokens",
        "3,000 to 4,000 tokens",
        "4,000 to 5,000 tokens",
    ]
    assert [p.samples for p in found][:1] == ["0 to 120 samples"]
    two_ranks = h.records[0].payload.model_copy(update={"world_size": 2})
    object.__setattr__(h.records[0], "payload", two_ranks)
    assert table(h, Measured(amounts=counted))[1].tokens == "1,000 tokens in this phase (of 1 of 2 ranks)"


def test_a_mitigation_is_shown_from_the_step_to_the_step_that_evidence_gives() -> None:
    """In effect in its phase and the next, gone after it ended; without evidence it says so."""
    h = recovered()
    for n, (concept, shown) in enumerate((("grad_clip", "yes"), ("weight_decay", "no"))):
        m = schemas.Mitigation(
            uid=uid(900 + n), concept=concept, after=schemas.Scalar.of(0.3), why="spikes", who="ann"
        )
        h.add(m, 3, step=30)
        h.add(
            schemas.MitigationEffect(
                mitigation=m.uid,
                in_effect=shown,
                from_step=31 if shown == "yes" else None,
                to_step=45 if shown == "yes" else None,
                text="",
            ),
            3,
            step=31,
        )
    first, _, third, fourth = table(h)
    assert first.mitigations == ()
    for p in (third, fourth):
        told = {m.concept: (m.in_effect, m.first, m.last, m.who) for m in p.mitigations}
        assert told == {"grad_clip": ("yes", 31, 45, "ann"), "weight_decay": ("no", 30, None, "ann")}


def test_a_mitigation_that_a_resume_carries_on_is_one_and_one_that_ended_is_no_longer_shown() -> None:
    """Each segment has its own record of the effect; a corrected record counts no more."""
    h = recovered()
    m = schemas.Mitigation(uid=uid(900), concept="eps", after=schemas.Scalar.of(1e-6), why="spikes")
    h.add(m, 1, step=3)
    effect = schemas.MitigationEffect(mitigation=m.uid, in_effect="yes", from_step=4, text="")
    opened = h.add(effect, 1, step=4)
    closed = h.add(effect.model_copy(update={"to_step": 20}), 1, step=20)
    object.__setattr__(closed, "supersedes", opened.id)
    h.add(effect.model_copy(update={"to_step": 30}), 2, step=30)
    first, tail, third, _ = table(h)
    assert [(x.first, x.last) for x in first.mitigations] == [(4, 30)]
    assert tail.mitigations == ()  # up to step 20 it is shown there
    assert third.mitigations == ()


def imported() -> History:
    """A logbook: no live value, no end, and an entry whose step nobody wrote down."""
    h = History()

    def segment(n: int, parent: int | None = None, at: int | None = None) -> None:
        h.add(
            schemas.Segment(
                uid=uid(n),
                start="resume" if parent else "fresh",
                parent_checkpoint=uid(parent) if parent else None,
                parent_step=at,
                place=schemas.Place(node=schemas.IMPORTED, pid=0),
            ),
            n,
            step=at,
        )

    def change(
        n: int, step: int, index: int, concept: str, before: Any, after: Any, date: str | None = None
    ) -> None:
        entry = h.add(
            schemas.Reported(
                uid=uid(700 + index),
                order=index,
                date=date,
                placed_by="neighbours" if date else "step",
                placed_at=step,
                concept=concept,
                source=schemas.Source(name="log", authority="person"),
            ),
            n,
            step=step,
        )
        c = schemas.Change(
            concept=concept,
            **{"class": "R"},
            title=concept,
            requested_before=None if before is None else schemas.Scalar.of(before),
            requested_after=schemas.Scalar.of(after),
            text=f"{concept} {before} -> {after}",
            evidence=[entry.id],
        )
        bound = f"dated {date}" if date else None
        found = schemas.Drift(
            moment="reported", from_step=step, lower_bound=bound, changes=[c], confounded=False
        )
        h.add(found, n, step=step)
        values = {concept: schemas.Scalar.of(after)}
        opened = schemas.Regime(
            id=f"sha256:{index:02d}", index=index, from_step=step, lower_bound=bound, values=values
        )
        h.add(opened, n, step=step)

    segment(1)
    h.add(config(seq_len=2048), 1)
    change(1, 500, 1, "grad_clip", 1.0, 0.5, date="2022-03-24")
    h.checkpoint(10, 1, 1000)
    segment(2, parent=10, at=1000)
    change(2, 1001, 2, "global_batch", 1024, 2048)
    change(2, 4000, 3, "grad_clip", 0.5, 0.2)
    return h


def test_a_logbook_of_which_half_is_missing_still_gives_a_table() -> None:
    """Values are as reported, a value before its first change is what that change says, and the end is open."""
    found = table(imported())
    assert [p.steps for p in found] == ["1 to 499", "500 to 1,000", "1,001 to 3,999", "4,000 on"]
    assert [p.unplaced for p in found] == [None, "dated 2022-03-24", None, None]
    clips = [(p.clip.text, p.clip.how, p.clip.at) for p in found if p.clip]
    assert clips == [
        ("1", "before", 500),
        ("1, then 0.5 (2022-03-24); step not stated", "reported", None),
        ("0.5", "reported", None),
        ("0.2", "reported", None),
    ]
    batches = [(p.batch.text, p.batch.how) for p in found if p.batch]
    assert batches == [("1,024", "before"), ("1,024", "before"), ("2,048", "reported"), ("2,048", "reported")]
    assert all(p.reported for p in found)
    assert [p.samples for p in found] == [
        "about 510,976 samples (steps x batch)",
        "about 513,024 samples (steps x batch)",
        "about 6,141,952 samples (steps x batch)",
        None,
    ]
    assert found[2].tokens == "about 12.58B tokens (steps x batch x length)"
    assert [p.precision for p in found] == [None] * 4
    assert found[0].learning_rate is None
    assert found[0].hardware is None


def test_a_value_that_a_source_gives_for_several_concepts_is_not_taken_for_one_of_them() -> None:
    """`wd .1, beta2 .95` is no learning rate."""
    h = imported()
    entry = h.add(
        schemas.Reported(
            uid=uid(750),
            order=9,
            step=5000,
            placed_at=5000,
            placed_by="step",
            concept="weight_decay+learning_rate",
            source=schemas.Source(name="log", authority="person"),
        ),
        2,
        step=5000,
    )
    changes = [
        schemas.Change(
            concept=c,
            **{"class": "R"},
            title=c,
            requested_after=schemas.Scalar.of("wd .1, beta2 .95"),
            text=c,
            evidence=[entry.id],
        )
        for c in ("weight_decay", "learning_rate")
    ]
    h.add(schemas.Drift(moment="reported", from_step=5000, changes=changes, confounded=True), 2, step=5000)
    last = table(h)[-1]
    assert last.learning_rate is not None
    assert last.learning_rate.text == "told with others: wd .1, beta2 .95"


def test_attempts_before_the_run_that_survived_stand_before_it() -> None:
    """Two fresh starts: the first was given up."""
    h = History()
    h.segment(1, steps=5)
    h.segment(2, steps=9)
    assert steps(table(h)) == [("1 to 5", (1,), True), ("1 to 9", (2,), False)]


def test_nothing_on_record_is_no_phase() -> None:
    """An empty ledger, and a segment that made no step."""
    h = History()
    assert table(h) == []
    h.add(schemas.Segment(uid=uid(1), place=schemas.Place(node="n-1", pid=1)), 1, step=0)
    assert table(h) == []


def test_amounts_are_exact_while_they_are_small() -> None:
    """From ten million on, four digits and a unit."""
    assert [amount(n) for n in (0, 9_999_999, 12_345_678, 2.1e12)] == ["0", "9,999,999", "12.35M", "2.1T"]
