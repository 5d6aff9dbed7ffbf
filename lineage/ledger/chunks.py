"""The journal for a tracker: sealed chunks, each sent once, without free text.

A chunk ends with the seal that covers it, so that what a tracker has can be held against its anchor alone.

A line that holds words of a person or of an exception goes without them: the chunk then has the blanked
record beside the digest of the raw line, so that the chain can still be followed. `share=["text"]` sends the
raw lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .._rooms import schemas
from . import layout, scan
from .blanked import FREE_TEXT, without_text

__all__ = ["FREE_TEXT", "with_seal", "without_text", "write", "written"]


def with_seal(heads: Sequence[schemas.Head], file: str, seq: int) -> list[schemas.Head]:
    """The sealed heads, the one of the file that the seal stands in moved on to the seal's own line."""
    return [h.model_copy(update={"seq": seq}) if h.file == file else h for h in heads]


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
        if not lines:
            continue
        last = first + len(lines) - 1  # a seal that still waits for the disk goes with the next chunk
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
