"""A folder, or a file, of no format that is known: its files with size and digest."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from ...ledger import files, hashing
from .. import taking
from ..contents import Contents
from ..errors import Unreadable
from ..folder import Entry, Folder

NAME = "opaque"
MOST_DIGESTED = 256 << 20
"""Bytes that are digested without being asked to: a look must not read a terabyte."""


def read(folder: Folder, c: Contents, *, inside: list[str], digest: bool = False) -> None:
    """List and digest; `inside`: folders in it that are checkpoints."""
    c.title = "no known format"
    total = sum(e.size for e in folder.entries.values())
    if inside:
        some = ", ".join(inside[-5:])
        c.find(
            "LIN-K016",
            "fine",
            f"this is a folder with {len(inside)} checkpoints in it: {some}",
            "Name one of them.",
        )
        return
    if not folder.entries:
        c.find("LIN-K016", "fails", "there is no file in it", "Name the folder that the run wrote.")
        return
    c.find(
        "LIN-K016",
        "differs",
        f"its {len(folder.entries):,} files are of no format that this version knows: what a resume "
        "needs cannot be told",
        "Record it by its digests (`lineage incident` preserves it), and see docs/checkpoints.md for what is known.",
        certain=False,
    )
    if digest or total <= MOST_DIGESTED:
        listed = {n: e for n, e in sorted(folder.entries.items()) if not files.is_sidecar(Path(n).name)}
        for name, entry in listed.items():
            digest_of = taking.attempt(c, name, None, partial(_digest, folder, entry), "differs")
            if digest_of:
                c.digests[name] = digest_of


def _digest(folder: Folder, entry: Entry) -> str:
    if folder.store is not None:
        with folder.open(entry.name) as f:
            stream: Any = f
            return hashing.digest_stream(stream, threads=1)
    try:
        return files.file_digest(Path(entry.place))
    except OSError as e:
        raise Unreadable(f"{entry.name} cannot be read ({e.strerror})") from None
