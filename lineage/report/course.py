"""Sections on the run's course: the first bad cell, phases, charts, segments, checkpoints, timeline."""

from __future__ import annotations

from ..judge.phases import NOT_SHOWN
from . import phases as phases_
from . import words
from .blocks import Block, Bullets, Chart, Inline, Outline, Para, Section, Span, Style, Table
from .facts import BadFact, Facts
from .grid import Grid
from .outline import outline
from .series import non_finite
from .timeline import MOST_EVENTS


def first_bad(facts: Facts) -> list[Section]:
    """The first bad cell of each segment that has one."""
    section = Section("first-bad", "First bad cell")
    for bad in facts.bads:
        section.blocks.extend(_bad(facts, bad))
    if not facts.bads and facts.curves.values:
        section.blocks.append(Para("None: every recorded loss and gradient norm lies in its range."))
    elif not facts.bads and facts.segments:
        section.blocks.append(Para("Cannot tell: no loss and no gradient norm is recorded."))
    return [section]


def _bad(facts: Facts, bad: BadFact) -> list[Block]:
    found, cell = bad.found, bad.found.cell
    assert cell is not None
    known = {c.checkpoint.uid: c for c in facts.checkpoints}
    good = known.get(found.last_good_checkpoint or "")
    later = known.get(found.first_bad_checkpoint or "")
    where = f"Segment {bad.segment}: rank {cell.rank}, step {cell.step:,}"
    last = "-" if found.last_good_step is None else f"{found.last_good_step:,}"
    items: list[Inline] = [
        [Span(where, "bad"), f": {cell.text}."],
        f"Last good step: {last}. Last good checkpoint: "
        + (
            f"step {good.checkpoint.step:,} ({words.short(good.checkpoint.uid)})."
            if good
            else "none before it."
        ),
    ]
    items += [f"At the same point of the step also rank {t.rank}: {t.text}." for t in found.ties]
    if later:
        items.append(
            f"First checkpoint after it, which holds what it left: step {later.checkpoint.step:,} "
            f"({words.short(later.checkpoint.uid)})."
        )
    items += [f"Later, not the beginning: {s}." for s in found.spread]
    items += [[Span("Gap: ", "warn"), f"{g}."] for g in found.gaps]
    out: list[Block] = [Bullets(items)]
    if bad.grid is not None:
        out.append(_grid(bad, bad.grid))
        if bad.grid.more:
            out.append(Para(f"{bad.grid.more}."))
    return out


SQUARE: dict[str, Style] = {"first": "bad", "tie": "bad", "bad": "warn", "fine": "plain", "nothing": "quiet"}


def _grid(bad: BadFact, grid: Grid) -> Table:
    rows: list[list[Inline]] = [
        [f"rank {rank}", *(Span(s.text, SQUARE[s.kind]) for s in squares)] for rank, squares in grid.rows
    ]
    head = ["", *(f"step {s:,}" for s in grid.steps)]
    return Table(f"Segment {bad.segment}, ranks and steps around the first bad cell", head, rows, grid=True)


def sections(facts: Facts) -> list[Section]:
    """Phases, curves, where each segment came from, checkpoints, and what happened when."""
    return [_phases(facts), _curves(facts), _lineage(facts), _checkpoints(facts), _timeline(facts)]


def _phases(facts: Facts) -> Section:
    section = Section("phases", "Phases")
    if not facts.phases:
        return section
    same, silent = phases_.told_once(facts.phases)
    columns = [c for c in phases_.COLUMNS if c not in same and c not in silent]
    rows: list[list[Inline]] = []
    for p in facts.phases:
        cells = phases_.cells(p)
        style: Style = "quiet" if p.abandoned else "plain"
        rows.append([Span(cells[c], "quiet" if cells[c] == NOT_SHOWN else style) for c in columns])
    section.blocks.append(Table("Each interval under the same conditions", columns, rows))
    if same:
        kept: list[list[Inline]] = [[name, value] for name, value in same.items()]
        section.blocks.append(Table("The same in every phase", ("What", "Value"), kept))
    if silent:
        section.blocks.append(Para(f"Not shown in any phase: {', '.join(silent)}."))
    section.blocks.extend(Para(Span(f"{note}.", "quiet")) for note in phases_.notes(facts.phases))
    return section


def focus(facts: Facts) -> tuple[int, str] | None:
    """The segment whose gradient norms are drawn: the newest that went bad, else the newest."""
    if facts.bads:
        cell = facts.bads[-1].found.cell
        assert cell is not None
        return facts.bads[-1].segment, cell.segment
    return (facts.segments[-1].number, facts.segments[-1].uid) if facts.segments else None


