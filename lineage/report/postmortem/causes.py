"""Sections on why it broke: what fits which family, what was made again, and what is shown of the cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..._rooms import schemas
from ...judge.suspects import EVIDENCE, Line, Suspect
from .. import words
from ..blocks import Block, Bullets, Inline, Para, Section, Span, Style, Sub, Table
from ..course import coded
from . import five
from .given import Given

EACH = 6
"""Lines of one side that a family shows."""
ORDER = "The order is that of the classes of evidence and says nothing of likelihood"


def suspects(g: Given) -> Section:
    """Each family: what fits, what speaks against it, what is not shown, and the next check."""
    section = Section("suspects", "Suspects")
    found = g.suspects
    if found is None:
        section.blocks.append(
            Para("Not known: there is no bad cell on record, so nothing can be suspected of one.")
        )
        return section
    section.blocks.append(
        Para([Span(f"{found.answer[:1].upper()}{found.answer[1:]}. ", "strong"), f"{ORDER}."])
    )
    for s in found.found:
        alike = sum(o.place == s.place for o in found.found) > 1 and s.strongest is not None
        section.blocks.extend(_family(s, alike=alike))
    if found.missing:
        section.blocks.append(
            Bullets([[Span("Not shown: ", "warn"), *coded(f"{t}.")] for t in found.missing])
        )
    return section


def _family(s: Suspect, *, alike: bool) -> list[Block]:
    number = f"{s.place}. " if s.strongest is not None else ""
    what = "nothing fits" if s.strongest is None else EVIDENCE[s.strongest]
    items: list[Inline] = []
    fits, against = _folded(s.of("for")), _folded(s.of("against"))
    items += [_line("Fits", n, "strong", times) for n, times in fits[:EACH]]
    items += [_line("Speaks against", n, "plain", times) for n, times in against[:EACH]]
    more = len(fits[EACH:]) + len(against[EACH:])
    if more:
        items.append(Span(f"{words.plural(more, 'further line')}: lineage suspects --all", "quiet"))
    if s.next is not None:
        items.append(
            [Span("Next check: ", "strong"), *coded(s.next.text)]
            + ([": ", Span(s.next.command, "code")] if s.next.command else [])
        )
    items += [[Span("Not shown: ", "warn"), *coded(t)] for t in s.missing]
    tie = ", like others" if alike else ""
    return [
        Sub(f"{number}{s.title[:1].upper()}{s.title[1:]}: {what}{tie}"),
        Bullets(items or ["Nothing is on record that fits it or speaks against it."]),
    ]


def _folded(lines: Sequence[Line]) -> list[tuple[Line, int]]:
    """Lines with the same words once, with how often: of a replay that was made again, each says the same."""
    counts = Counter((n.rule, n.text) for n in lines)
    first = {(n.rule, n.text): n for n in reversed(lines)}
    return [(first[key], times) for key, times in counts.items()]


def _line(name: str, n: Line, style: Style, times: int) -> list[str | Span]:
    again = f" ({times} times)" if times > 1 else ""
    return [Span(f"{name}: ", style), *coded(n.text), again, " ", Span(f"[{n.rule}]", "quiet")]


RESULT: dict[str, tuple[str, Style]] = {
    "reproduced": ("reproduced", "bad"),
    "not_reproduced": ("not reproduced", "plain"),
    "inconclusive": ("inconclusive", "warn"),
}


def replays(g: Given) -> Section:
    """The bad step made again: with nothing changed, and with one condition at a time."""
    section = Section("replays", "Replays")
    if not g.replays:
        text: list[str | Span] = [
            "The step was not made again, so nothing shows what makes the symptom come or go. "
        ]
        if g.hour.bundle is None:
            text.append("There is no bundle of it, so it cannot be made again from the record.")
        else:
            text += [
                "Its bundle is there: ",
                Span(f"lineage replay {g.hour.bundle} --with your_module:build", "code"),
            ]
        section.blocks.append(Para(text))
        return section
    rows = [_replay(p) for p in g.replays]
    head = ("Changed", "Result", "Does it flip?", "Began with", "In words")
    section.blocks.append(Table("The bad step, made again from its bundle", head, rows))
    limits = list(dict.fromkeys(t for p in g.replays for t in p.limits))
    given = list(dict.fromkeys(t for p in g.replays for t in p.given))
    notes: list[Inline] = [
        [Span("Differs from the run although nobody asked: ", "warn"), f"{t}."] for t in given[:8]
    ]
    notes += [[Span("Not shown: ", "warn"), *coded(f"{t}.")] for t in limits[:8]]
    section.blocks.append(Bullets(notes)) if notes else None
    return section


def _replay(p: schemas.Replay) -> list[Inline]:
    changed = " and ".join(c.name + (f" {c.argument}" if c.argument else "") for c in p.changes) or "nothing"
    effect = [c for c in p.changes if c.in_effect != "yes"]
    name: list[str | Span] = [changed]
    if effect:
        name.append(Span(f" (not shown to be in effect: {'; '.join(c.text for c in effect)})", "warn"))
    word, style = RESULT.get(p.result, (p.result, "warn"))
    spread = next((v for v in p.values if v.signal == "loss" and v.spread is not None), None)
    result: list[str | Span] = [Span(word, style), f", in {p.shown} of {p.runs}"]
    result += [f"; spread of the loss {spread.spread:.3g}"] if spread is not None and p.runs > 1 else []
    if p.confounded:
        flips: Inline = Span("confounded: nothing follows", "warn")
    elif not p.changes:
        flips = "the control"
    else:
        flips = {True: Span("it flips", "strong"), False: Span("no"), None: Span("cannot be told", "warn")}[
            p.flips
        ]
    text = ". ".join([p.reason, *(f.text for f in p.first_non_finite[:2])])
    return [name, result, flips, p.start.text, coded(f"{text} (replay {words.short(p.uid)})")]


def cause(g: Given) -> Section:
    """What is shown of the cause; a recovery shows none."""
    section = Section("cause", "Cause")
    section.blocks.append(Para([Span("On record: ", "strong"), *five.cause(g)]))
    for r in g.life.causes:
        p: schemas.RootCause = r.payload
        proof = p.proof
        section.blocks.append(
            Bullets(
                [
                    f"Proof: replay {words.short(proof.replay)}, held against replay {words.short(proof.control)} "
                    f"with nothing changed; {proof.condition} was in effect, and nothing else was changed.",
                    f"Written down by {p.by or 'nobody named'}, {words.time(r.at)} UTC.",
                ]
            )
        )
    section.blocks.append(
        Para(
            Span(
                "A cause counts as shown where one changed condition makes the symptom come or go in a replay. That "
                "training went on after a restart shows nothing of why it broke.",
                "quiet",
            )
        )
    )
    return section
