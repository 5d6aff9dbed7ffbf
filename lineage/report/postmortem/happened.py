"""Sections on what happened: the incident at a glance, its timeline, and what of the first hour was done."""

from __future__ import annotations

from dataclasses import dataclass

from ..._rooms import schemas
from ...judge import first_hour
from ...judge.incident_life import ORDER, WORDS
from .. import words
from ..blocks import Block, Bullets, Inline, Para, Section, Span, Style, Sub, Table
from ..timeline import LAYER, MACHINES, Event
from .given import Given

ROWS = 90
"""Lines of the timeline."""
ALARMS = 8
"""Alarms on the timeline; the others are counted."""


def glance(g: Given) -> Section:
    """Whose it is, which states it reached, and what it took."""
    life, latest = g.life, g.life.latest
    said: list[tuple[str, str | Span | list[str | Span]]] = [
        ("Incident", [f"{words.shorten(g.headline)} ", Span(life.uid, "code")]),
        ("Owner", latest.owner or Span("nobody is named", "warn")),
        ("States", _states(g)),
        ("Who was told", _told(g) or Span("nobody is on record as told", "warn")),
        ("Links", ", ".join(life.links) or "none on record"),
        ("Found", _found(g)),
        ("What it took", _took(g)),
        ("Evaluations of what came from it", _evaluated(g)),
    ]
    lines: list[Inline] = [
        [Span(f"{name}: ", "strong"), *(text if isinstance(text, list) else [text])] for name, text in said
    ]
    return Section("glance", "At a glance", [Bullets(lines)])


def _states(g: Given) -> list[str | Span]:
    out: list[str | Span] = []
    for state in ORDER:
        m = g.life.reached(state)
        by = f" by {m.by}" if m and m.by else ""
        text = f"{WORDS[state]} {words.time(m.at)} UTC{by}" if m else f"not {WORDS[state]}"
        out += [*([", "] if out else []), Span(text, "plain" if m else "quiet")]
        if m is not None and m.override:
            out.append(
                Span(f" (although {'; '.join(m.missing) or 'something was missing'}: {m.override})", "warn")
            )
    return out


def _told(g: Given) -> str:
    return "; ".join(
        f"{m.to} ({words.time(m.at)} UTC{f', by {m.by}' if m.by else ''}){f': {m.text}' if m.text else ''}"
        for m in g.life.messages
    )


def _found(g: Given) -> str:
    """How it was found, and how long after the first bad step, as far as records tell."""
    step, alarm = g.step, g.alarm
    if alarm is None:
        return (
            f"by hand, {words.time(g.life.opened)} UTC" if step is None else "by hand; no alarm is on record"
        )
    p: schemas.Alarm = alarm.payload
    late = (alarm.step or 0) - (step or 0)
    when = (
        "at the first bad step"
        if late == 0 or step is None
        else f"{words.plural(late, 'step')} after the first bad one"
    )
    return f"by an alarm {when}, {words.time(alarm.at)} UTC: {p.text} ({p.code})"


def _took(g: Given) -> str:
    """Steps that were given up, and device-hours by the decision's own formula."""
    if not g.decisions:
        return "not known: no decision is on record, which would have the cost"
    cost: schemas.RecoveryCost = g.decisions[-1].payload.cost
    again = "not known how many steps" if cost.steps_again is None else words.plural(cost.steps_again, "step")
    hours = "" if cost.device_hours_again is None else f", {cost.device_hours_again:,.3g} device-hours"
    return f"{again} to be made again{hours}, by the decision's formula (below). Hours of waiting are not recorded"


def _evaluated(g: Given) -> str | Span:
    """Evaluations of states from the first bad step on."""
    step = g.step
    nodes = g.hour.graph.nodes
    found = [
        f"{e.evaluator} of step {n.checkpoint.step:,} ({words.short(n.uid)})"
        for _, e in g.facts.evaluations
        if (n := nodes.get(e.checkpoint))
        and step is not None
        and n.segment == g.life.segment
        and n.checkpoint.step >= step
    ]
    if found:
        return Span("; ".join(found), "bad")
    return "none on record from the first bad step on; what was evaluated elsewhere is not known here"


def timeline(g: Given) -> Section:
    """What happened, each line with whose word it is."""
    events = _folded(g)
    alarms = [e for e in events if e.event.alarm]
    kept = [e for e in events if not e.event.alarm or e in alarms[:ALARMS]]
    shown = kept if len(kept) <= ROWS else [*kept[: ROWS // 2], *kept[-ROWS // 2 :]]
    until = "until now: the incident is open" if g.life.is_open else "to the end of the incident"
    blocks: list[Block] = [Para(f"From shortly before the first bad step {until}. Times are UTC.")]
    days: dict[str, list[Inline]] = {}
    for e in shown:
        days.setdefault(words.time(e.event.at)[:10], []).append(_line(e))
    for day, lines in days.items():
        blocks += [Sub(day), Bullets(lines)]
    left = []
    if len(alarms) > ALARMS:
        left.append(words.plural(len(alarms) - ALARMS, "further alarm"))
    if len(shown) < len(kept):
        left.append(words.plural(len(kept) - len(shown), "further line"))
    if left:
        text = f"Left out: {' and '.join(left)}; the ledger has all."
        blocks.append(Para(Span(text, "quiet")))
    return Section("timeline", "Timeline", blocks if days else [])


@dataclass
class _Folded:
    """An event, with all ranks that say the same of the same step."""

    event: Event
    ranks: set[int]


def _folded(g: Given) -> list[_Folded]:
    found: dict[tuple[object, ...], _Folded] = {}
    for e in g.events:
        key = (e.segment, e.step, e.what, e.text, e.by)
        found.setdefault(key, _Folded(e, set())).ranks.add(e.rank)
    return list(found.values())


def _line(f: _Folded) -> Inline:
    e = f.event
    step = "" if e.step is None else f"step {e.step:,}, "
    place = f"{step}segment {'?' if e.segment is None else e.segment}, {words.ranks(f.ranks)}"
    if e.by not in (LAYER, MACHINES):
        place = f"by {e.by}"  # a person stands at no rank
    return [
        Span(f"{words.time(e.at)[11:]} ", "quiet"),
        Span(e.what, "bad" if e.alarm else "strong"),
        f": {e.text} ",
        Span(f"({place})", "quiet"),
    ]


BOX: dict[str, tuple[str, Style]] = {
    "done": ("done", "good"),
    "part": ("in part", "warn"),
    "todo": ("not done", "warn"),
    "none": ("nothing to do", "quiet"),
}


def hour(g: Given) -> Section:
    """What of the first hour is done, as the ledger tells."""
    rows: list[list[Inline]] = []
    for item in first_hour.checklist(g.hour):
        word, style = BOX[item.state]
        text: list[str | Span] = [item.text]
        for warning in item.warnings:
            text += [". ", Span(warning, "bad")]
        rows.append([item.title, Span(word, style), text])
    return Section(
        "hour",
        "What was done, and what was not",
        [Table("The first hour, in its order", ("What", "State", "On record"), rows)],
    )
