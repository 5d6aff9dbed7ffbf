"""The report of a run, as Markdown and as one self-contained HTML file; in `postmortem`, that of one incident."""

from __future__ import annotations

from pathlib import Path

from ..ledger import layout
from ..ledger.reader import Ledger
from . import as_markdown
from .facts import Facts, gather
from .quiet import without_messages

__all__ = ["Facts", "gather", "html", "markdown", "write", "write_for_tracker"]


def markdown(ledger: Ledger) -> str:
    """Return the report as Markdown. Needs nothing but the base installation."""
    return as_markdown.render(gather(ledger))


def html(ledger: Ledger) -> str:
    """Return the report as one HTML file that loads nothing and runs nothing.

    Raises `ImportError` where the extra `read` is not installed.
    """
    from . import as_html

    return as_html.render(gather(ledger))


def write(ledger: Ledger, folder: Path) -> list[Path]:
    """Write report.md and report.html into a folder, for the owner only. Returns their paths.

    report.md is there even where the HTML cannot be made. Raises `ImportError` where the extra `read` is not
    installed, `OSError` where the folder cannot be written.
    """
    facts = gather(ledger)
    layout.make_folder(folder)
    written = [_write(folder / "report.md", as_markdown.render(facts))]
    from . import as_html

    return [*written, _write(folder / "report.html", as_html.render(facts))]


def write_for_tracker(ledger: Ledger, folder: Path, *, messages: bool = False) -> list[Path]:
    """Write both forms into a folder, and into its `tracker/` what may be published: without exceptions' messages.

    `messages`: publish them too. Returns the paths of what may be published, and raises as `write` does.
    """
    facts = gather(ledger)
    shown = facts if messages else gather(without_messages(ledger))
    layout.make_folder(folder / "tracker")
    _write(folder / "report.md", as_markdown.render(facts))
    published = [_write(folder / "tracker" / "report.md", as_markdown.render(shown))]
    from . import as_html

    drawn = as_html.draw(facts)  # takes most of the time, and shows no words of any exception
    _write(folder / "report.html", as_html.render(facts, drawn))
    return [*published, _write(folder / "tracker" / "report.html", as_html.render(shown, drawn))]


def _write(path: Path, text: str) -> Path:
    layout.write_durably(path, text.encode("utf-8", errors="replace"))
    return path
