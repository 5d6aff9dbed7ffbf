"""Incidents: what broke and was never opened, has no owner, or was ended without a word about the cause."""

from __future__ import annotations

from collections.abc import Iterable

from .audited import Audited
from .rules import Told, rule


@rule(
    "LIN-U030",
    "nobody-opened-one",
    "note",
    "lineage incident open {run} --title '...' says who looks after it, and what is known",
)
def nobody_opened_one(a: Audited) -> Iterable[Told]:
    """A segment broke, and no incident of it is on record."""
    opened = {life.segment for life in a.lives}
    for segment, bad in a.bads.items():
        if segment not in opened and bad.cell is not None and not a.imported(segment):
            yield Told(
                f"segment {a.number(segment)} broke at step {bad.cell.step:,} ({bad.cell.text}), and no "
                "incident of it is "
                "on record",
                tuple(r.id for r in a.of("alarm", segment)[:1] or a.of("segment", segment)[:1]),
                a.number(segment),
                bad.cell.step,
            )


@rule(
    "LIN-U031",
    "nobody-owns-it",
    "note",
    "lineage incident note {run} --owner NAME",
)
def nobody_owns_it(a: Audited) -> Iterable[Told]:
    """An incident of which nobody is named as the owner."""
    for life in a.lives:
        if life.latest.owner is None:
            yield Told(
                f"the incident {life.latest.title!r}, opened {life.opened:%Y-%m-%d %H:%M} UTC, has no owner",
                tuple(life.records[:1]),
                a.number(life.segment),
            )


@rule(
    "LIN-U032",
    "cause-left-open",
    "note",
    "write down that the cause is not known, and what would tell: lineage suspects {run}",
)
def cause_left_open(a: Audited) -> Iterable[Told]:
    """An incident was closed, no cause is on record, and nobody said that it is not known."""
    for life in a.lives:
        closed = life.reached("closed")
        if closed is None or life.causes or life.reached("diagnosed") is not None:
            continue
        said = " ".join(n.text for n in life.notes).lower()
        if "cause" in said or "unknown" in said or "not known" in said:
            continue
        yield Told(
            f"the incident {life.latest.title!r} was closed at {closed.at:%Y-%m-%d %H:%M} UTC without a "
            "cause, and without "
            "a word that it is not known",
            (closed.record,),
            a.number(life.segment),
        )


@rule(
    "LIN-U033",
    "rewound-without-a-word",
    "warning",
    "say why: lineage incident note {run} --text '...'",
)
def rewound_without_a_word(a: Audited) -> Iterable[Told]:
    """The run was rewound: steps were given up, and no incident, recovery or mitigation says why."""
    for segment, info in a.graph.segments.items():
        if info.start != "rewind" or a.imported(segment):
            continue
        began = a.began.get(segment)
        earlier = [life for life in a.lives if began is None or life.opened <= began]
        decided = [r for r in a.of("recovery") if began is None or r.at <= began]
        declared = a.of("mitigation", segment)
        if earlier or decided or declared:
            continue
        yield Told(
            f"segment {a.number(segment)} went back to step {info.parent_step or 0:,}, and nothing on "
            "record says why",
            tuple(r.id for r in a.of("segment", segment)[:1]),
            a.number(segment),
            info.parent_step,
        )
