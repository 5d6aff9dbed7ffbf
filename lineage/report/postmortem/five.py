"""What happened, in five lines: made of records alone. What no record tells is said to be not known."""

from __future__ import annotations

from ..._rooms import schemas, trackers
from ...judge import first_hour, suspects, trajectory
from ...judge.incident_life import WORDS
from .. import page, words
from ..blocks import Inline, Span
from .given import Given

Line = list[str | Span]


def lines(given: Given) -> list[Inline]:
    """What broke, how far it went, the cause, what was done, and where it stands."""
    said = (
        ("What broke", _broke(given)),
        ("How far it went", _reached(given)),
        ("Cause", cause(given)),
        ("What was done", _done(given)),
        ("Where it stands", _stands(given)),
    )
    return [[Span(f"{name}: ", "strong"), *text] for name, text in said]


def _broke(g: Given) -> Line:
    latest, cell = g.life.latest, g.cell
    if cell is not None:
        info = g.hour.graph.segments.get(cell.segment)
        of = f" of {info.world_size:,}" if info else ""
        when = f", {words.time(g.alarm.at)} UTC" if g.alarm is not None else ""
        found = (
            "found by an alarm"
            if latest.opened_by == "alarm"
            else f"opened by hand by {latest.by or 'a person'}"
        )
        place = Span(f"step {cell.step:,}, rank {cell.rank}{of}, segment {g.number}{when}", "bad")
        return [place, f": {cell.text}; {found}."]
    who = g.life.milestones["open"].by or "nobody named"
    step = "no step named" if g.step is None else f"step {g.step:,}"
    text = f"{words.shorten(g.headline)} (said by {who}, {step}, {words.time(g.life.opened)} UTC)."
    return [Span(text, "bad"), " Nothing on record is abnormal there."]


def _reached(g: Given) -> Line:
    graph, bad, step = g.hour.graph, g.hour.bad, g.step
    parts = []
    good = graph.nodes.get((bad and bad.last_good_checkpoint) or "")
    if bad is not None and bad.last_good_step is not None and bad.cell is not None:
        parts.append(f"the last good step is {bad.last_good_step:,}")
    name = "not known" if good is None else f"step {good.checkpoint.step:,} ({words.short(good.uid)})"
    parts.append(f"the last good checkpoint: {name}")
    last = graph.last_step.get(g.life.segment)
    if step is not None and last is not None:
        parts.append(
            "no further step was made on it"
            if last <= step
            else f"{words.plural(last - step, 'further step')} made on it, to step {last:,}"
        )
        after = [n for n in graph.nodes.values() if n.segment == g.life.segment and n.checkpoint.step >= step]
        marked = sum(any(m.mark in ("quarantined", "first_bad") for m in n.standing) for n in after)
        told = f", {marked} of them marked as bad" if after else ""
        many = words.plural(len(after), "checkpoint") if after else "no checkpoint"
        parts.append(f"{many} saved from it on{told}")
    elif step is None:
        parts.append("from which step on is not known")
    if not any(r.kind == "segment_end" and r.segment == g.life.segment for r in g.hour.records):
        parts.append("no end of it is on record: killed, or still running")
    return [f"{'; '.join(parts)}."]


def cause(g: Given) -> Line:
    """What is shown of the cause: by a replay that flips, or not at all."""
    if g.life.causes:
        p: schemas.RootCause = g.life.causes[-1].payload
        changed = p.proof.condition + (f" {p.proof.argument}" if p.proof.argument else "")
        shown = Span(f"{family(p.family)}: {words.shorten(p.text)}", "strong")
        return [shown, f" (shown by a replay: with {changed} changed alone, the symptom comes or goes)."]
    said = g.life.reached("diagnosed")
    out: Line = [Span("not known", "strong")]
    if said is not None:
        out.append(f"; {said.by or 'nobody named'}: {words.shorten(said.text or 'no more is said')}")
    flips = [p for p in g.replays if p.flips and not p.confounded and len(p.changes) == 1]
    if flips:
        out.append(
            f". With {flips[-1].changes[0].name} changed alone the symptom comes or goes; nobody wrote it down as "
            "the cause"
        )
    elif g.replays:
        out.append(f". {words.plural(len(g.replays), 'replay')}, none of which flips it")
    else:
        out.append(". The step was not made again")
    fits = [s.title for s in g.suspects.found if s.strongest is not None] if g.suspects else []
    if fits:
        out.append(f". Evidence on record fits: {'; '.join(fits)}. That shows no cause")
    return [*out, "."]


def family(name: str) -> str:
    """A family of causes by its title."""
    return next((f.title for f in suspects.FAMILIES if f.id == name), name)


def _done(g: Given) -> Line:
    parts = []
    if g.decisions:
        p: schemas.Recovery = g.decisions[-1].payload
        changed = words.plural(len(p.mitigations), "change") if p.mitigations else "nothing changed"
        parts.append(
            f"{p.owner or p.by or 'nobody named'} decided to go on from step {p.restart.step:,} with {changed}"
            + (", although evidence was missing" if p.override else "")
        )
    else:
        parts.append("no decision how to go on is on record")
    if g.carried is not None:
        number = g.hour.graph.number(g.carried.segment)
        parts.append(f"segment {number} does so from {words.time(g.carried.at)} UTC")
        if others := [n for n in g.later if n != number]:
            parts.append(f"segment{'s' * (len(others) > 1)} {words.numbers(others)} began after it too")
    elif g.later:
        from_ = "from elsewhere" if g.decisions else "without one"
        parts.append(f"segment{'s' * (len(g.later) > 1)} {words.numbers(g.later)} went on {from_}")
    else:
        parts.append("nothing was resumed since")
    told = list(dict.fromkeys(m.to for m in g.life.messages if m.to))
    parts.append(f"told: {', '.join(told[:4])}" if told else "nobody is on record as told")
    return [f"{'; '.join(parts)}."]


def _stands(g: Given) -> Line:
    held = [e for e in g.hour.gate.items if e.required]
    have = sum(e.state == "held" for e in held)
    out: Line = [
        Span(WORDS[g.life.status], "strong"),
        f"; of the evidence that a cause needs, {have} of {len(held)} held",
    ]
    if g.life.trajectories:
        out.append(f"; the repaired run is {trajectory.summary(g.life.trajectories[-1].payload.horizons)}")
    elif g.later:
        out.append("; whether the repaired run goes as before was not looked at")
    tip = next((t for t in g.facts.tips if t.newest), None)
    if tip is not None:
        out += [
            "; results of the newest state: ",
            Span(trackers.headline(tip.verdict), page.STYLE[tip.verdict.status]),
        ]
    out.append(".")
    following = first_hour.following(first_hour.checklist(g.hour))
    if following is not None:
        out.append(f" Not done yet: {following.title[:1].lower()}{following.title[1:]}")
        out += [": ", Span(following.commands[0], "code")] if following.commands else ["."]
    return out
