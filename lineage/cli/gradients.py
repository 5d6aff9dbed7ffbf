"""`lineage gradients`: gradients and one update of every parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from . import rung
from .common import Json, console

if TYPE_CHECKING:
    from ..judge.gradient_report import Row

NAME = "gradients"


def command(
    with_: rung.With = "",
    every: Annotated[bool, typer.Option("--all", help="Print every parameter, not the first 40.")] = False,
    device: rung.Device = None,
    run: rung.Into = None,
    record: rung.Record = True,
    as_json: Json = False,
) -> None:
    """Which parameters have no gradient, norms by depth, update over weight, and weight decay on norms and biases."""
    built = rung.build(with_, device, needs=["loss"])
    assert built.loss is not None  # asked for
    from ..ladder.gradients import gradient_report

    (batch,) = rung.batches(built)
    found, rows = gradient_report(
        built.model, built.loss, batch, optimizer=built.optimizer, config=built.config, built_by=with_
    )
    if not as_json:
        show(rows, 1 << 30 if every else 40)
    rung.finish(found, run, record=record, as_json=as_json)


def show(rows: Sequence[Row], most: int) -> None:
    """Print a row for each parameter, in the order of the model."""
    table = Table("parameter", box=None, pad_edge=False)
    for name in ("elements", "weight", "gradient", "update", "update/weight", "decay"):
        table.add_column(name, justify="right")
    for r in rows[:most]:
        table.add_row(
            escape(r.name) + ("" if r.trainable else " [dim](frozen)[/]"),
            f"{r.elements:,}",
            f"{r.weight:.4g}",
            "[bold red]none[/]" if r.gradient is None and r.trainable else _number(r.gradient),
            _number(r.update),
            _number(r.ratio),
            "-" if r.decay is None else f"{r.decay:g}",
        )
    console.print(table)
    if len(rows) > most:
        console.print(f"and {len(rows) - most:,} further parameters: --all prints them", style="dim")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
