"""Our block inside the run's description (tag `mlflow.note.content`), beside the user's own words.

The block holds the verdict and, below its headline, what is quarantined: the two come from other records, in any
order, so each is replaced without the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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
_CUT = "(shortened; the whole text: `lineage verdict`)"


def with_block(present: str, verdict: schemas.Verdict, warnings: Sequence[str] = ()) -> str | None:
    """Return the description with our block in it: in its old place, or first where there was none.

    Every character of the user's stays as it is. The block is shortened to what the user's text leaves;
    None where not even the headline fits.

    Args:
        warnings: what is quarantined, as paragraphs of Markdown. They are left out where they do not fit.
    """
    before, _, after = _around(present)
    room = _room(before, after)
    left = room - sum(len(w) + 2 for w in warnings)
    if left < _SMALLEST:
        warnings, left = (), room
    whole = left >= _SMALLEST
    block = text.markdown(verdict, limit=left) if whole else f"**{text.headline(verdict)}**"
    return None if len(block) > left else _joined(before, text.warned(block, warnings), after)


def with_warnings(present: str, warnings: Sequence[str]) -> str | None:
    """Return the description with other warnings in our block, the verdict in it as it was.

    What is below the warnings is shortened where there is no room for both; None where the warnings alone have none.
    """
    before, block, after = _around(present)
    block = text.warned(block, warnings)
    if not block:
        return before + after if BEGIN in present else present
    room = _room(before, after)
    if len(block) > room:
        block = block[: max(0, room - len(_CUT) - 2)].rsplit("\n", 1)[0] + f"\n\n{_CUT}"
        if not all(w in block for w in warnings):
            return None
    return _joined(before, block, after)


def _around(present: str) -> tuple[str, str, str]:
    """Split a description: the user's text before our block, what our block holds, the user's text after it."""
    found = _BLOCK.search(present)
    if found is None:
        return "", "", "\n\n" + present if present else ""
    block = found[0].removeprefix(BEGIN).removesuffix(END).strip("\n")
    return present[: found.start()], block, present[found.end() :]


def _room(before: str, after: str) -> int:
    return NOTE_LIMIT - len(before) - len(after) - len(BEGIN) - len(END) - 4


def _joined(before: str, block: str, after: str) -> str:
    return f"{before}{BEGIN}\n\n{block}\n\n{END}{after}"
