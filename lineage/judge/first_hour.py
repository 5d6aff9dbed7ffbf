"""The first hour as a checklist: what is done already, as the ledger tells, and what to do next, with its command.

Evidence first, then one change at a time, then the decision, and only then whether it is as before. The order is that
of the guide to a run that diverges: stop what does harm, hold the evidence, see what kind it is, find the first bad
transition, make it again, change one condition, recover without letting the recovery pass for an explanation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .._rooms import schemas
from . import trajectory
from .carried_out import carried_out
from .gate import Gate
from .graph import Graph
from .incident_life import WORDS, Life, Milestone, ended
from .replay_course import NOT_REPLAYED, NOT_YOURS, NOTHING_TO_TAKE, SEVERAL, Course, flips

Done = Literal["done", "part", "todo", "none"]
"""part: some of it; none: there is nothing to do here."""


@dataclass(frozen=True)
class Item:
    """One line of the checklist."""

    key: str
    title: str
    state: Done
    text: str
    commands: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    see: tuple[str, ...] = ()
    """what helps to do it: commands that only tell, and pages"""


@dataclass(frozen=True)
class Facts:
    """What the ledger and the disk tell of an incident."""

    run: str
    """how commands name the run"""
    life: Life
    graph: Graph
    records: Sequence[schemas.Record]
    gate: Gate
    bad: schemas.FirstBad | None
    unmarked: int = 0
    """checkpoints from after the first bad step that carry no mark"""
    bundle: str | None = None
    """path of the bundle of the first bad rank and step"""
    bundles: str | None = None
    """path of the folder that has a bundle of this step of every rank; None where there is none"""
    others: bool = True
    """whether another rank has one"""
    events: Sequence[str] = ()
    """what machines did at that time, in words"""


def checklist(f: Facts) -> list[Item]:
    """All items in their order."""
    return [
        _opened(f),
        _contained(f),
        _told(f),
        _evidence(f),
        _classified(f),
        _located(f),
        _machines(f),
        _replayed(f),
        _one_change(f),
        _diagnosed(f),
        _decided(f),
        _resumed(f),
        _compared(f),
        _recovered(f),
        _closed(f),
    ]


def following(items: Sequence[Item]) -> Item | None:
    """What to do next: the first item that is not done. Nothing, once the incident is closed."""
    if any(i.key == "closed" and i.state == "done" for i in items):
        return None
    return next((i for i in items if i.state in ("todo", "part")), None)


def _when(m: Milestone) -> str:
    who = f" by {m.by}" if m.by else ""
    return f"{m.at:%Y-%m-%d %H:%M} UTC{who}"


def _opened(f: Facts) -> Item:
    life = f.life
    by = "by an alarm" if life.latest.opened_by == "alarm" else "by hand"
    text = f"{_when(life.milestones['open'])}, {by}: {life.latest.title}"
    if life.latest.owner:
        return Item("opened", "Opened, with an owner", "done", f"{text}; owner {life.latest.owner}")
    return Item(
        "opened",
        "Opened, with an owner",
        "part",
        f"{text}; nobody looks after it yet",
        (f"lineage incident note {f.run} --owner NAME",),
    )


def _contained(f: Facts) -> Item:
    title = "Contained: training stopped, later checkpoints quarantined"
    said, over = f.life.reached("contained"), ended(f.records, f.life.segment)
    resumed = resumes(f)
    commands = []
    parts = []
    if said is not None:
        parts.append(f"{_when(said)}{f': {said.text}' if said.text else ''}")
    elif over is not None:
        parts.append(over)
    elif resumed:
        parts.append("a later segment began, so this one is over")
    else:
        parts.append("no end of the segment is on record: it runs on, or was killed")
        commands.append(f"lineage incident contain {f.run} --how 'HOW IT WAS STOPPED'")
    if f.unmarked:
        parts.append(f"{f.unmarked} checkpoints from after the first bad step carry no mark")
        commands.append(f"lineage quarantine {f.run}")
    return Item("contained", title, "todo" if commands else "done", "; ".join(parts), tuple(commands))


def _told(f: Facts) -> Item:
    title = "Told: whoever waits for this run, or uses its checkpoints"
    if f.life.messages:
        names = ", ".join(dict.fromkeys(m.to or "?" for m in f.life.messages))
        return Item("told", title, "done", names)
    text = "nobody is on record as told"
    return Item("told", title, "todo", text, (f"lineage incident note {f.run} --told 'WHO: WHAT'",))


def _evidence(f: Facts) -> Item:
    title = "Evidence held, before anything is restarted"
    missing = f.gate.missing
    held = sum(e.state == "held" for e in f.gate.items if e.required)
    warnings = []
    early = [r for r in resumes(f) if (m := f.life.reached("evidence_held")) is None or r.at < m.at]
    if early:
        numbers = ", ".join(str(f.graph.number(r.segment)) for r in early)
        warnings.append(f"segment {numbers} resumed before the evidence was held")
    never = [e.what for e in f.gate.items if e.required and e.state == "none"]
    if never:
        warnings.append(f"never recorded: {', '.join(never)}")
    if missing:
        text = f"{held} held; missing: {'; '.join(f'{e.what} ({e.text})' for e in missing)}"
        commands = tuple(dict.fromkeys(e.remedy for e in missing if e.remedy))
        return Item("evidence", title, "part" if held else "todo", text, commands, tuple(warnings))
    said = f.life.reached("evidence_held")
    text = f"{held} of {held} held" + (f", {_when(said)}" if said else "")
    return Item("evidence", title, "done", text, (), tuple(warnings))


def _classified(f: Facts) -> Item:
    title = "Kind of symptom: all ranks, one, one tensor, after a restart, evaluation only"
    found = f.bad.symptoms if f.bad else []
    if not found:
        return Item("classified", title, "todo", "no class is known", (f"lineage first-bad {f.run}",))
    words = "; ".join(f"{s.cls.replace('_', ' ')}: {s.reason}" for s in found)
    unknown = all(s.cls == "unknown" for s in found)
    return Item(
        "classified", title, "part" if unknown else "done", words, (f"lineage first-bad {f.run}",) * unknown
    )


def _located(f: Facts) -> Item:
    title = "First bad transition: step, rank, layer, tensor"
    cell = f.bad.cell if f.bad else None
    if cell is None:
        step = f.life.latest.first_bad_step
        if step is not None:
            text = f"said by hand to be step {step:,}; nothing on record is abnormal there"
            return Item(
                "located", title, "part", text, (f"lineage first-bad {f.run}", f"lineage check {f.run}")
            )
        return Item("located", title, "todo", "not known", (f"lineage first-bad {f.run} --grid",))
    where = f", {cell.layer or cell.tensor}" if cell.layer or cell.tensor else ""
    text = f"rank {cell.rank}, step {cell.step:,}{where}: {cell.text}"
    return Item("located", title, "done", text)


def _machines(f: Facts) -> Item:
    title = "Machines, links and drivers at that time"
    command = f"lineage events import FILE... --into {f.run}"
    if f.events:
        text = f"{'; '.join(f.events[:3])}. Same time, and no cause"
        return Item("machines", title, "done", text)
    known = next(e for e in f.gate.items if e.what == "hardware events")
    if known.state == "held":
        return Item("machines", title, "done", f"nothing at that time ({known.text})")
    if replays(f) or f.life.reached("diagnosed") is not None:
        return Item("machines", title, "none", f"{known.text}; it was gone on without", (command,))
    see = ("what comes after it, where there is no log to be had",)
    return Item("machines", title, "todo", known.text, (command,), (), see)


def replays(f: Facts) -> list[schemas.Record]:
    """The replays of this incident's bundles."""
    mine = [r.payload for r in f.records if r.kind == "bundle" and r.segment == f.life.segment]
    roots = {p.root for p in mine}
    return [r for r in f.records if r.kind == "replay" and r.payload.bundle in roots]


