"""The blob store: content-addressed files for what is too big for a journal line."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

from . import layout


def put(ledger: Path, data: bytes) -> str:
    """Store bytes once and return their digest. The file is durable when this returns. Raises `OSError`."""
    hexa = hashlib.sha256(data).hexdigest()
    path = path_of(ledger, "sha256:" + hexa)
    if not path.exists():
        layout.make_folder(path.parent)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, layout.FILE_MODE)
        try:
            with os.fdopen(fd, "wb") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        layout.fsync_folder(path.parent)
    return "sha256:" + hexa


def path_of(ledger: Path, digest: str) -> Path:
    """Where the blob of a digest lies."""
    algorithm, _, hexa = digest.partition(":")
    return ledger / "blobs" / algorithm / hexa[:2] / hexa


def get(ledger: Path, digest: str) -> bytes:
    """Read a blob. Raises `FileNotFoundError` when it is not in the store."""
    return path_of(ledger, digest).read_bytes()
