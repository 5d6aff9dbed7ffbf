"""A record as plain data for a page: JSON types, non-finite numbers by name, without the words of people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .base import Page, Shown

FREE_TEXT: Mapping[str, Sequence[str]] = {
    "mitigation": ("who", "why", "hypothesis", "smallest_justified"),
    "segment_end": ("error",),
    "degraded": ("error",),
    "incident": ("title", "owner", "note", "by", "messages", "links", "missing", "override"),
    "root_cause": ("text", "by"),
    "recovery": (
        "restart",
        "mitigations",
        "claims",
        "owner",
        "by",
        "messages",
        "evidence",
        "override",
        "note",
    ),
    "run": ("name",),
    "config": ("argv",),
    "environment": ("variables",),
    "checkpoint_mark": ("why",),
    "preserved": ("source",),
    "bundle": ("left_out",),
    "replay": ("reason", "parameters"),
    "event": ("text", "values", "problems"),
}
"""kind -> fields whose words stay on this machine by default"""


def plain(record: Shown, page: Page) -> dict[str, Any]:
    """Return a record's payload as JSON types, in which NaN and infinities are words.

    Fields in which persons and exceptions speak are left out unless `share=["text"]` was asked for; `left_out` names
    them.
    """
    out: dict[str, Any] = json.loads(record.payload.model_dump_json(by_alias=True))
    if "text" in page.share:
        return out
    spoken = [f for f in FREE_TEXT.get(str(record.payload.kind), ()) if out.get(f)]
    for f in spoken:
        del out[f]
    return out | {"left_out": spoken} if spoken else out
