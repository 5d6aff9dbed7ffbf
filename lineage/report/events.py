"""How events beside the run read, and their section of the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..judge.events_run import Placed
from . import words
from .blocks import Block, Bullets, Inline, Para, Section, Span, Style, Table

NO_CAUSE = "Each stands at its time and place; that it came at the same time is not shown to be the cause of anything"
MOST_ROWS = 100
STYLE: dict[str, Style] = {"fault": "bad", "warning": "warn", "note": "quiet"}


def counted(placed: Sequence[Placed]) -> str:
    """`1 fault, 3 warnings, 12 notes; 2 in no segment of this run`."""
    by = Counter(p.event.severity for p in placed)
    told = ", ".join(words.plural(by[s], s) for s in ("fault", "warning", "note") if by[s])
    others = sum(n for s, n in by.items() if s not in ("fault", "warning", "note"))
    told += f", {words.plural(others, 'other')}" if others else ""
    outside = sum(p.segment is None for p in placed)
    return told + (f"; {outside:,} in no segment of this run" if outside else "")


def when(p: Placed) -> str:
    """The time in UTC, as sure as it is."""
    e = p.event
    if e.when is None:
        return "not stated"
    text = words.time(e.when) + (" (zone assumed)" if e.zone == "assumed" else "")
    until = "" if e.until is None else words.time(e.until)
    return f"{text} to {until}" if until and until != words.time(e.when) else text


def what(p: Placed) -> str:
    """`fault xid 79`: how bad, of which kind, and the source's own code."""
    e = p.event
    return f"{e.severity} {e.category}{f' {e.code}' if e.code and e.code != e.category else ''}"


def place(p: Placed) -> str:
    """Segment and ranks, or that it is in none."""
    if p.segment is None:
        return "in no segment"
    ranks = words.numbers(p.ranks) if p.ranks else "not known"
    return f"{p.number} / {ranks}"


def place_words(p: Placed) -> str:
    """The same in a sentence: `segment 2, ranks 0 to 3`; of an event of no known rank `segment 2, by its time alone, of
    no known rank`."""
    if p.segment is None:
        return place(p)
    return f"segment {p.number}, " + (
        words.ranks(p.ranks) if p.ranks else "by its time alone, of no known rank"
    )


def where(p: Placed) -> str:
    """Node and device, in the names of the record."""
    e = p.event
    nodes = ", ".join(e.nodes[:2]) + (f" and {len(e.nodes) - 2} more" if len(e.nodes) > 2 else "")
    device = e.device_uuid or e.device_pci or (f"GPU {e.device_index}" if e.device_index is not None else "")
    return " ".join(x for x in (nodes, device) if x) or "-"


def text(p: Placed, longest: int = words.LONGEST) -> str:
    """What happened, how often, what the code stands for, and why it is in no segment."""
    e = p.event
    told = words.shorten(e.text, longest) + (f" ({e.count:,} times)" if e.count > 1 else "")
    if e.meaning and longest >= words.LONGEST:
        told = f"{told.rstrip('.')}. Stands for: {e.meaning}"
    return told + (f". In no segment: {p.why}" if p.why else "")


def uncertain(placed: Sequence[Placed]) -> list[str]:
    """What is not sure about events, each once with its count."""
    found = Counter(n for p in placed for n in p.notes)
    return [f"{n} ({words.plural(c, 'event')})" for n, c in found.most_common(6)]


def section(placed: Sequence[Placed]) -> Section:
    """The section of the report; empty where there is no event."""
    blocks: list[Block] = []
    if placed:
        blocks.append(Para(f"{counted(placed)}. {NO_CAUSE}."))
        chosen = [p for p in placed if p.event.severity != "note"] or list(placed)
        rows: list[list[Inline]] = [
            [
                when(p),
                place(p),
                p.steps() or "-",
                Span(where(p), "code"),
                Span(f"{p.event.severity} {p.event.category}", STYLE.get(p.event.severity, "bad")),
                p.event.code or "-",
                text(p),
            ]
            for p in chosen[:MOST_ROWS]
        ]
        left = len(placed) - len(rows)
        caption = "Errors of machines, links and software beside the run"
        caption += f" ({len(rows)} of {len(placed):,}; `lineage events show --all` lists all)" if left else ""
        head = ("UTC", "Segment / rank", "Steps", "Where", "What", "Code", "In its words")
        blocks.append(Table(caption, head, rows))
        doubts = uncertain(placed)
        if doubts:
            blocks.append(Bullets([[Span("Not sure: ", "warn"), f"{d}."] for d in doubts]))
    return Section("events", "Hardware and software events", blocks)
