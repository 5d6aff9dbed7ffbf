"""`lineage checkpoint`: what is in a checkpoint's files, and what a resume from them would miss."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from ..checkpoints import SEVERITIES, CheckpointError, Contents, Tensor, look
from ..checkpoints.errors import NoStore
from .commands import Lazily
from .common import CliError, Exit, Json, console, emit, table
from .progress import size

NAME = "checkpoint"
_SHOWN = 40
_SAID = {
    "fails": "a resume would fail",
    "differs": "a resume would silently differ",
    "fine": "a resume would be fine",
}
_STYLE = {"fails": "bold red", "differs": "yellow", "fine": "green"}
_STATUS = {
    "by_design": "by design",
    "present": "present",
    "partial": "PARTIAL",
    "missing": "MISSING",
    "unknown": "unknown",
}


class _Default(TyperGroup):
    """A group whose command `show` may be left out: `lineage checkpoint PATH`."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        others = {
            "verify": "checkpoint_verify:verify",
            "preserve": "checkpoint_preserve:preserve",
            "hold": "checkpoint_preserve:hold",
            "release": "checkpoint_preserve:release",
            "compare": "checkpoint_state:compare",
        }
        self.commands = Lazily(others, self.commands)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = args and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if known or not args else ["show", *args])


app = typer.Typer(
    cls=_Default,
    no_args_is_help=True,
    help="What is in a checkpoint's files, and what a resume from them would miss: lineage checkpoint PATH.",
)


@app.callback()
def _group() -> None:
    """A group, though one command alone is known before it is asked for the others."""


@app.command("show")
def command(
    path: Annotated[
        str,
        typer.Argument(
            help="A checkpoint's folder or file, or its URL (s3://, gs://, memory://).", show_default=False
        ),
    ],
    world: Annotated[
        int | None, typer.Option("--world", min=1, help="Ranks that would resume.", show_default=False)
    ] = None,
    tensors: Annotated[bool, typer.Option("--tensors", help="List the tensors and their places.")] = False,
    digest: Annotated[bool, typer.Option("--digest", help="Digest an unknown folder, however big.")] = False,
    fail_on: Annotated[
        str, typer.Option(help="The least severity that gives exit code 1: fails, differs, fine.")
    ] = "differs",
    as_json: Json = False,
) -> None:
    """Tell format, components, shards and step without loading a tensor or running code from the files."""
    if fail_on not in SEVERITIES:
        raise CliError(f"--fail-on takes fails, differs or fine, not {fail_on!r}")
    gc.disable()  # a command's life is short, and the metadata of many ranks is a million small objects
    try:
        found = look(path, world=world, digest=digest)
    except CheckpointError as e:
        code = Exit.CANNOT_TELL if isinstance(e, NoStore) else Exit.USAGE
        raise CliError(f"{e}. Name a checkpoint's folder or file.", code) from None
    if as_json:
        emit(_plain(found))
    else:
        _print(found, tensors=tensors)
    if found.format == "opaque":
        raise typer.Exit(Exit.CANNOT_TELL)
    least = SEVERITIES.index(fail_on)
    hit = any(SEVERITIES.index(f.severity) >= least for f in found.findings)
    raise typer.Exit(Exit.FOUND if hit else Exit.OK)


def _print(c: Contents, *, tensors: bool) -> None:
    console.print(f"[bold]{escape(c.path)}[/]")
    step = f"step {c.step:,} ({escape(c.step_from)})" if c.step is not None else "step not told"
    ranks = f", {c.world:,} rank{'s' if c.world > 1 else ''}" if c.world else ""
    console.print(f"{escape(c.title)}: {step}{ranks}; {c.files:,} files, {size(c.bytes)}")
    if c.parts:
        rows = table("component", "status", "what is there")
        for name, part in c.parts.items():
            rows.add_row(name, _STATUS[part.status], escape(part.text))
        console.print(rows)
    if c.tensors:
        kinds = ", ".join(f"{n:,} {k}" for k, n in _count(c.tensors))
        console.print(f"tensors: {kinds}")
    if tensors:
        _tensors(c.tensors)
    for f in c.findings:
        sure = "" if f.certain else " (not certain)"
        console.print(
            f"\n[{_STYLE[f.severity]}]{_SAID[f.severity]}{sure}[/]  [bold]{f.code}[/] {escape(f.text)}"
        )
        console.print(f"  do: {escape(f.remedy)}")
    for name, value in list(c.digests.items())[:_SHOWN]:
        console.print(f"  {value}  {escape(name)}")
    if len(c.digests) > _SHOWN:
        console.print(f"  and {len(c.digests) - _SHOWN:,} more files; --json has all")
    if not c.findings:
        console.print("[green]nothing is missing that a resume needs, as far as the files tell[/]")
    console.print(
        f"[dim]read {size(c.bytes_read)} in {c.opened:,} files; no tensor was loaded, no code was run[/]"
    )


def _tensors(tensors: list[Tensor]) -> None:
    rows = table("tensor", "dtype", "shape", "where")
    for t in tensors:
        first = t.pieces[0] if t.pieces else None
        where = (
            "-"
            if first is None
            else first.file + (f" at {first.offset:,}" if first.offset is not None else "")
        )
        more = f" and {len(t.pieces) - 1} more" if len(t.pieces) > 1 else ""
        rows.add_row(escape(t.name), t.dtype, str(list(t.shape)), escape(where) + more)
    console.print(rows)


def _count(tensors: Iterable[Tensor]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for t in tensors:
        key = f"{t.component} {t.dtype}"
        counts[key] = counts.get(key, 0) + 1
    return sorted(counts.items(), key=lambda kv: -kv[1])[:6]


def _plain(c: Contents) -> dict[str, Any]:
    return {
        "path": c.path,
        "format": c.format,
        "title": c.title,
        "step": c.step,
        "step_from": c.step_from,
        "world": c.world,
        "worst": c.worst,
        "components": [
            {"component": p.component, "status": p.status, "text": p.text, "files": p.files}
            for p in c.parts.values()
        ],
        "findings": [
            {
                "code": f.code,
                "severity": f.severity,
                "certain": f.certain,
                "component": f.component,
                "text": f.text,
                "remedy": f.remedy,
            }
            for f in c.findings
        ],
        "shards": c.shards,
        "tensors": [
            {
                "name": t.name,
                "dtype": t.dtype,
                "shape": list(t.shape),
                "elements": math.prod(t.shape),
                "component": t.component,
                "pieces": [
                    {"file": p.file, "offset": p.offset, "bytes": p.length, "at": list(p.at)}
                    for p in t.pieces
                ],
            }
            for t in c.tensors
        ],
        "facts": {k: v for k, v in c.facts.items() if isinstance(v, str | int | float | bool) or v is None},
        "digests": c.digests,
        "files": c.files,
        "bytes": c.bytes,
        "files_opened": c.opened,
        "bytes_read": c.bytes_read,
    }
