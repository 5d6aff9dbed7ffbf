"""How digests of tensors are written down: the text of one, and one digest for a set of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

ALGORITHM = "ml64x2-1"


def finish(head: str, pair: Sequence[int]) -> str:
    """Put a header and two lanes (signed int64) into one printable digest: 128 bits of hex, 32 of header."""
    tag = hashlib.sha256(head.encode()).hexdigest()[:8]
    return f"{ALGORITHM}:{pair[0] & (2**64 - 1):016x}{pair[1] & (2**64 - 1):016x}{tag}"


def root(named: Mapping[str, str]) -> str:
    """sha256 over `name digest` lines sorted by name: one digest for a set of tensors."""
    sha = hashlib.sha256(b"lineage-state-v1\n")
    for name in sorted(named):
        sha.update(f"{name} {named[name]}\n".encode())
    return "sha256:" + sha.hexdigest()
