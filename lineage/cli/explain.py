"""`lineage explain`: what a code means, why it matters, and what to do next."""

from __future__ import annotations

import difflib
import re
import textwrap
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from .._rooms import schemas
from .common import CliError, Exit, Json, console, emit, table

NAME = "explain"
ROOMS = ("lineage", "trackers", "schemas")


def command(
    code: Annotated[
        str | None,
        typer.Argument(help="A code such as LIN-C002, or C002; nothing lists all.", show_default=False),
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--write", help="Write all codes to this file as Markdown.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain a code: its severity, what was found, why it matters, what to do next, and where it comes from."""
    if write is not None:
        write.write_text(schemas.codes_page(), encoding="utf-8")
        typer.echo(f"wrote {write}")
        return
    if code is None:
        every = schemas.all_explained()
        if as_json:
            emit([{**asdict(p), "page": schemas.page(p.code)} for p in every])
            return
        rows = table("code", "severity", "what it says")
        for p in every:
            rows.add_row(p.code, ", ".join(p.severity), escape(p.title))
        console.print(rows)
        return
    found = _known(code)
    named = named_in(found.code)
    if as_json:
        emit({**asdict(found), "named_in": named, "page": schemas.page(found.code)})
        return
    words = schemas.severity_words()
    console.print(f"[bold]{found.code}[/] {escape(found.title)}  [dim]({escape(found.family)})[/]")
    for word in found.severity:
        console.print(f"  severity {word}: {escape(plain(words[word]))}")
    for head, text in sections(found):
        console.print(f"\n[bold]{head}[/]")
        console.print(escape(_block(plain(text))))
    console.print("\n[bold]Source[/]")
    for line in (
        f"shown by: {', '.join(found.shown_by)}",
        f"named in: {', '.join(named) or 'no part of this version'}",
        f"page: {schemas.page(found.code)}",
    ):
        console.print(escape(_block(line)))


def _block(text: str) -> str:
    """A paragraph under its heading: set in at each of its lines, and never cut."""
    return textwrap.fill(
        text,
        max(40, min(console.width, 110) - 1),
        initial_indent="  ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def sections(found: schemas.CodePage) -> list[tuple[str, str]]:
    """The headings of a code's page with their Markdown, as the command and the site show them."""
    told = {"What was found": found.found, "Why it matters": found.matters, "What to do next": found.next}
    return [(head, f"{text[0].upper()}{text[1:]}") for head, text in told.items()]


def _known(asked: str) -> schemas.CodePage:
    """The code that was asked for, in any case and with or without its prefix."""
    code = asked.strip().upper()
    if not code.startswith("LIN-"):
        code = f"LIN-{code}"
    if code not in schemas.CODES:
        near = difflib.get_close_matches(code, schemas.CODES, 3)
        meant = f"did you mean {', '.join(near)}? " if near else ""
        raise CliError(
            f"there is no code {asked!r}: {meant}`lineage explain` lists all of this version, and a newer one "
            "may have more",
            Exit.CANNOT_TELL,
        )
    return schemas.explained(code)


def plain(markdown: str) -> str:
    """Markdown as plain text: a link is its words."""
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", markdown)


def named_in(code: str) -> list[str]:
    """The modules that name a code, such as `lineage/judge/drift.py`: those that give it, and those that read it."""
    return _named().get(code, [])


@cache
def _named() -> dict[str, list[str]]:
    """Code -> the modules that name it, read off the sources."""
    root = Path(__file__).resolve().parents[2]
    own = {"codes.py", Path(__file__).name}
    out: dict[str, list[str]] = {}
    for room in ROOMS:
        for file in sorted((root / room).rglob("*.py")):
            if file.name not in own:
                for code in sorted(set(re.findall(r"LIN-[A-Z]\d{3}", file.read_text(encoding="utf-8")))):
                    out.setdefault(code, []).append(file.relative_to(root).as_posix())
    return out