def _course(f: Facts) -> Course:
    """What was replayed, and what is to be next."""
    info = f.graph.segments.get(f.life.segment)
    cell = f.bad.cell if f.bad else None
    return Course(
        [r.payload for r in replays(f)],
        (info.world_size if info else None) or 1,
        cell.step if cell else f.life.latest.first_bad_step,
        f.bundle,
        f.bundles,
        f.others,
    )


def _replayed(f: Facts) -> Item:
    title = "Made again, with nothing changed"
    course = _course(f)
    see = (
        () if course.controls else (f"{NOT_YOURS} is a function of yours: docs/replay.md says what it gives",)
    )
    if course.whole_is_due and f.life.reached("diagnosed") is None:
        text = f"{course.told()}. One device leaves out what ranks do together"
        return Item("replayed", title, "part", text, (course.command(whole=True),))
    if course.controls:
        gap = course.world > 1 and not course.shows and course.whole is None
        why = ". Not every rank has a bundle of this step, so it cannot be made again at the run's size"
        return Item("replayed", title, "done", course.told() + (why if gap else ""))
    if f.bundle is None:
        text = "there is no bundle, so the step cannot be made again from the record"
        return Item("replayed", title, "none", text)
    if f.life.reached("diagnosed") is not None:
        return Item("replayed", title, "none", NOT_REPLAYED, (course.command(),), (), see)
    return Item("replayed", title, "todo", "not yet", (course.command(),), (), see)


