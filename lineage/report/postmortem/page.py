"""What stands on a post-mortem, in which order."""

from __future__ import annotations

from collections.abc import Mapping

from .. import boundaries, course, events, page, words
from ..blocks import Block, Bullets, Para, Section, Span, Table, Written
from . import causes, curves, five, happened, recovery, rests_on
from .given import Given

PARTS: dict[str, tuple[str, str]] = {
    "summary": (
        "Summary, by people",
        "Three lines for somebody outside of the team: what broke, from which step to which, what it touches.",
    ),
    "cause": (
        "The cause in words, by people",
        "Trigger, root cause and what contributed, apart from each other; how sure it is; what was ruled out, and by "
        "which replay or check. The section above says what is shown.",
    ),
    "lessons": (
        "Lessons, by people",
        "What went well, what went badly, where there was luck. Of the system, and of nobody's person.",
    ),
    "actions": (
        "Actions, by people",
        "One a line, with its kind (prevent, detect, mitigate, process), its owner and its date, such as: "
        "- prevent: clip before the reduction too (ann, 2026-12-15)",
    ),
}
"""Key -> (heading, what belongs there) of what people write."""

TITLES = {key: title for key, (title, _) in PARTS.items()}


def title(g: Given) -> str:
    """The page's one heading."""
    return f"Post-mortem of {g.facts.run}: {words.shorten(g.headline, 120)}"


def sections(g: Given, written: Mapping[str, str]) -> list[Section]:
    """All sections that have something to say. `written`: what people wrote, by key."""
    found = [
        _five(g),
        _part("summary", written),
        happened.glance(g),
        happened.timeline(g),
        _first_bad(g),
        curves.section(g),
        course.lineage(g.facts),
        _changed(g),
        course.phases(g.facts),
        events.section([p for p in g.facts.beside if p.segment in (g.life.segment, None)]),
        causes.suspects(g),
        causes.replays(g),
        causes.cause(g),
        _part("cause", written),
        recovery.decision(g),
        recovery.compared(g),
        _verdicts(g),
        rests_on.checkpoints(g),
        rests_on.evidence(g),
        happened.hour(g),
        rests_on.open_questions(g),
        rests_on.audit(g),
        _part("lessons", written),
        _part("actions", written),
        *(
            Section(f"part-{k}", f"Also written by people: {k}", [Written(k, "", t)])
            for k, t in written.items()
            if k not in PARTS
        ),
        page.unrecorded(g.facts),
        page.ledger(g.facts),
    ]
    return [s for s in found if s.blocks]


def _five(g: Given) -> Section:
    return Section("answer", "What happened", [Bullets(five.lines(g))])


def _part(key: str, written: Mapping[str, str]) -> Section:
    heading, hint = PARTS[key]
    return Section(f"part-{key}", heading, [Written(key, hint, written.get(key, ""))])


def _first_bad(g: Given) -> Section:
    section = Section("first-bad", "First bad cell")
    if g.bad is not None:
        section.blocks.extend(course.of_bad(g.facts, g.bad, checks=g.life.is_open))
    elif g.step is not None:
        section.blocks.append(
            Para(f"Not known: step {g.step:,} was named by hand, and nothing on record is abnormal there.")
        )
    else:
        section.blocks.append(Para("Not known: nothing on record is abnormal in this segment."))
    return section


def _changed(g: Given) -> Section:
    """What changed in the segment that broke and since, with what was declared."""
    section = Section("changes", "What changed")
    for d in g.drifts:
        section.blocks.extend(boundaries.of_drift(d))
    if not g.drifts:
        numbers = words.numbers([g.number, *g.later])
        section.blocks.append(
            Para(f"No change is on record in segment {numbers}: none was compared, or nothing differed.")
        )
    rows = [boundaries.mitigation_row(m) for m in g.facts.mitigations if m.segment in (g.number, *g.later)]
    if rows:
        caption = "Declared mitigations, and what shows that they are in effect"
        section.blocks.append(Table(caption, boundaries.MITIGATION_HEAD, rows))
    others = len(g.facts.drifts) - len(g.drifts)
    if others:
        text = f"{words.plural(others, 'comparison')} of other segments: `lineage report` has them."
        section.blocks.append(Para(Span(text, "quiet")))
    return section


def _verdicts(g: Given) -> Section:
    section = Section("verdicts", "What may still be concluded")
    blocks: list[Block] = []
    for tip in g.facts.tips[:TIPS]:
        blocks += page.verdict(tip)
    section.blocks.extend(blocks)
    return section


TIPS = 4
"""Ends of branches whose verdicts are shown, the newest first."""
