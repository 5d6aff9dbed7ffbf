"""Sealing: the heads of all chains under one root, which is then anchored outside the folder."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

from .._rooms import schemas

_DOMAIN = b"lineage-seal-v1\n"


def root_of(heads: Sequence[schemas.Head]) -> str:
    """sha256 over the domain header and one line `file seq digest` per head, sorted by file."""
    sha = hashlib.sha256(_DOMAIN)
    for head in sorted(heads, key=lambda h: h.file):
        sha.update(f"{head.file} {head.seq} {head.digest}\n".encode())
    return "sha256:" + sha.hexdigest()


def seal(heads: Sequence[schemas.Head], why: Literal["checkpoint", "incident", "close"]) -> schemas.Seal:
    """Make the seal of these heads."""
    ordered = sorted(heads, key=lambda h: h.file)
    return schemas.Seal(why=why, heads=ordered, root=root_of(ordered))
