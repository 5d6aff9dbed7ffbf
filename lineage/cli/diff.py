"""`lineage diff`: requested beside effective, between two checkpoints, two runs, or along one run."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from .._rooms import schemas
from ..judge import columns
from ..judge import pairs as judge
from ..judge.drift import alters, requested_only
from . import joining, pairs
from .common import Exit, Json, console, damage, emit, ending, find, step_text, table
from .compare import two_columns

NAME = "diff"

Name = Annotated[str | None, typer.Argument(help="A run or a checkpoint.", show_default=False)]


def command(a: Name = None, b: Name = None, as_json: Json = False) -> None:
    """Show what differs: between A and B as they stand, or at each restart of one run."""
    if b is not None:
        sides = (joining.named(a), joining.named(b))
        found = pairs.compare(*sides)
        damaged = joining.damage(sides)
        drifts = [judge.difference(found.a, found.b)]
        if as_json:
            emit(drifts)
        else:
            two_columns(columns.rows(found.a, found.b, drifts[0]))
    else:
        ledger = find(a).ledger
        damaged = damage(ledger)
        drifts = [r.payload for r in ledger.of("drift")]
        if as_json:
            emit(drifts)
        for drift in () if as_json else drifts:
            show(drift)
        if not drifts and not as_json and not damaged:
            console.print("This run has one segment and no change was found in it.")
    code = Exit.FOUND if any(alters(c) for d in drifts for c in d.changes) else Exit.OK
    raise ending(code, damaged, as_json=as_json)


def show(drift: schemas.Drift) -> None:
    """Print a drift as a table."""
    console.print(
        f"[bold]from step {step_text(drift.from_step)}[/]"
        + ("  [bold]confounded[/]" if drift.confounded else "")
    )
    rows = table("class", "concept", "requested before", "after", "effective before", "after", "")
    for c in [*drift.changes, *drift.unclassified]:
        note = "not in effect" if requested_only(c) else "declared" if c.mitigation else "undeclared"
        rows.add_row(
            c.cls if c.cls != "unclassified" else "?",
            escape(c.title),
            *(
                escape(_text(v))
                for v in (c.requested_before, c.requested_after, c.effective_before, c.effective_after)
            ),
            note,
        )
    console.print(rows if drift.changes or drift.unclassified else "nothing differs")
    for concept, why in drift.not_shown.items():
        console.print(f"  [cyan]not shown:[/] {escape(concept)} [dim]({escape(why)})[/]")
    console.print()


def _text(value: schemas.Scalar | None) -> str:
    if value is None:
        return "-"
    text = value.text()
    return text if len(text) <= 60 else text[:57] + "..."
