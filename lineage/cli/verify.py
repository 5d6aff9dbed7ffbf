"""`lineage verify`: whether the record can be trusted."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from ..ledger.verify import verify
from .common import Exit, Json, Run, console, damage_rows, emit, find

NAME = "verify"


def command(
    run: Run = None,
    anchor: Annotated[
        list[str] | None, typer.Option(help="A root read from outside, such as a tracker's tag.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check chains, seals, blobs, series and evidence; name file, line and kind of any damage."""
    subject = find(run)
    found = verify(subject.ledger.path, anchor or ())
    if as_json:
        emit(
            {
                "ledger": subject.ledger.path,
                "whole": found.whole,
                "files": found.files,
                "records": found.records,
                "seals": found.seals,
                "anchored": found.anchored,
                "damage": damage_rows(found.damage),
                "notes": found.notes,
            }
        )
    else:
        word = "[green]whole[/]" if found.whole else "[bold red]DAMAGED[/]"
        console.print(
            f"{word}  {found.records:,} records in {found.files:,} files, {found.seals} seals  {subject.ledger.path}"
        )
        for d in found.damage:
            line = f" line {d.line}" if d.line else ""
            console.print(f"  [bold]{d.code}[/] {d.title}\n    {escape(d.file)}{line}: {escape(d.text)}")
        for note in found.notes:
            console.print(f"  [dim]note: {escape(note)}[/]")
    raise typer.Exit(Exit.OK if found.whole else Exit.DAMAGED)
