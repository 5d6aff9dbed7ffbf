"""Digests of files that may hold secrets: over the masked text, and none at all where a file is a secret."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import canonical, secrets

LARGEST = 2 << 20
"""Bytes of a file that is read; a larger one has a size and no digest."""
TOTAL = 32 << 20
"""Bytes that are read in all for one capture."""
_ONE_WORD = re.compile(rb"\s*\S{16,4096}\s*")


@dataclass
class Reader:
    """Reads files within a budget, and hands contents to `blobs` where that is asked for."""

    blobs: Callable[[bytes], str] | None = None
    budget: int = TOTAL
    left_out: int = 0
    """files that were not read: too large, unreadable, or beyond the budget"""

    def digest(self, path: Path, *, keep: bool = False) -> str | None:
        """Return the digest of a file's masked content, or None where it is not to be read.

        With `keep` the masked content goes to `blobs`. A file whose name says that it holds credentials, or
        that holds one long word and nothing else (a bare token), is neither digested nor kept: a digest of a
        secret would confirm a guess of it.
        """
        if secrets.is_secret_file(path.name):
            return None
        try:
            size = path.stat().st_size
            if not path.is_file() or size > min(LARGEST, self.budget):
                self.left_out += 1
                return None
            data = path.read_bytes()
        except OSError:
            self.left_out += 1
            return None
        self.budget -= len(data)
        masked = masked_content(data)
        if masked is None:
            return None
        return self.blobs(masked) if keep and self.blobs else canonical.digest_bytes(masked)


def masked_content(data: bytes) -> bytes | None:
    """Return a file's content with secrets masked, or None where masking it is not possible."""
    if b"\0" in data[:8192]:
        return None if secrets.has_known_secret(data) else data
    if _ONE_WORD.fullmatch(data):
        return None
    text, count = secrets.mask(data.decode("utf-8", "surrogateescape"))
    return text.encode("utf-8", "surrogateescape") if count else data