def _one_change(f: Facts) -> Item:
    title = "One condition at a time"
    course = _course(f)
    single = course.single
    words = "; ".join(f"{p.changes[0].name}: {flips(p)}" for p in single)
    kept = (SEVERAL,) * any(len(p.changes) > 1 for p in course.replays)
    see = (f"lineage suspects {f.run}",)
    if f.bundle is None and not single:
        return Item("one_change", title, "none", "there is no bundle to make the step again from")
    if any(p.flips for p in single):
        return Item("one_change", title, "done", words, (), kept, see)
    if course.controls and not course.shows:
        text = f"{words}. " * bool(words) + NOTHING_TO_TAKE
        again = () if f.bundle is None else (course.command(repeat=5),)
        return Item("one_change", title, "done" if words else "none", text, again, kept, see)
    left = course.left(f.bad)
    if not left:
        return Item("one_change", title, "done", f"{words}. None of them flips the symptom", (), kept, see)
    if f.life.reached("diagnosed") is not None:
        return Item("one_change", title, "done" if words else "none", words or NOT_REPLAYED, (), kept)
    state: Done = "part" if words else "todo"
    return Item("one_change", title, state, words or "none yet", (course.next_change(left[0]),), kept, see)


def _diagnosed(f: Facts) -> Item:
    title = "Diagnosed, as far as it goes. That it runs again is no diagnosis"
    said = f.life.reached("diagnosed")
    if f.life.causes:
        p: schemas.RootCause = f.life.causes[-1].payload
        text = f"{p.family}: {p.text} (shown by a replay in which {p.proof.condition} flips it)"
        return Item("diagnosed", title, "done", text)
    if said is not None:
        return Item(
            "diagnosed", title, "done", f"{_when(said)}: cause unknown: {said.text or 'no more is said'}"
        )
    flipping = next((r.payload for r in replays(f) if r.payload.flips and not r.payload.confounded), None)
    see = (f"lineage suspects {f.run}",)
    if flipping is not None:
        raised = list(dict.fromkeys(e.family for e in flipping.effects if e.direction == "raises"))
        family = raised[0] if len(raised) == 1 else "FAMILY"
        text = f"{flipping.changes[0].name} flips it" + (f", which raises {', '.join(raised)}" * bool(raised))
        command = (
            f"lineage incident cause {f.run} --replay {flipping.uid} --family {family} --text 'WHAT BROKE IT'"
        )
        return Item("diagnosed", title, "todo", text, (command,), (), see)
    return Item(
        "diagnosed",
        title,
        "todo",
        "no replay flips it so far: unknown is a good answer, if it says what was tried",
        (f"lineage incident cause {f.run} --unknown --text 'WHAT WAS TRIED'",),
        (),
        see,
    )


def _decided(f: Facts) -> Item:
    title = "Recovery decided: from where, with which changes, at what cost, by whom"
    if not f.life.recoveries:
        return Item("decided", title, "todo", "not yet", (f"lineage recover {f.run} --owner NAME",))
    p: schemas.Recovery = f.life.recoveries[-1].payload
    n = len(p.mitigations)
    changes = "nothing changed" if not n else f"{n} change{'s' if n > 1 else ''}"
    warnings = []
    if p.override:
        warnings.append(f"decided although evidence was missing: {p.override}")
    if p.confounded:
        warnings.append("several changes at once: no effect can be traced to one")
    text = f"from step {p.restart.step:,}, {changes}" + (f"; owner {p.owner}" if p.owner else "")
    return Item("decided", title, "done", text, (), tuple(warnings))


