"""Our block inside the run's description (tag `mlflow.note.content`), beside the user's own words."""

from __future__ import annotations

import re

from .. import text
from .._rooms import schemas

NOTE_TAG = "mlflow.note.content"
NOTE_LIMIT = 7900
"""Characters of the whole description. MLflow cuts after 8,000 without a word."""

BEGIN = "<!-- lineage:begin -->"
END = "<!-- lineage:end -->"
_BLOCK = re.compile(re.escape(BEGIN) + r".*?" + re.escape(END), re.DOTALL)
_SMALLEST = 600
"""A block with fewer characters than this holds the headline alone."""


def with_block(present: str, verdict: schemas.Verdict) -> str | None:
    """Return the description with our block in it: in its old place, or first where there was none.

    Every character of the user's stays as it is. The block is shortened to what the user's text leaves;
    None where not even the headline fits.
    """
    found = _BLOCK.search(present)
    before = present[: found.start()] if found else ""
    after = present[found.end() :] if found else ("\n\n" + present if present else "")
    room = NOTE_LIMIT - len(before) - len(after) - len(BEGIN) - len(END) - 4
    block = text.markdown(verdict, limit=room) if room >= _SMALLEST else f"**{text.headline(verdict)}**"
    if len(block) > room:
        return None
    return f"{before}{BEGIN}\n\n{block}\n\n{END}{after}"
