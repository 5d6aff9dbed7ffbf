"""How `lineage first-bad` shows what it found: the cell, its class, how it spread, and the grid."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from rich.markup import escape

from .._rooms import schemas
from ..judge import seen as seen_
from ..judge.graph import Node
from ..judge.seen import Seen
from ..judge.symptoms import TITLES
from ..ledger import audited, sources
from ..report import grid, grid_text
from ..report.grid import Kind, Source
from . import judging
from .common import Subject, console, short, step_text

ROWS = 20
"""Rows of the map in a terminal."""
PAINT: dict[Kind, str] = {
    "first": "bold white on red",
    "tie": "bold red reverse",
    "bad": "red",
    "stopped": "yellow",
    "nothing": "dim",
}
FEW = 24
"""Steps up to which a part that was asked for is shown in words."""


@dataclass(frozen=True)
class Zoom:
    """Which grid was asked for."""

    all: bool = False
    ranks: tuple[int, int] | None = None
    steps: tuple[int, int] | None = None

    @property
    def wanted(self) -> bool:
        """Whether a grid was asked for at all."""
        return self.all or self.ranks is not None or self.steps is not None


def source(subject: Subject, uid: str, found: schemas.FirstBad) -> Source:
    """What the grid of a segment is laid out from."""
    return Source.of(found, subject.cells.of(uid), subject.cells.seen.get(uid, Seen()))


def show(subject: Subject, found: schemas.FirstBad, zoom: Zoom, beside: Sequence[str] = ()) -> None:
    """Print the first bad cell for a person."""
    cell = found.cell
    assert cell is not None
    where = f"layer {cell.layer}" if cell.layer else ""
    if cell.tensor:
        where = f"tensor {cell.tensor}"
    console.print(
        f"[bold red]First bad: rank {cell.rank}, step {step_text(cell.step)}{escape(f', {where}' if where else '')}[/] "
        f"(segment {subject.graph.number(cell.segment)})"
    )
    console.print(f"  {escape(cell.text)}")
    for where in sources.at(subject.ledger.path, cell.segment, cell.rank, cell.step):
        if where not in cell.text:
            console.print(f"  read from {escape(where)}")
    if found.place is not None and found.place.node != schemas.IMPORTED:
        device = "" if found.place.device == "cpu" else f", device {found.place.device}"
        console.print(
            f"  on node {escape(found.place.node)}, local rank {found.place.local_rank}{escape(device)}"
        )
    _ties(found)
    for s in found.samples:
        console.print(f"  {escape(s.text)}")
    _checkpoints(subject, found)
    console.print()
    grids(source(subject, cell.segment, found), zoom)
    _symptoms(found)
    tensors = judging.tensors(subject, cell)
    _list(f"\nby tensor, on rank {cell.rank}:", tensors)
    _list("\nhow it spread:", found.spread)
    _list("\nlater, not the beginning:", found.later)
    _list("\nat the same time (not shown to be the cause):", beside)
    _list("\nnot shown:", found.not_shown)
    gaps(found.gaps, subject.cells.notes)
    path = escape(str(subject.ledger.path))
    if cell.abnormal == "differs":
        console.print(f"\nsee also: [bold]lineage ranks {path}[/]  (all that differs between ranks)")
    if subject.ledger.of("preserved"):
        console.print(f"\nnext: [bold]lineage incident {path}[/]  (what is done, and what is next)")
    else:
        console.print(f"\nnext: [bold]lineage incident preserve {path}[/]  (before any restart)")


def _ties(found: schemas.FirstBad) -> None:
    """Other ranks at the same point of the step: each by its words, many in one line."""
    for tie in found.ties[:3]:
        console.print(f"  at the same point of the step also rank {tie.rank}: {escape(tie.text)}")
    more = found.ties[3:]
    if more:
        from ..judge.execution import ranks

        console.print(f"  and {ranks(t.rank for t in more)}")


def _checkpoints(subject: Subject, found: schemas.FirstBad) -> None:
    console.print(f"\nlast good step        {step_text(found.last_good_step)}")
    node = subject.graph.nodes.get(found.last_good_checkpoint or "")
    if node:
        console.print(
            f"last good checkpoint  step {step_text(node.checkpoint.step)}, {short(node.uid)}, "
            f"{escape(node.checkpoint.path or '-')}{_files(node)}"
        )
    else:
        console.print("last good checkpoint  none is recorded before that step")
    bad = subject.graph.nodes.get(found.first_bad_checkpoint or "")
    if bad:
        console.print(
            f"first bad checkpoint  step {step_text(bad.checkpoint.step)}, {escape(bad.checkpoint.path or '-')}"
            f"{_files(bad)}"
        )


def _files(node: Node) -> str:
    """Whether a checkpoint is complete by its record, and still there; what its files hold is another question."""
    told = {
        "there": "something is there: `lineage checkpoint verify` says whether it is what was saved",
        "gone": "[bold red]not there any more[/]",
        "elsewhere": "not on this machine, not looked at",
        "deleted": "deleted, by the record",
        "no path": "where it lies is not on record",
    }[audited.whereabouts(node)]
    return f"\n{'':22}[dim]{node.checkpoint.status} by its record;[/] {told}"


def _symptoms(found: schemas.FirstBad) -> None:
    """The classes with their reasons, and of each what to check next."""
    for s in found.symptoms:
        console.print(f"\n[bold]seen {TITLES.get(s.cls, s.cls)}[/]: {escape(s.reason)}")
        for line in s.evidence:
            console.print(f"  {escape(line)}")
        for n, check in enumerate(s.checks[:CHECKS], 1):
            how = f"  [bold]{escape(check.command)}[/]" if check.command else ""
            console.print(f"  check {n}: {escape(check.text)}{how}")


CHECKS = 2
"""Checks of a class that stand here; `--json` and the report have all."""


def _list(title: str, lines: Sequence[str]) -> None:
    if lines:
        console.print(escape(title))
        for line in lines:
            console.print(f"  {escape(line)}")


def gaps_of(seen: Seen) -> list[str]:
    """What a segment does not show of its ranks, to its end; and that it has none on record."""
    return [*seen_.gaps(seen, None), *seen_.unended(seen)]


def gaps(found: Sequence[str], notes: Sequence[str]) -> None:
    """Print what the ledger does not show, and what was not judged."""
    for line in found:
        console.print(f"[yellow]gap:[/] {escape(line)}")
    for line in notes:
        console.print(f"[yellow]not judged:[/] {escape(line)}")


def _paint(text: str, kind: Kind) -> str:
    style = PAINT.get(kind)
    return f"[{style}]{escape(text)}[/]" if style else escape(text)


def grids(laid: Source, zoom: Zoom) -> None:
    """Print the grid: in words around the first bad step, or what was asked for."""
    width = shutil.get_terminal_size((100, 24)).columns
    few = zoom.steps is not None and zoom.steps[1] - zoom.steps[0] < FEW
    if not zoom.all or few:
        steps = zoom.steps if few else None
        if zoom.steps is None or few:
            found = grid.around(laid, after=6 if width >= WIDE else grid.AFTER, ranks=zoom.ranks, steps=steps)
            _print_words(found, width)
            return
    rough = grid.overview(laid, rows=ROWS, columns=1, ranks=zoom.ranks, steps=zoom.steps)
    if rough is None:
        console.print("nothing is recorded there")
        return
    fits = grid_text.columns_of(width, rough)
    found = grid.overview(laid, rows=ROWS, columns=fits, ranks=zoom.ranks, steps=zoom.steps) or rough
    for line in grid_text.map_lines(found, _paint):
        console.print(line, soft_wrap=True)
    if zoom.ranks is None and zoom.steps is None and laid.first is not None:
        console.print()
        _print_words(grid.around(laid), width)


WIDE = 110
"""Characters of a terminal that is wide."""


def _print_words(found: grid.Grid | None, width: int) -> None:
    if found is None or not found.rows:
        console.print("nothing is recorded there" if found is None else escape(found.note))
        return
    for line in grid_text.words(found, width, _paint):
        console.print(line, soft_wrap=True)
    console.print(f"[dim]({grid.TAGGED})[/]")
    if found.ranks > len(found.rows):
        note = f"{found.note}; " if found.note else ""
        console.print(
            f"[dim]({found.ranks:,} ranks, {note}those that look alike in one row; all: --grid, a part: "
            "--ranks A-B --steps A-B)[/]"
        )