def resumes(f: Facts) -> list[schemas.Record]:
    """The first records of the segments that began after this incident was opened, and that it is about: of its run."""
    first: dict[str, schemas.Record] = {}
    for r in f.records:
        if r.kind == "segment" and (r.segment not in first or r.at < first[r.segment].at):
            first[r.segment] = r
    order = sorted(first.values(), key=lambda r: r.at)
    return [
        r for r in order if r.segment != f.life.segment and r.at > f.life.opened and r.payload.start != "fork"
    ]


def resumed(f: Facts) -> schemas.Record | None:
    """The segment that carries the decision out: the first after it that starts from its restart point.

    Else the newest that started there before, for a decision that was written down later.
    """
    if not f.life.recoveries:
        return None
    decided = f.life.recoveries[-1]
    wanted = decided.payload.restart.checkpoint
    fitting = [r for r in resumes(f) if r.payload.parent_checkpoint == wanted]
    return next((r for r in fitting if r.at >= decided.at), fitting[-1] if fitting else None)


def _resumed(f: Facts) -> Item:
    title = "Resumed from there"
    found, others = resumed(f), resumes(f)
    if found is not None:
        number = f.graph.number(found.segment)
        text = (
            f"segment {number}, from step {found.payload.parent_step or 0:,}, {found.at:%Y-%m-%d %H:%M} UTC"
        )
        decided = f.life.recoveries[-1]
        odd = ["it began before the decision was written down"] if found.at < decided.at else []
        odd += carried_out(f.records, decided.payload, found.segment)
        return Item("resumed", title, "done", text, (), tuple(odd))
    if not f.life.recoveries:
        if not others:
            return Item("resumed", title, "todo", "not yet")
        number = f.graph.number(others[0].segment)
        text = f"segment {number} resumed at {others[0].at:%Y-%m-%d %H:%M} UTC, and no decision is on record"
        return Item("resumed", title, "part", text, (f"lineage recover {f.run} --owner NAME",))
    p: schemas.RestartPoint = f.life.recoveries[-1].payload.restart
    warnings: tuple[str, ...] = ()
    if others:
        numbers = ", ".join(str(f.graph.number(r.segment)) for r in others)
        warnings = (f"segment {numbers} began from somewhere else",)
    line = f"lineage.attach(run, resumed_from={p.path!r}, ...)"
    return Item("resumed", title, "todo", f"nothing started from step {p.step:,} yet", (line,), warnings)


def _compared(f: Facts) -> Item:
    title = "The repaired run against the pre-incident one"
    command = f"lineage recover compare {f.run} --record"
    if f.life.trajectories:
        p: schemas.Trajectory = f.life.trajectories[-1].payload
        open_ended = bool([h for h in p.horizons if h.position == "not_reached"])
        text = trajectory.summary(p.horizons)
        return Item("compared", title, "done", text, (command,) * open_ended)
    return Item("compared", title, "todo", "not yet", (command,))


def _recovered(f: Facts) -> Item:
    title = "Declared recovered"
    said = f.life.reached("recovered")
    if said is not None:
        warnings = (f"although: {'; '.join(said.missing)} ({said.override})",) if said.override else ()
        return Item(
            "recovered", title, "done", f"{_when(said)}: {said.text or ''}".rstrip(": "), (), warnings
        )
    return Item("recovered", title, "todo", "not yet", (f"lineage recover declare {f.run}",))


def _closed(f: Facts) -> Item:
    title = "Closed, with what was learnt"
    said = f.life.reached("closed")
    if said is not None:
        return Item("closed", title, "done", f"{_when(said)}: {said.text or 'no reason is said'}")
    command = f"lineage incident close {f.run} --why 'WHAT WAS LEARNT'"
    return Item("closed", title, "todo", f"it is {WORDS[f.life.status]} and not closed", (command,))
