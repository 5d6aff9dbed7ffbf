"""Whether the record itself can be trusted: damage, anchors, what the layer lost, ranks that are silent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from .. import rank_sets
from .audited import Audited
from .rules import Told, rule

MOST = 8
"""Damaged places that are named."""


@rule(
    "LIN-U040",
    "damaged",
    "fault",
    "lineage verify {run} names file and line; restore them from a copy, or `lineage pull` what the tracker has",
)
def damaged(a: Audited) -> Iterable[Told]:
    """The ledger is damaged: something was changed, cut or removed after it was written, or cannot be read."""
    for text in a.damage[:MOST]:
        yield Told(text)
    if len(a.damage) > MOST:
        yield Told(f"and {len(a.damage) - MOST:,} further damaged places")


@rule(
    "LIN-U041",
    "no-anchor",
    "note",
    "give the tracker's run to lineage.attach, or send what is there: lineage sync {run}",
)
def no_anchor(a: Audited) -> Iterable[Told]:
    """No root of the ledger stands outside of its folder, so a tail that was cut off cannot be seen."""
    if not a.live:
        return
    if not a.sealed:
        yield Told(
            "the ledger was never sealed: up to its last line, what was there can be known from the chains alone"
        )
    elif not a.anchors:
        yield Told(
            f"none of the {a.sealed:,} roots of this ledger is anchored outside of its folder: a tail that "
            "was cut off, "
            "or a ledger that was written anew, would not be seen"
        )


@rule(
    "LIN-U042",
    "records-lost",
    "warning",
    "look at the reason; what is lost cannot be had again, and what rests on it is not shown",
)
def records_lost(a: Audited) -> Iterable[Told]:
    """A part of the layer failed while training went on, and something is no longer recorded."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    where: dict[tuple[str, str], tuple[int, int | None]] = {}
    for r in a.of("degraded"):
        key = (r.payload.part, r.payload.consequence)
        found[key].append(r.id)
        where.setdefault(key, (a.number(r.segment), r.step))
    for (part, consequence), ids in found.items():
        number, step = where[part, consequence]
        times = f" ({len(ids):,} times)" if len(ids) > 1 else ""
        yield Told(f"{part} failed{times}: {consequence}", tuple(ids[:4]), number, step)


@rule(
    "LIN-U043",
    "silent-ranks",
    "warning",
    "put the ledger on storage that all ranks share, or copy the folders of all machines together",
)
def silent_ranks(a: Audited) -> Iterable[Told]:
    """Ranks of a segment left nothing in this ledger."""
    for segment in a.live:
        world = a.graph.segments[segment].world_size
        there = {r.rank for r in a.of("segment", segment)} | {*a.signals.get(segment, {})}
        absent = sorted({*range(world)} - there)
        if absent:
            yield Told(
                f"{rank_sets.words(absent)} of segment {a.number(segment)} ({world:,} ranks) left nothing "
                "in this ledger",
                tuple(r.id for r in a.of("segment", segment)[:1]),
                a.number(segment),
            )


@rule(
    "LIN-U044",
    "gaps",
    "note",
    "the lines name what would have recorded it",
)
def gaps(a: Audited) -> Iterable[Told]:
    """Something was attached too late, or went unseen, as the segments say themselves."""
    said: dict[str, list[str]] = defaultdict(list)
    for r in a.of("coverage"):
        for text in r.payload.gaps:
            said[text].append(r.id)
    for text, ids in list(said.items())[:MOST]:
        yield Told(text, tuple(ids[:4]))
    if len(said) > MOST:
        yield Told(f"and {len(said) - MOST:,} further gaps")


@rule(
    "LIN-U045",
    "no-end",
    "note",
    "see whether the process was killed, and what its log says",
)
def no_end(a: Audited) -> Iterable[Told]:
    """A segment other than the newest left no word of its end: it was killed, or hung."""
    ended = {r.segment for r in a.of("segment_end")}
    for segment in a.live[:-1]:
        if segment not in ended:
            yield Told(
                f"segment {a.number(segment)} left no word of its end after step "
                f"{a.graph.last_step.get(segment, 0):,}: the last steps before a kill can be lost",
                tuple(r.id for r in a.of("segment", segment)[:1]),
                a.number(segment),
                a.graph.last_step.get(segment),
            )
