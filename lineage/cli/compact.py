"""`lineage compact`: fewer and larger series files."""

from __future__ import annotations

import typer
from rich.markup import escape

from ..ledger import compact as compact_
from ..report.words import plural
from .common import CliError, Exit, Json, Run, console, emit, find

NAME = "compact"


def command(run: Run = None, as_json: Json = False) -> None:
    """Merge the small sealed series files of a run; no row is lost, and nothing else is touched.

    Worth it for thousands of ranks, before a ledger goes to a store. A run that still writes may be merged too: what is
    not sealed stays. Exit code 3 where a file cannot be read, which stays as it is.
    """
    subject = find(run)
    try:
        done = compact_.compact(subject.ledger.path)
    except (compact_.Busy, OSError) as e:
        raise CliError(
            f"{e}. What was merged before that stays merged; nothing is lost.", Exit.CANNOT_TELL
        ) from None
    broken = [text for text in done.left if "cannot be read" in text]
    if as_json:
        emit({"ledger": subject.ledger.path, **vars(done)})
    else:
        rows = plural(done.rows, "row")
        console.print(
            f"{plural(done.merged, 'file')} merged into {done.into:,} ({rows})  {subject.ledger.path}"
        )
        if done.removed:
            console.print(f"  {plural(done.removed, 'file')} removed that an earlier call had merged")
        for text in done.left[:8]:
            console.print(f"  [dim]left: {escape(text)}[/]")
        if len(done.left) > 8:
            console.print(f"  [dim]and {len(done.left) - 8:,} more left[/]")
    raise typer.Exit(Exit.DAMAGED if broken else Exit.OK)
