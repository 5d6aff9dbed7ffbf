"""The blob store: content-addressed files for what is too big for a journal line."""

from __future__ import annotations

import hashlib
from pathlib import Path

from . import layout


def put(ledger: Path, data: bytes) -> str:
    """Store bytes once and return their digest. The file is durable when this returns. Raises `OSError`."""
    hexa = hashlib.sha256(data).hexdigest()
    path = path_of(ledger, "sha256:" + hexa)
    if not path.exists():
        layout.make_folder(path.parent)
        layout.write_durably(path, data)
    return "sha256:" + hexa


def path_of(ledger: Path, digest: str) -> Path:
    """Where the blob of a digest lies."""
    algorithm, _, hexa = digest.partition(":")
    return ledger / "blobs" / algorithm / hexa[:2] / hexa


def get(ledger: Path, digest: str) -> bytes:
    """Read a blob. Raises `FileNotFoundError` when it is not in the store."""
    return path_of(ledger, digest).read_bytes()
