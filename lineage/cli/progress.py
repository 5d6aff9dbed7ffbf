"""A progress bar over bytes that are digested, copied and verified, on stderr and only in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

from ..ledger.evidence_files import Progress as Tell
from .common import errors


def meter() -> Progress:
    """Bytes done, how fast, and how long it will take."""
    return Progress(
        "{task.description}",
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )


@contextmanager
def bar(what: str) -> Iterator[Tell]:
    """Show one bar that begins anew with each thing that is done; gives the function to tell it."""
    with meter() as progress:
        task = progress.add_task(escape(what), total=None)
        doing = ""

        def tell(now: str, done: int, total: int) -> None:
            nonlocal doing
            if now != doing:
                doing = now
                progress.reset(task, description=escape(f"{what}: {now}"), total=total)
            progress.update(task, completed=done, total=total)

        yield tell


def size(count: int) -> str:
    """Bytes for a person."""
    for unit, of in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= of:
            return f"{count / of:.1f} {unit}"
    return f"{count} bytes"
