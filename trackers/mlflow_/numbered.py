"""Append-only tags with a running number, such as `lineage/drift/002`, and which record each one shows.

The number is found in what the tracker holds, not in this process: a resumed process, or `lineage sync`
months later, goes on where the last one stopped, and finds what is already there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from .limits import key

_IDENTITY = ("record", "again")
"""What differs between two records that say the same: the same drift seen by two ranks, for instance."""


def slot(kind: str, number: int) -> str:
    """Return the key of a numbered tag."""
    return key(kind, f"{number:03d}")


def held(tags: Mapping[str, str], kind: str) -> dict[int, dict[str, Any]]:
    """Return what numbered tags of a kind hold, by number, in order. Tags that hold no JSON are `{}`."""
    pattern = re.compile(re.escape(key(kind)) + r"/(\d{3,})")
    out: dict[int, dict[str, Any]] = {}
    for name, value in tags.items():
        match = pattern.fullmatch(name)
        if match is None:
            continue
        try:
            data = json.loads(value)
        except ValueError:
            data = {}
        out[int(match.group(1))] = data if isinstance(data, dict) else {}
    return dict(sorted(out.items()))


def content(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record says, without which record says it."""
    return {k: v for k, v in data.items() if k not in _IDENTITY}


def find(present: Mapping[int, Mapping[str, Any]], record: str) -> int | None:
    """Return the number under which a record is shown already: by its tag, or by a later word in one."""
    for number, other in present.items():
        if other.get("record") == record or record in other.get("again", ()):
            return number
    return None


def find_same(present: Mapping[int, Mapping[str, Any]], data: Mapping[str, Any]) -> int | None:
    """Return the number under which a record, or another that says the same, is shown already."""
    said = content(data)
    same = (number for number, other in present.items() if content(other) == said)
    return find(present, data["record"]) or next(same, None)


def following(present: Mapping[int, object]) -> int:
    """Return the number after the last."""
    return max(present, default=0) + 1


def segment_number(tags: Mapping[str, str], uid: str, proposed: int) -> int:
    """Return the number of a segment in this tracker run.

    That under which the tracker holds it; else the proposed one; else, where another segment holds that
    (a process that was not told of the earlier ones), the next.
    """
    present = held(tags, "segment")
    for number, data in present.items():
        if data.get("uid") == uid:
            return number
    return following(present) if proposed in present else proposed
