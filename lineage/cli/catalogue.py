"""`lineage catalogue`: what a word or a config key stands for, and what a change of it does."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from .._rooms import schemas
from .common import CliError, Exit, Json, console, emit, table

NAME = "catalogue"


def command(
    word: Annotated[
        str | None,
        typer.Argument(
            help="A concept, what people call it, or a config key; nothing lists all.", show_default=False
        ),
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--write", help="Write the whole catalogue to this file as Markdown.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Look a training condition up: its class, what a change of it does and why, and its keys in the frameworks."""
    catalogue = schemas.catalogue()
    if write is not None:
        write.write_text(schemas.catalogue_page(catalogue), encoding="utf-8")
        typer.echo(f"wrote {write}")
        return
    if word is None:
        found = list(catalogue.concepts.values())
        if as_json:
            emit([_plain(c) for c in found])
            return
        rows = table("concept", "class", "what it is")
        for concept in found:
            mark = "*" if concept.conditional else ""
            rows.add_row(concept.id, concept.cls + mark, escape(concept.title))
        console.print(rows)
        console.print("* the class depends on something: `lineage catalogue CONCEPT` says on what")
        return
    found = catalogue.find_all(word)
    if not found:
        near = difflib.get_close_matches(word.lower(), catalogue.concepts, 3)
        meant = f"; did you mean {', '.join(near)}?" if near else "; `lineage catalogue` lists all concepts"
        raise CliError(f"no concept or key is known as {word!r}{meant}", Exit.CANNOT_TELL)
    if as_json:
        emit([_plain(c) for c in found])
    else:
        console.print(escape("\n\n".join(schemas.described(c, catalogue) for c in found)))


def _plain(concept: schemas.Concept) -> dict[str, object]:
    claims = schemas.catalogue().claims
    return {
        "id": concept.id,
        "title": concept.title,
        "class": concept.cls,
        "condition": concept.condition,
        "otherwise": concept.otherwise.cls if concept.otherwise else None,
        "reason": concept.reason,
        "effects": {c: concept.effect(c) for c in claims},
        "keys": [
            {"key": k.name, "framework": k.framework or None, "setting": k.setting}
            for k in schemas.catalogue().keys
            if k.concept == concept.id
        ],
    }