def _curves(facts: Facts) -> Section:
    section = Section("curves", "Curves")
    titles = {"loss": "Loss, mean over ranks", "lr": "Learning rate"}
    for name, title in titles.items():
        said = [w for s in facts.segments if (w := _said(facts, s.number, s.uid, name))]
        if said:
            section.blocks.append(Chart(name, title, ". ".join(said) + "."))
    chosen = focus(facts)
    if chosen and (facts.curves.of(chosen[1], "grad_norm_local") or facts.curves.of(chosen[1], "grad_norm")):
        title = f"Gradient norm in segment {chosen[0]}: each rank before the reduction, and reduced"
        section.blocks.append(Chart("grad_norm", title, _gradients(facts, chosen[1])))
    return section


def _said(facts: Facts, number: int, uid: str, signal: str) -> str | None:
    """One line of a chart in words: where it begins and ends, and what it cannot show."""
    line = list(facts.curves.mean(uid, signal).items())
    if not line:
        return None
    (a, x), (b, y) = line[0], line[-1]
    text = f"Segment {number}: {words.number(x)} at step {a:,} to {words.number(y)} at step {b:,}"
    unseen = words.unseen_in_charts(non_finite(line), "it")
    return text + (f" ({unseen}, which no line can show)" if unseen else "")


def _gradients(facts: Facts, uid: str) -> str:
    parts = []
    local = facts.curves.of(uid, "grad_norm_local")
    for signal, name in (("grad_norm_local", "before the reduction"), ("grad_norm", "reduced")):
        for rank, steps in facts.curves.of(uid, signal).items():
            unseen = words.unseen_in_charts(non_finite(steps.items()), f"rank {rank} {name}")
            if unseen:
                parts.append(unseen)
    head = f"{words.plural(len(local), 'rank')} recorded before the reduction"
    return head + (f". No line can show: {'; '.join(parts[:12])}." if parts else "; all values are finite.")


def _lineage(facts: Facts) -> Section:
    section = Section("lineage", "Where each segment came from")
    if not facts.segments:
        return section
    rows: list[list[Inline]] = [
        [f"{s.number}", s.start, s.parent, s.steps, s.state, s.ended, _ranks(s.ranks, s.world_size)]
        for s in facts.segments
    ]
    head = (
        "Segment",
        "Start",
        "Parent checkpoint",
        "Steps",
        "Branch",
        "How it ended",
        "Ranks recorded / world size",
    )
    section.blocks.append(
        Outline("Lineage, a side branch under the checkpoint it started from", outline(facts.roots))
    )
    section.blocks.append(Table("Segments", head, rows))
    return section


def _ranks(ranks: tuple[int, ...], world: int) -> str:
    return f"{words.numbers(ranks) if ranks else 'none'} / {world:,}"


MOST_CHECKPOINTS = 60


def _checkpoints(facts: Facts) -> Section:
    section = Section("checkpoints", "Checkpoints")
    noted = [c for c in facts.checkpoints if c.marks or c.status != "complete"]
    kept = facts.checkpoints[-MOST_CHECKPOINTS:]
    shown = [c for c in facts.checkpoints if c in kept or c in noted]
    rows: list[list[Inline]] = [
        [
            f"{c.checkpoint.step:,}",
            c.branch,
            c.status if c.status == "complete" else Span(c.status, "warn"),
            Span(", ".join(c.marks), "bad" if "first bad" in c.marks or "quarantined" in c.marks else "plain")
            if c.marks
            else "none",
            Span(words.digest(c.checkpoint.manifest.root if c.checkpoint.manifest else None), "code"),
            words.short(c.checkpoint.uid),
            Span(c.checkpoint.path or "-", "code"),
        ]
        for c in shown
    ]
    head = ("Step", "Branch", "Status", "Marks", "Digest of its files", "Uid", "Place")
    if rows:
        more = f" ({len(rows)} of {len(facts.checkpoints)}: the newest, and all with a mark)"
        caption = "Checkpoints" + (more if len(rows) < len(facts.checkpoints) else "")
        section.blocks.append(Table(caption, head, rows))
    elif facts.segments:
        section.blocks.append(
            Para(
                [
                    "No checkpoint is on record. To have them: ",
                    Span("rec.checkpoint(path, step=step)", "code"),
                    " at each save.",
                ]
            )
        )
    return section


def _timeline(facts: Facts) -> Section:
    section = Section("timeline", "Timeline")
    events = facts.events
    cut = ""
    if len(events) > MOST_EVENTS:
        alarms = [e for e in events if e.alarm][: MOST_EVENTS // 2]
        others = [e for e in events if not e.alarm][-(MOST_EVENTS - len(alarms)) :]
        events = tuple(sorted([*alarms, *others], key=lambda e: e.at))
        cut = f" ({len(events)} of {len(facts.events)}: the first alarms, and the newest of the others)"
    rows: list[list[Inline]] = [
        [
            words.time(e.at),
            "-" if e.step is None else f"{e.step:,}",
            f"{'?' if e.segment is None else e.segment} / {e.rank}",
            Span(e.what, "bad" if e.alarm else "plain"),
            e.text,
        ]
        for e in events
    ]
    if rows:
        head = ("UTC", "Step", "Segment / rank", "What", "In words")
        section.blocks.append(Table(f"What happened, in order of time{cut}", head, rows))
    return section
