"""`lineage canary`: a short fixed job before and after a change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError
from rich.markup import escape

from .._rooms import schemas
from . import rung
from .common import CliError, Exit, Json, console, emit

if TYPE_CHECKING:
    from ..replay.building import Built

NAME = "canary"
app = typer.Typer(
    no_args_is_help=True, help="A short fixed job, recorded before a change and made again after it."
)
File = Annotated[Path, typer.Argument(help="The canary's file.", show_default=False)]
Note = Annotated[
    list[str] | None,
    typer.Option(help="A condition of this side, as compile=on; repeatable.", show_default=False),
]


@app.command("record")
def record(
    file: File,
    with_: rung.With = "",
    steps: Annotated[int, typer.Option(min=1, help="Updates.")] = 10,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds; three have a spread.")] = 3,
    note: Note = None,
    device: rung.Device = None,
    as_json: Json = False,
) -> None:
    """Make the job and keep its losses and digests in a file."""
    make = _make(with_, device)
    from ..ladder import canary

    with _group():
        try:
            found = canary.record(
                make, steps=steps, seeds=range(seeds), conditions=_noted(note), built_by=with_
            )
        except ValueError as e:
            raise CliError(str(e)) from None
    if int(os.environ.get("RANK", "0")) != 0:
        return
    file.write_text(found.model_dump_json(by_alias=True, indent=1) + "\n", encoding="utf-8")
    if as_json:
        emit(found)
        return
    again = "gives the same bits" if found.repeats else "gives other bits: only the spread can be judged"
    first, last = found.runs[0].losses[0], found.runs[0].losses[-1]
    console.print(
        f"{steps} steps with {seeds} seeds: loss {first:.4g} to {last:.4g}; one seed run twice {again}"
    )
    name = escape(str(file))
    console.print(f"kept in {name}; after the change: lineage canary check {name} --with {escape(with_)}")


@app.command("check")
def check(
    file: File,
    with_: rung.With = "",
    bitwise: Annotated[bool, typer.Option("--bitwise", help="Let nothing pass but equal bits.")] = False,
    note: Note = None,
    write: Annotated[Path | None, typer.Option(help="Keep this side in a file too.")] = None,
    device: rung.Device = None,
    run: rung.Into = None,
    record_: rung.Record = True,
    as_json: Json = False,
) -> None:
    """Make the job again: equal bit for bit, within the spread of seeds, or different, and where first."""
    before = _read(file)
    make = _make(with_, device)
    from ..ladder import canary

    with _group():
        try:
            found, after = canary.check(
                before, make, conditions=_noted(note), built_by=with_, bitwise=bitwise
            )
        except ValueError as e:
            raise CliError(str(e)) from None
    if int(os.environ.get("RANK", "0")) != 0:
        raise typer.Exit(rung.EXITS[found.outcome])
    if write is not None:
        write.write_text(after.model_dump_json(by_alias=True, indent=1) + "\n", encoding="utf-8")
    rung.finish(found, run, record=record_, as_json=as_json)


def _make(with_: str, device: str | None) -> Any:
    def make(rank: int, world: int) -> Built:
        return rung.build(with_, device)

    rung.torch()
    return make


def _group() -> Any:
    """Under torchrun the ranks make the job together: a process group over gloo or NCCL where `build` made none."""
    import contextlib

    import torch

    @contextlib.contextmanager
    def opened() -> Any:
        mine = int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch.distributed.is_initialized()
        if mine:
            torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        try:
            yield
        finally:
            if mine:
                torch.distributed.destroy_process_group()

    return opened()


def _read(file: Path) -> schemas.Canary:
    """The file's canary. Raises `CliError`."""
    try:
        return schemas.Canary.model_validate_json(file.read_bytes())
    except OSError as e:
        raise CliError(
            f"{file} cannot be read ({e.strerror}): `lineage canary record {file} --with ...` makes it"
        ) from None
    except ValidationError as e:
        first = e.errors()[0]
        at = ".".join(map(str, first["loc"])) or "the whole"
        raise CliError(f"{file} is no canary: {at}: {first['msg']}", Exit.DAMAGED) from None


def _noted(note: list[str] | None) -> dict[str, str]:
    out = {}
    for one in note or ():
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise CliError(f"--note takes NAME=VALUE, as compile=on; not {one!r}")
        out[name] = value
    return out
