"""What the commands of the debugging ladder share: the user's `build`, a batch, what is printed and written down."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from .._rooms import schemas
from .common import CliError, Exit, Json, console, emit, find

if TYPE_CHECKING:
    from ..replay.building import Built

With = Annotated[
    str,
    typer.Option(
        "--with", help="Your function that gives model, loss and batches, as your_module:build. It is run."
    ),
]
Into = Annotated[
    str | None,
    typer.Option(
        "--run",
        help="The run to write the result to; by default the run `ladder`, which holds what belongs to none.",
        show_default=False,
    ),
]
Record = Annotated[bool, typer.Option("--record/--no-record", help="Write the result into the ledger.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda:N; the CPU by default.")]

__all__ = ["Device", "Into", "Json", "Record", "With"]


def torch() -> Any:
    """The module. Raises `CliError` where it is not installed."""
    try:
        import torch as found
    except ImportError:
        raise CliError("this rung needs torch: `pip install 'runlineage[torch]'`", Exit.CANNOT_TELL) from None
    return found


def build(with_: str, device: str | None = None, *, needs: Sequence[str] = ()) -> Built:
    """What the user's `build` gives; `needs`: names that it has to give for this rung. Raises `CliError`."""
    if not with_:
        raise CliError(
            "--with names the function of yours that gives model, loss, optimizer and batches: --with "
            "your_module:build. examples/ladder_build.py is one to begin with; docs/ladder.md says what it returns"
        )
    torch()
    from ..replay import building

    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    given = building.Given(
        step=0, rank=rank, world_size=world, device=device or "cpu", checkpoint=None, config={}
    )
    try:
        built = building.build(building.find(with_), given)
    except building.BuildError as e:
        raise CliError(str(e)) from None
    lacks = [name for name in needs if getattr(built, name) is None]
    if lacks:
        wanted = ", ".join(f"'{name}': ..." for name in lacks)
        raise CliError(
            f"this rung needs more of build: return {{{wanted}}} with the model, see docs/ladder.md"
        )
    return built


def batches(built: Built, least: int = 1) -> list[Any]:
    """The first `least` micro-batches that `build` gives. Raises `CliError` where there are fewer."""
    given = built.batches() if callable(built.batches) else built.batches
    if given is None or not isinstance(given, Iterable):
        raise CliError(
            "build gave no batches: return {'batches': loader} with the model, where loader gives micro-batches as "
            "training has them; or a function that gives one"
        )
    found = [b for b, _ in zip(given, range(least), strict=False)]
    if len(found) < least:
        raise CliError(f"build gave {len(found)} batches, and {least} are needed")
    return found


def finish(rung: schemas.Rung, run: str | None, *, record: bool, as_json: bool) -> None:
    """Write a rung down, print it, and end with its exit code: 0 pass, 1 fail, 4 cannot tell."""
    place = None
    if record:
        from ..ladder.recording import record as write

        place = write(rung, find(run).ledger.path if run else None)
    if as_json:
        emit(rung)
    else:
        show(rung, place)
    raise typer.Exit(EXITS[rung.outcome])


EXITS = {"pass": Exit.OK, "fail": Exit.FOUND, "cannot_tell": Exit.CANNOT_TELL}
WORDS = {"pass": "[green]pass[/]", "fail": "[bold red]FAIL[/]", "cannot_tell": "[yellow]cannot tell[/]"}


def show(rung: schemas.Rung, place: Path | None) -> None:
    """Print a rung: the result first, then each question, then what it does not show."""
    title = rung.rung.replace("_", " ")
    console.print(f"{WORDS[rung.outcome]}  [bold]{title}[/]: {escape(rung.text)}")
    for a in rung.answers:
        console.print(f"  {WORDS[a.outcome]}  {a.question}: {escape(a.text)}")
        for cause in a.look_at if a.outcome == "fail" else ():
            console.print(f"          look at: {escape(cause)}", style="dim")
    if rung.recipe is not None:
        made = f", built by {rung.recipe.built_by}" if rung.recipe.built_by else ""
        console.print(
            f"recipe {rung.recipe.digest[:19]}: {escape(str(rung.recipe.model))}{escape(made)}", style="dim"
        )
    for limit in rung.limits:
        console.print(f"not shown: {escape(limit)}", style="dim")
    if place is not None:
        console.print(f"written down in {escape(str(place))}", style="dim")
