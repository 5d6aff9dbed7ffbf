"""`lineage tree`: where every segment and checkpoint came from, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text
from rich.tree import Tree

from ..judge import ancestry
from ..judge import tree as tree_
from ..report import odd, outline
from ..report.blocks import Style, Twig, spans
from . import joining, oddities
from .common import Exit, Json, console, emit, ending, find
from .joining import Lone, Named

NAME = "tree"

RICH: dict[Style, str] = {
    "plain": "",
    "strong": "bold",
    "code": "bold",
    "quiet": "dim",
    "bad": "bold red",
    "warn": "yellow",
    "good": "green",
}


def command(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="Runs (ledger folder, id or name) or checkpoint folders; several are joined. Nothing: the latest run.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Unfold long chains of checkpoints.")] = False,
    as_json: Json = False,
) -> None:
    """Draw the lineage: segments, checkpoints, forks, abandoned branches, and hand-made states of several parents.

    The line that survives stands flat, side branches under the checkpoint they start from. Each state has its
    mark of validity; one that is left out is that of its segment.
    """
    named: list[Named] = [joining.named(w) for w in what] if what else [find(None)]
    world = joining.world(named, follow=False)
    roots = tree_.forest(world, every=every, twins=ancestry.twins(world))
    if as_json:
        emit({"roots": [asdict(r) for r in roots], "damage": world.damage, "odd": odd.odd(world.records)})
    else:
        show(outline.outline(roots, _places(named)))
        if not roots:
            console.print("No segment of training is on record.")
        oddities.tell(world.records)
    raise ending(_code(roots), world.damage, as_json=as_json)


def _places(named: Sequence[Named]) -> dict[str, str]:
    return {
        (n.sidecar.run if isinstance(n, Lone) else n.ledger.run): str(
            n.path if isinstance(n, Lone) else n.ledger.path
        )
        for n in named
    }


def show(twigs: Sequence[Twig]) -> None:
    """Print an outline as a tree."""
    for twig in twigs:
        top = Tree(_text(twig), guide_style="dim")
        _grow(top, twig.under)
        console.print(top, soft_wrap=False)


def _grow(tree: Tree, twigs: Sequence[Twig]) -> None:
    for twig in twigs:
        _grow(tree.add(_text(twig)), twig.under)


def _text(twig: Twig) -> Text:
    text = Text()
    for s in spans(twig.text):
        text.append(s.text, style=RICH[s.style])
    return text


def _code(roots: Sequence[tree_.Root]) -> int:
    """1 where the newest state of a run is broken; the tree alone judges nothing else."""
    newest = [p for r in roots for p in _parts(r.line) if p.state == "newest"]
    return Exit.FOUND if any(p.verdict == "broken" for p in newest) else Exit.OK


def _parts(line: tree_.Line) -> list[tree_.Part]:
    out: list[tree_.Part] = []
    for p in line.parts:
        out.append(p)
        for i in p.items:
            if isinstance(i, tree_.Item):
                out += [x for b in i.under for x in _parts(b)]
    return out
