"""The journal for a tracker: sealed chunks, each sent once, without free text.

A line that holds words of a person or of an exception goes without them: the chunk then has the blanked
record beside the digest of the raw line, so that the chain can still be followed. `share=["text"]` sends the
raw lines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._rooms import schemas
from . import layout, scan
from .journal import line_digest

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


def write(
    ledger: Path, heads: Sequence[schemas.Head], sent: dict[str, int], *, text: bool = False
) -> list[tuple[Path, str]]:
    """Write the lines up to the sealed heads that were not sent yet, one chunk per journal file.

    Returns (file, name in the tracker); `sent` is advanced: journal file -> lines sent.
    """
    out = []
    for head in heads:
        first, last = sent.get(head.file, 0), head.seq
        if last < first:
            continue
        lines = [
            raw if text else without_text(raw)
            for number, raw, _ in scan.raw_lines(layout.journal_folder(ledger) / head.file)
            if first <= number - 1 <= last
        ]
        name = f"{head.file.removesuffix('.jsonl')}/{first:06d}-{last:06d}.jsonl"
        path = ledger / "chunks" / name
        layout.make_folder(path.parent)
        path.write_bytes(b"\n".join(lines) + b"\n")
        path.chmod(layout.FILE_MODE)
        out.append((path, f"journal/{name}"))
        sent[head.file] = last + 1
    return out


def written(ledger: Path) -> dict[str, int]:
    """Journal file -> lines that chunks hold already, by the names of the chunks."""
    out: dict[str, int] = {}
    for path in (ledger / "chunks").glob("*/*/*.jsonl"):
        file = f"{path.parent.relative_to(ledger / 'chunks').as_posix()}.jsonl"
        last = path.stem.rpartition("-")[2]
        if last.isdigit():
            out[file] = max(out.get(file, 0), int(last) + 1)
    return out


def without_text(raw: bytes) -> bytes:
    """Blank the free text of a line; a line without any is returned as it is."""
    data: dict[str, Any] = json.loads(raw)
    payload = data.get("payload", {})
    fields = [f for f in FREE_TEXT.get(payload.get("kind", ""), ()) if payload.get(f)]
    if not fields:
        return raw
    for f in fields:
        payload[f] = type(payload[f])() if isinstance(payload[f], list | dict) else "(not shared)"
    record = {"blanked": fields, "digest": line_digest(raw), "record": data}
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()
