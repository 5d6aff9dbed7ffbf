"""`lineage doctor`: settings with their source, what is installed, and whether the ledger folder can be written."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape

from .. import __version__
from .._rooms import schemas, trackers
from ..recorder.settings import SETTINGS, resolve
from .common import Exit, Json, console, emit, root, table

NAME = "doctor"
PARTS = ("torch", "wandb", "mlflow", "duckdb", "jinja2", "altair", "vl-convert-python", "safetensors")


def command(as_json: Json = False) -> None:
    """Print every setting and where it came from, the installed parts, and what is wrong."""
    settings = resolve()
    parts = {name: _version(name) for name in PARTS}
    problems = [*settings.problems, *_problems(root())]
    rooms = {m.__name__: str(Path(str(m.__file__)).parent) for m in (schemas, trackers)}
    if as_json:
        values: Any = {
            k: {"value": settings.shown(k) if s.secret else settings.values[k], "source": settings.sources[k]}
            for k, s in SETTINGS.items()
        }
        emit(
            {
                "version": __version__,
                "python": sys.version.split()[0],
                "settings": values,
                "parts": parts,
                "rooms": rooms,
                "problems": problems,
            }
        )
    else:
        console.print(f"runlineage {__version__}, Python {sys.version.split()[0]}")
        for name, place in rooms.items():
            console.print(f"  {name}: {escape(place)}")
        rows = table("setting", "value", "from", "what it does")
        for name, setting in SETTINGS.items():
            rows.add_row(name, escape(settings.shown(name)), escape(settings.sources[name]), setting.doc)
        console.print(rows)
        console.print(
            "installed: " + ", ".join(f"{n} {v}" if v else f"{n} (not installed)" for n, v in parts.items())
        )
        for problem in problems:
            console.print(f"[bold red]problem:[/] {escape(problem)}")
        if not problems:
            console.print("[green]no problem found[/]")
    raise typer.Exit(Exit.FOUND if problems else Exit.OK)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _problems(folder: Path) -> list[str]:
    """Whether ledgers can be written where the settings say."""
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    if not os.access(there, os.W_OK | os.X_OK):
        return [f"{folder} cannot be written ({there} refuses); set LINEAGE_DIR to a folder that can"]
    return []
