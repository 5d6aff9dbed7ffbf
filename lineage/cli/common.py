"""What all commands share: finding the ledger that is meant, exit codes, and the two forms of output."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .._rooms import schemas
from ..judge import graph
from ..ledger import layout, reader, sidecars
from ..recorder.settings import resolve

if TYPE_CHECKING:
    from ..ledger.cells import Cells
    from ..ledger.scan import Damage

console = Console(highlight=False, soft_wrap=True)
errors = Console(stderr=True, highlight=False, soft_wrap=True)


class Exit(IntEnum):
    """The exit codes of every command."""

    OK = 0
    FOUND = 1
    USAGE = 2
    DAMAGED = 3
    CANNOT_TELL = 4


class CliError(Exception):
    """An error for a person: what was found, where, and what to do next."""

    def __init__(self, text: str, code: Exit = Exit.USAGE) -> None:
        super().__init__(text)
        self.code = code


Run = Annotated[
    str | None,
    typer.Argument(
        help="A run (ledger folder, id or name; run:2 for its segment 2), a checkpoint (folder, file, uid, or "
        "run@step), or nothing for the latest run.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@dataclass
class Subject:
    """What a command is asked about: a ledger, and a checkpoint in it where one was named."""

    ledger: reader.Ledger
    checkpoint: str | None = None
    segment: str | None = None

    @property
    def tip(self) -> str:
        """The segment that is meant: the one named, else the newest."""
        return self.segment or list(self.graph.segments)[-1]

    @cached_property
    def graph(self) -> graph.Graph:
        """The lineage graph of the ledger."""
        return graph.build(self.ledger.records, reached=self.ledger.reached)

    @cached_property
    def cells(self) -> Cells:
        """The abnormal cells of the ledger, and what it holds of its ranks."""
        from ..ledger import cells

        return cells.find(self.ledger)


def root() -> Path:
    """The folder of all ledgers, from the settings."""
    return Path(str(resolve().dir)).expanduser().absolute()


def find(name: str | None, *, urls: bool = False) -> Subject:
    """Find what was named. Raises `CliError` that says where was looked.

    `urls`: whether the command reads ledgers in stores too: not those that write into one, or need all of its files.
    """
    if name is None:
        return Subject(_latest())
    if "://" in name:
        if not urls:
            raise CliError(
                f"this command needs the ledger's folder, and {name} is a URL; `lineage first-bad` reads it"
            )
        return Subject(_remote(name))
    path = Path(name).expanduser()
    if layout.is_ledger(path):
        return Subject(reader.open_ledger(path))
    if layout.is_ledger(root() / name):
        return Subject(reader.open_ledger(root() / name))
    inside = reader.find(path) if path.is_dir() else []
    if inside:
        return Subject(reader.Ledger(inside[0]))
    if path.exists():
        return _from_checkpoint(path)
    from .naming import by_name

    named = by_name(name)
    if named is not None:
        return named
    raise CliError(
        f"{name} is no ledger, no run in {root()} (by id, name, or as run:segment or run@step), and no checkpoint "
        "known there. "
        "`lineage show --all` lists the runs; --dir or LINEAGE_DIR names another folder."
    )


def _remote(url: str) -> reader.Ledger:
    from ..fleet import remote

    try:
        return remote.open_url(url)
    except remote.NoStore as e:
        raise CliError(str(e), Exit.CANNOT_TELL) from None


def _latest() -> reader.Ledger:
    here = Path.cwd()
    found = [here] if layout.is_ledger(here) else reader.find(root())
    if not found:
        raise CliError(
            f"there is no ledger in {root()}. Name a run's folder, set LINEAGE_DIR, or make one: `lineage demo`."
        )
    return reader.Ledger(found[0])


def _from_checkpoint(path: Path) -> Subject:
    try:
        sidecar = sidecars.read(path)
    except sidecars.SidecarError as e:
        raise CliError(str(e), Exit.DAMAGED) from None
    if sidecar is None:
        raise CliError(f"LIN-C001: {path} is no ledger, and no checkpoint with a lineage.json")
    for ledger in (Path(sidecar.ledger or ""), root() / sidecar.run):
        if sidecar.ledger and layout.is_ledger(ledger):
            return Subject(reader.Ledger(ledger), sidecar.checkpoint.uid)
    raise CliError(
        f"{path} belongs to run {sidecar.run}, whose ledger was {sidecar.ledger}; it is not there now, and not in "
        f"{root()}. Name its folder.",
        Exit.CANNOT_TELL,
    )


def damage(ledger: reader.Ledger) -> list[str]:
    """What of a ledger could not be read, place by place; a torn last line was never acknowledged."""
    return [f"{d.file} line {d.line}: {d.title}" for d in ledger.damage if d.code != "LIN-J001"]


def damage_rows(found: Sequence[Damage]) -> list[dict[str, Any]]:
    """Damage of a ledger, as the commands give it as JSON."""
    return [{"code": d.code, "kind": d.title, "file": d.file, "line": d.line, "text": d.text} for d in found]


def ending(code: int, damaged: Sequence[str], *, as_json: bool = False) -> typer.Exit:
    """The end of a command that read ledgers: says their damage, and exits with 3 where there is some.

    With JSON the damage stands on stderr, so that stdout stays JSON.
    """
    out = errors if as_json else console
    for text in damaged[:MOST_DAMAGE]:
        out.print(f"[bold red]damaged:[/] {escape(text)}")
    if damaged:
        more = len(damaged) - MOST_DAMAGE
        further = f"and {more:,} further places; " if more > 0 else ""
        out.print(f"{further}what stood there is missing above; [bold]lineage verify[/] says more")
    return typer.Exit(Exit.DAMAGED if damaged else code)


MOST_DAMAGE = 3
"""Damaged places that a command names; `lineage verify` names all."""


def emit(data: Any) -> None:
    """Print data as JSON; NaN and infinities as the strings that records use."""
    typer.echo(json.dumps(jsonable(data), indent=1, ensure_ascii=False))


def jsonable(value: Any) -> Any:
    """Bring models, floats and paths to plain JSON."""
    if isinstance(value, BaseModel):
        return json.loads(value.model_dump_json(by_alias=True))
    if isinstance(value, float):
        return schemas.float_to_json(value)
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [jsonable(v) for v in value]
    if value is None or isinstance(value, str | int | bool):
        return value
    return str(value)


def table(*headers: str, title: str | None = None) -> Table:
    """A plain table that stays readable in a narrow terminal."""
    out = Table(title=title, title_justify="left", show_edge=False, pad_edge=False, header_style="bold")
    for header in headers:
        out.add_column(header, overflow="fold")
    return out


STYLE = {"holds": "green", "caveat": "yellow", "not_shown": "cyan", "broken": "bold red"}
WORDS = {"holds": "holds", "caveat": "caveat", "not_shown": "not shown", "broken": "BROKEN"}


def status(value: str) -> str:
    """A status in words and colour: the word alone must be enough."""
    return f"[{STYLE[value]}]{WORDS[value]}[/]"


def short(uid: str | None) -> str:
    """The end of a uid, which tells uids of one run apart."""
    return "-" if uid is None else uid[-8:]


def step_text(step: int | None) -> str:
    """A step with thousands separators."""
    return "-" if step is None else f"{step:,}"
