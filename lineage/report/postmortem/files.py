"""Writing a post-mortem beside what people wrote: into place where it can be told, else into a file beside it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..._rooms import schemas
from ...ledger import layout
from .. import as_html, as_markdown, charts, interactive, marked
from ..blocks import Section, clean
from . import curves, page
from .given import Given

MARKDOWN, HTML = "postmortem.md", "postmortem.html"


class Foreign(Exception):
    """The file that is there is of another incident. The text says of which."""


@dataclass
class Kept:
    """What was written, and what became of the words of people."""

    written: list[Path] = field(default_factory=list)
    parts: tuple[str, ...] = ()
    """keys of the parts that hold words of people"""
    aside: Path | None = None
    """the file as it was, where somebody wrote outside of the parts"""
    lost: tuple[str, ...] = ()
    """keys of parts that could not be found in it"""


def write(g: Given, folder: Path) -> Kept:
    """Write postmortem.md and postmortem.html into a folder, for the owner only.

    The Markdown is there even where the HTML cannot be made. Raises `ImportError` where the extra `read` is not
    installed, `OSError` where the folder cannot be written, `Foreign` where it holds the post-mortem of another
    incident.
    """
    layout.make_folder(folder)
    path = folder / MARKDOWN
    kept = Kept()
    empty = page.sections(g, {})
    while True:
        before = path.read_bytes() if path.exists() else None
        found = _found(before, empty, g.life.uid)
        if found.of not in (None, g.life.uid):
            raise Foreign(f"{path} is the post-mortem of incident {found.of}")
        sections = page.sections(g, found.parts) if found.parts else empty
        text = marked.sealed(as_markdown.document(page.title(g), sections), g.life.uid)
        if before is not None and not found.untouched and kept.aside is None:
            kept.aside = _aside(folder, before)
        if before == (path.read_bytes() if path.exists() else None):  # nobody saved it meanwhile
            break
        kept.aside = None
    layout.write_durably(path, text.encode("utf-8", "surrogateescape"))  # the bytes of people as they are
    kept.written, kept.parts, kept.lost = [path], tuple(found.parts), found.lost if kept.aside else ()
    as_html.needed()
    drawings = curves.drawings(g)
    drawn = as_html.safe(charts.drawn(drawings))
    status = g.facts.answer.status or "not_shown"
    html = as_html.document(page.title(g), sections, drawn, status, interactive.live(drawings))
    layout.write_durably(folder / HTML, html.encode("utf-8", "replace"))
    kept.written.append(folder / HTML)
    return kept


def _found(before: bytes | None, sections: Sequence[Section], incident: str) -> marked.Found:
    if before is None:
        return marked.Found(of=incident, untouched=True)
    text = before.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    headings = [as_markdown.escape(clean(s.title)) for s in sections]
    return marked.read(text, page.TITLES, headings, [hint for _, hint in page.PARTS.values()])


def _aside(folder: Path, data: bytes) -> Path:
    """Keep a file as it was, under a name that nothing has yet."""
    at = schemas.now().strftime("%Y%m%dT%H%M%SZ")
    for n in range(1, 1000):
        path = folder / f"postmortem.as-it-was-{at}{f'-{n}' if n > 1 else ''}.md"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, layout.FILE_MODE)
        except FileExistsError:
            continue
        with os.fdopen(fd, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        layout.fsync_folder(folder)
        return path
    raise FileExistsError(f"{folder} holds a thousand files of this second")
