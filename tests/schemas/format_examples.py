"""Put the golden lines into docs/format.md, and read them from there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from lineage.ledger.journal import line_digest

from . import make_golden

PAGE = Path(__file__).parents[2] / "docs" / "format.md"
_BLOCK = re.compile(r"(<!-- golden: (line|last|digest) (\w+) -->\n```json\n)(.*?)(```\n)", re.S)


def example(what: str, kind: str) -> str:
    """The text of a block: the first or last golden line of a kind, or the digest of the first."""
    found = [r for r in make_golden.journal().splitlines() if json.loads(r)["payload"]["kind"] == kind]
    return f'"{line_digest(found[0])}"' if what == "digest" else found[-1 if what == "last" else 0].decode()


def blocks() -> list[tuple[str, str, str]]:
    """(what, kind, text) of every block on the page."""
    return [(what, kind, text.strip("\n")) for _, what, kind, text, _ in _BLOCK.findall(PAGE.read_text())]


def update() -> None:
    """Write the present golden lines into the page."""
    page = PAGE.read_text()
    PAGE.write_text(_BLOCK.sub(lambda m: f"{m[1]}{example(m[2], m[3])}\n{m[5]}", page))
