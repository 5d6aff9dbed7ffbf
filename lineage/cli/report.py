"""`lineage report`: Markdown and one self-contained HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import CliError, Exit, Json, Run, console, damage, emit, ending, find

NAME = "report"


def command(
    run: Run = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder to write to; the ledger's own by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write report.md and report.html."""
    from .. import report

    subject = find(run)
    try:
        written = report.write(subject.ledger, out or subject.ledger.path / "report")
    except ImportError as e:
        raise CliError(str(e)) from None
    except OSError as e:
        raise CliError(f"the report cannot be written: {e}. Name another folder with --out.") from None
    if as_json:
        emit({"written": written})
    else:
        for path in written:
            console.print(f"written: {path}")
    raise ending(Exit.OK, damage(subject.ledger), as_json=as_json)
