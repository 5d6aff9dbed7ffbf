"""A batch of tokens as one HTML file that loads nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .._rooms import schemas
from . import batch_rows

if TYPE_CHECKING:
    from ..ladder.batch import Shown

WIDEST = 4096
"""Places of a row that the page has."""


def page(found: schemas.Rung, shown: Shown, *, rows: int = 8) -> str:
    """The page: the answers, then the first `rows` rows, a line for each place."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["visible"] = batch_rows.visible
    made = []
    for row in range(min(rows, len(shown.tokens.ids))):
        places = list(batch_rows.places(shown.tokens, shown.meaning, shown.text, row))
        made.append({"number": row, "places": places[:WIDEST], "more": max(0, len(places) - WIDEST)})
    return environment.get_template("batch.html.j2").render(
        rung=found,
        rows=made,
        names=batch_rows.columns(shown.tokens),
        fields=shown.fields,
        more=max(0, len(shown.tokens.ids) - rows),
    )
