"""`lineage reference`: a model beside trusted code with the same weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from . import rung
from .common import CliError, Exit, Json, console

if TYPE_CHECKING:
    from ..ladder.reference import Layer

NAME = "reference"


def command(
    with_: rung.With = "",
    every: Annotated[
        bool, typer.Option("--all", help="Print every pair of modules, not the first 40.")
    ] = False,
    device: rung.Device = None,
    run: rung.Into = None,
    record: rung.Record = True,
    as_json: Json = False,
) -> None:
    """Hold a model against trusted code with the same weights: the first layer that makes a difference."""
    built = rung.build(with_, device, needs=["reference"])
    from ..ladder.reference import NotComparable, compare_models

    (batch,) = rung.batches(built)
    try:
        found, layers = compare_models(
            built.model,
            built.reference,
            batch,
            names=built.names,
            weights=built.weights,
            call=built.call,
            call_reference=built.call_reference,
            built_by=with_,
        )
    except NotComparable as e:
        raise CliError(str(e), Exit.CANNOT_TELL) from None
    if not as_json:
        show(layers, 1 << 30 if every else 40)
    rung.finish(found, run, record=record, as_json=as_json)


def show(layers: Sequence[Layer], most: int) -> None:
    """Print a row for each pair, in the order in which the reference finishes them."""
    table = Table("module", "reference", box=None, pad_edge=False)
    table.add_column("inputs differ by", justify="right")
    table.add_column("outputs differ by", justify="right")
    for x in layers[:most]:
        table.add_row(escape(x.ours), escape(x.theirs), _number(x.given), _number(x.made))
    console.print(table)
    if len(layers) > most:
        console.print(f"and {len(layers) - most:,} further pairs: --all prints them", style="dim")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    shown = "0" if value == 0 else f"{value:.2g}"
    return f"[bold red]{shown}[/]" if not value < 1e-4 else shown
