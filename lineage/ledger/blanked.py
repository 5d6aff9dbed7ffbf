"""Lines without their words, as trackers get them: blanked fields beside the digest of the raw line."""

from __future__ import annotations

import json
from typing import Any

from .._rooms import trackers
from .journal import line_digest

FREE_TEXT = trackers.FREE_TEXT
"""kind -> fields whose words stay on this machine by default; adapters keep to the same list"""


NOT_SHARED = "(not shared)"
"""What stands in the place of words that were not sent"""

BLANKED = b'{"blanked":'
"""How a line begins that stands in a chunk without its words."""


def unblanked(raw: bytes) -> tuple[bytes, str, list[str]]:
    """The record of a line, the digest of the line as it was written, and the fields that go without their words.

    A line that was sent as it is has the digest of its bytes. Of one without its words the digest is as the chunk
    gives it: what else stands in that line cannot be held against it. Raises `ValueError` for a malformed one.
    """
    if not raw.startswith(BLANKED):
        return raw, line_digest(raw), []
    try:
        data = json.loads(raw)
        fields, digest, record = data["blanked"], data["digest"], data["record"]
        kind = record["payload"]["kind"]
    except (ValueError, KeyError, TypeError) as e:
        raise ValueError(f"a line without its words is malformed: {type(e).__name__}: {e}") from None
    if not isinstance(digest, str) or not isinstance(kind, str) or not isinstance(fields, list):
        raise ValueError("a line without its words is malformed: it names no digest, no kind or no fields")
    return (
        json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode(),
        digest,
        list(map(str, fields)),
    )


def without_text(raw: bytes) -> bytes:
    """Blank the free text of a line; a line without any is returned as it is."""
    data: dict[str, Any] = json.loads(raw)
    payload = data.get("payload", {})
    fields = [f for f in FREE_TEXT.get(payload.get("kind", ""), ()) if payload.get(f)]
    if not fields:
        return raw
    for f in fields:
        payload[f] = type(payload[f])() if isinstance(payload[f], list | dict) else NOT_SHARED
    record = {"blanked": fields, "digest": line_digest(raw), "record": data}
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()
