"""The command `lineage` and how its errors look."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.markup import escape

from .. import __version__
from ..recorder import extension
from ..recorder.settings import resolve
from .commands import Commands
from .common import CliError, Exit, errors

app = typer.Typer(
    name="lineage",
    cls=Commands,
    help="Lineage of training runs: what was restored, what changed, and what may still be concluded.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Exit codes: 0 nothing found, 1 findings, 2 usage, 3 a record is damaged, 4 cannot tell.",
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"runlineage {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Hold the options of the command itself; judge by the catalogue with what the site and the run add."""
    for problem in extension.install(resolve()):
        errors.print(f"[bold]lineage:[/] {escape(problem)}")


def run() -> None:
    """Run the command line; errors of ours are one paragraph on stderr and an exit code."""
    try:
        app()
    except BrokenPipeError:
        sys.exit(0)
    except Exception as e:
        code = _code(e)
        if code is None:
            raise
        errors.print(f"[bold]lineage:[/] {escape(str(e))}")  # `runlineage[mlflow]` is no markup
        sys.exit(int(code))


def _code(error: Exception) -> Exit | None:
    """The exit code of an error of ours. What it takes to know them is imported only when there is one."""
    from ..fleet.engine import NoEngine
    from ..ledger.reader import LedgerNotFound

    if isinstance(error, CliError):
        return error.code
    if isinstance(error, NoEngine):
        return Exit.CANNOT_TELL
    return Exit.USAGE if isinstance(error, LedgerNotFound) else None
