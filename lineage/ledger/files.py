"""Digests of files: BLAKE3 leaves under a sha256 root."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path

from .._rooms import schemas
from . import hashing

CHUNK = 1 << 20
"""Bytes per read of a copy."""

SIDECAR_PATTERNS = ("lineage.json", "lineage.rank*.json", "*.lineage.json", ".lineage*.tmp")
_DOMAIN = b"lineage-manifest-v1\n"


def file_digest(path: Path) -> str:
    """BLAKE3 of a file's bytes, on one thread and without mapping: it may run inside a training process."""
    return hashing.digest(path, threads=1, mapped=False)


def is_sidecar(name: str) -> bool:
    """Whether a file is a sidecar of ours, which is no part of a checkpoint's content."""
    return any(fnmatch(name, pattern) for pattern in SIDECAR_PATTERNS)


def listing(path: Path) -> list[Path]:
    """The files of a checkpoint folder (or the one file), our own sidecars left out, sorted by path.

    A link to a file counts as the file: caches keep checkpoints as links, and the content is what is loaded.
    """
    if path.is_file():
        return [path]
    found = (p for p in path.rglob("*") if p.is_file())
    return sorted(p for p in found if not is_sidecar(p.name))


def manifest(
    path: Path, files: Sequence[Path] | None = None, kept: hashing.Kept | None = None
) -> schemas.Manifest:
    """Digest every file under a path. Raises `OSError` where a file cannot be read.

    `kept`: digests that other ranks, or an interrupted run, made of files that have not changed since.
    """
    base = path if path.is_dir() else path.parent
    listed = listing(path) if files is None else list(files)
    found = hashing.digest_all(listed, kept, threads=1, mapped=False)
    entries = [
        schemas.FileEntry(path=p.relative_to(base).as_posix(), size=p.stat().st_size, digest=found[p])
        for p in listed
    ]
    return schemas.Manifest(root=root_of(entries), files=entries)


def root_of(entries: Iterable[schemas.FileEntry]) -> str:
    """sha256 over the domain header and one line `path size digest` per file, sorted by path."""
    sha = hashlib.sha256(_DOMAIN)
    for e in sorted(entries, key=lambda e: e.path):
        sha.update(f"{e.path} {e.size} {e.digest}\n".encode())
    return "sha256:" + sha.hexdigest()


def compare(path: Path, known: schemas.Manifest) -> list[str]:
    """Digest the files again and say what differs: one line per file, empty when all is equal."""
    base = path if path.is_dir() else path.parent
    out = []
    for entry in known.files:
        p = base / entry.path
        if not p.is_file():
            out.append(f"{entry.path} is gone")
        elif p.stat().st_size != entry.size:
            out.append(f"{entry.path} has {p.stat().st_size:,} bytes, {entry.size:,} were recorded")
        elif file_digest(p) != entry.digest:
            out.append(f"{entry.path} has other content than was recorded")
    return out
