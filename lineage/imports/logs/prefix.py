"""What a launcher puts in front of a line: the rank, the node, the time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

_RANK = re.compile(r"\s*\[rank\s?(\d+)\]:?\s?", re.I)
_LOCAL = re.compile(r"\s*\[[A-Za-z_]+(\d+)\]:\s?")
_TASK = re.compile(r"\s*(\d{1,6}):\s")
_HOST = re.compile(r"(?!(?:step|iter|iteration|epoch)s?\d)([A-Za-z][A-Za-z.-]*\d[\w.-]*):\s(?=.*\d)")
_RAY = re.compile(r"\((?:[\w.]+)\s+pid=\d+(?:,\s*ip=([\d.]+))?\)\s*")
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,6})\d*)?\s?(Z|[+-]\d\d:?\d\d)?(?![\d:])"
)


@dataclass(slots=True)
class Prefix:
    """What stood in front, and the rest of the line."""

    rest: str
    rank: int | None = None
    local: bool = False
    node: str | None = None


def split(text: str) -> Prefix:
    """Take off what launchers put in front: `[rank3]:`, `[default7]:`, `12: `, `worker-3: `, `(name pid=1) `."""
    out = Prefix(text)
    for _ in range(4):
        if found := _RANK.match(out.rest):
            out.rank, out.local = int(found[1]), False
        elif found := _LOCAL.match(out.rest):
            if out.rank is None:
                out.rank, out.local = int(found[1]), True
        elif found := _TASK.match(out.rest):
            if out.rank is None or out.local:
                out.rank, out.local = int(found[1]), False
        elif found := _RAY.match(out.rest):
            out.node = found[1] or out.node
        elif found := _HOST.match(out.rest):
            out.node = found[1]
        else:
            break
        out.rest = out.rest[found.end() :]
    return out


def time(text: str) -> tuple[datetime | None, bool]:
    """The first date and time in a text, and whether it carries a zone; without one it is taken for UTC."""
    found = _TIME.search(text)
    if found is None:
        return None, True
    zone = found[4]
    fraction = (found[3] or "0").ljust(6, "0")
    try:
        made = datetime.fromisoformat(
            f"{found[1]}T{found[2]}.{fraction}{'+00:00' if zone in (None, 'Z') else zone}"
        )
        return made.astimezone(UTC), zone is not None
    except (ValueError, OverflowError):  # a day that no calendar has
        return None, True
