"""Sections on the run's course: the first bad cell, phases, charts, segments, checkpoints, timeline."""

from __future__ import annotations

from .._rooms import schemas
from ..judge import execution
from ..judge.phases import NOT_SHOWN
from ..judge.symptoms import TITLES
from . import grid_svg, grid_text, words
from . import phases as phases_
from .blocks import Block, Bullets, Chart, Inline, Map, Outline, Para, Section, Span, Style, Table
from .facts import BadFact, Facts
from .grid import Grid
from .outline import outline
from .series import non_finite
from .timeline import MOST_EVENTS, Event


def first_bad(facts: Facts) -> list[Section]:
    """The first bad cell of each segment that has one."""
    section = Section("first-bad", "First bad cell")
    for bad in facts.bads:
        section.blocks.extend(of_bad(facts, bad))
    if not facts.bads and facts.curves.values:
        section.blocks.append(Para("None: every recorded loss and gradient norm lies in its range."))
    elif not facts.bads and facts.segments:
        section.blocks.append(Para("Cannot tell: no loss and no gradient norm is recorded."))
    return [section]


def of_bad(facts: Facts, bad: BadFact, *, checks: bool = True) -> list[Block]:
    """What is known of one first bad cell, with its grids; `checks`: and what to check next."""
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
    items += [f"At the same point of the step also rank {t.rank}: {t.text}." for t in found.ties[:MOST_TIES]]
    if found.ties[MOST_TIES:]:
        items.append(f"And {execution.ranks(t.rank for t in found.ties[MOST_TIES:])}.")
    items += [f"{s.text}." for s in found.samples]
    if later:
        items.append(
            f"First checkpoint after it, which holds what it left: step {later.checkpoint.step:,} "
            f"({words.short(later.checkpoint.uid)})."
        )
    out: list[Block] = [Bullets(items)]
    if bad.grid.around is not None:
        out.append(_grid(bad, bad.grid.around))
    out.append(Bullets(_symptoms(found, checks=checks)))
    told: list[Inline] = [coded(f"How it spread: {s}.") for s in found.spread]
    told += [coded(f"Later, not the beginning: {s}.") for s in found.later]
    told += [coded(f"Not shown: {s}.") for s in found.not_shown]
    told += [[Span("Gap: ", "warn"), *coded(f"{g}.")] for g in found.gaps]
    out.append(Bullets(told))
    if bad.grid.map is not None and (len(bad.grid.map.columns) > 1 or len(bad.grid.map.rows) > 1):
        out.append(_map(bad, bad.grid.map, f"rank {cell.rank}, step {cell.step:,}"))
    return [block for block in out if not isinstance(block, Bullets) or block.items]


MOST_TIES = 3
"""Ranks at the same point of the step that are told each by its words."""


def _symptoms(found: schemas.FirstBad, *, checks: bool) -> list[Inline]:
    """The classes that it belongs to, and what to check next."""
    out: list[Inline] = []
    for s in found.symptoms:
        why = ". ".join([s.reason, *s.evidence])
        out.append([Span(f"Seen {TITLES.get(s.cls, s.cls)}: ", "strong"), *coded(f"{why}.")])
        for check in s.checks if checks else ():
            line: list[str | Span] = [Span("Check next: ", "quiet"), f"{check.text} ({check.source})."]
            out.append([*line, " ", Span(check.command, "code")] if check.command else line)
    return out


def coded(text: str) -> list[str | Span]:
    """A line whose parts between back ticks are code."""
    return [Span(part, "code") if i % 2 else part for i, part in enumerate(text.split("`"))]


def _map(bad: BadFact, grid: Grid, first: str) -> Map:
    said = grid_svg.words(grid, first)
    letters = grid_text.map_lines(bad.grid.in_letters())
    return Map(
        f"Segment {bad.segment}, all ranks and steps",
        said,
        grid_svg.svg(grid, said, f"{bad.segment}"),
        letters,
    )


SQUARE: dict[str, Style] = {
    "first": "bad",
    "tie": "bad",
    "bad": "warn",
    "stopped": "warn",
    "fine": "plain",
    "nothing": "quiet",
}


def _grid(bad: BadFact, grid: Grid) -> Table:
    rows: list[list[Inline]] = [
        [row.label, *(Span(s.text, SQUARE[s.kind]) for s in row.squares)] for row in grid.rows
    ]
    head = ["", *(f"step {s:,}" for s in grid.steps)]
    caption = f"Segment {bad.segment}, ranks and steps around the first bad cell"
    if grid.ranks > len(grid.rows):
        caption += f"; {grid.ranks:,} ranks, neighbours that look alike in one row"
    return Table(caption, head, rows, grid=True)


def sections(facts: Facts) -> list[Section]:
    """Phases, curves, where each segment came from, checkpoints, and what happened when."""
    return [phases(facts), _curves(facts), lineage(facts), _checkpoints(facts), _timeline(facts)]


def phases(facts: Facts) -> Section:
    """The phase table."""
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
        said = [w for s in facts.segments if (w := said_of(facts, s.number, s.uid, name))]
        if said:
            section.blocks.append(Chart(name, title, ". ".join(said) + "."))
    chosen = focus(facts)
    if chosen and (facts.curves.of(chosen[1], "grad_norm_local") or facts.curves.of(chosen[1], "grad_norm")):
        title = f"Gradient norm in segment {chosen[0]}: each rank before the reduction, and reduced"
        section.blocks.append(Chart("grad_norm", title, gradients_said(facts, chosen[1])))
    return section


def said_of(facts: Facts, number: int, uid: str, signal: str) -> str | None:
    """One line of a chart in words: where it begins and ends, and what it cannot show."""
    line = list(facts.curves.mean(uid, signal).items())
    if not line:
        return None
    (a, x), (b, y) = line[0], line[-1]
    text = f"Segment {number}: {words.number(x)} at step {a:,} to {words.number(y)} at step {b:,}"
    unseen = words.unseen_in_charts(non_finite(line), "it")
    return text + (f" ({unseen}, which no line can show)" if unseen else "")


def gradients_said(facts: Facts, uid: str) -> str:
    """The chart of gradient norms in words: what no line can show."""
    parts = []
    local = facts.curves.of(uid, "grad_norm_local")
    for signal, name in (("grad_norm_local", "before the reduction"), ("grad_norm", "reduced")):
        for rank, steps in facts.curves.of(uid, signal).items():
            unseen = words.unseen_in_charts(non_finite(steps.items()), f"rank {rank} {name}")
            if unseen:
                parts.append(unseen)
    head = f"{words.plural(len(local), 'rank')} recorded before the reduction"
    return head + (f". No line can show: {'; '.join(parts[:12])}." if parts else "; all values are finite.")


def lineage(facts: Facts) -> Section:
    """The lineage tree, and where each segment came from."""
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
    if events:
        head = ("UTC", "Step", "Segment / rank", "What", "In words")
        rows = [event_row(e) for e in events]
        section.blocks.append(Table(f"What happened, in order of time{cut}", head, rows))
    return section


def event_row(e: Event) -> list[Inline]:
    """One line of a timeline: when, at which step, where, what, in words."""
    return [
        words.time(e.at),
        "-" if e.step is None else f"{e.step:,}",
        f"{'?' if e.segment is None else e.segment} / {e.rank}",
        Span(e.what, "bad" if e.alarm else "plain"),
        e.text,
    ]
