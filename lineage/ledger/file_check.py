"""Whether a checkpoint's files are still those that were recorded: here or in a store, file by file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from .._rooms import schemas
from . import files, hashing, sidecars


class Place(Protocol):
    """Where a checkpoint lies."""

    name: str

    def files(self) -> dict[str, int]:
        """Path below the checkpoint -> size in bytes; sidecars left out."""
        ...

    def digest(self, path: str, tell: hashing.Tell) -> str:
        """BLAKE3 of a file. Raises `OSError`."""
        ...

    def sidecar(self) -> schemas.Sidecar | None:
        """What lies beside the checkpoint; None where there is nothing. Raises `sidecars.SidecarError`."""
        ...

    def done(self) -> None:
        """All files were digested."""
        ...


class Here:
    """A checkpoint in a folder, or in one file."""

    def __init__(
        self, path: Path, kept: hashing.Kept | None = None, threads: int = hashing.ALL_CORES
    ) -> None:
        self.name, self.path = str(path), path
        self._kept, self._threads = kept, threads
        self._base = path if path.is_dir() else path.parent

    def files(self) -> dict[str, int]:
        """Path below the checkpoint -> size."""
        return {p.relative_to(self._base).as_posix(): p.stat().st_size for p in files.listing(self.path)}

    def digest(self, path: str, tell: hashing.Tell) -> str:
        """BLAKE3 of a file."""
        at = self._base / path
        return hashing.digest_all([at], self._kept, threads=self._threads, tell=tell)[at]

    def sidecar(self) -> schemas.Sidecar | None:
        """The sidecar of rank 0, which has the manifest."""
        return sidecars.read(self.path)

    def done(self) -> None:
        """Nothing need be kept any more."""
        if self._kept is not None:
            self._kept.forget()


class InStore:
    """A checkpoint at a URL that fsspec reads. Nothing is written there."""

    def __init__(self, url: str, store: Any, root: str, threads: int = hashing.ALL_CORES) -> None:
        self.name, self._store, self._root = url, store, root.rstrip("/")
        self._threads = threads
        self._folder = bool(store.isdir(self._root))

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if self._folder else f"{self._root.rpartition('/')[0]}/{path}"

    def files(self) -> dict[str, int]:
        """Path below the checkpoint -> size."""
        if not self._folder:
            return {self._root.rpartition("/")[2]: int(self._store.size(self._root))}
        found = self._store.find(self._root, detail=True)
        named = {path.removeprefix(self._root).lstrip("/"): int(info["size"]) for path, info in found.items()}
        return {p: n for p, n in sorted(named.items()) if not files.is_sidecar(p.rpartition("/")[2])}

    def digest(self, path: str, tell: hashing.Tell) -> str:
        """BLAKE3 of a file."""
        with self._store.open(self._at(path), "rb") as f:
            return hashing.digest_stream(f, threads=self._threads, tell=tell)

    def sidecar(self) -> schemas.Sidecar | None:
        """The sidecar of rank 0, which has the manifest."""
        at = f"{self._root}/lineage.json" if self._folder else f"{self._root}.lineage.json"
        try:
            data = self._store.cat_file(at)
        except FileNotFoundError:
            return None
        try:
            return schemas.Sidecar.model_validate(json.loads(data))
        except (ValueError, ValidationError) as e:
            raise sidecars.SidecarError(f"{at} cannot be read ({type(e).__name__})") from None

    def done(self) -> None:
        """Nothing was kept."""


@dataclass
class Checked:
    """What was found, file by file."""

    equal: int = 0
    changed: dict[str, str] = field(default_factory=dict)
    """path -> what of it changed, in words"""
    missing: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    """files that were not recorded"""
    unreadable: dict[str, str] = field(default_factory=dict)
    bytes: int = 0
    """read, or known to be unchanged since they were read"""

    @property
    def whole(self) -> bool:
        """Whether all is as it was recorded."""
        return not (self.changed or self.missing or self.new or self.unreadable)


def check(
    place: Place,
    known: schemas.Manifest,
    *,
    begin: Callable[[int], None] = hashing.silent,
    tell: hashing.Tell = hashing.silent,
) -> Checked:
    """Digest what lies there and hold it against a manifest. A file of another size is not read.

    Args:
        begin: called once with the bytes that are going to be read.
        tell: called with the bytes of each portion.
    """
    there, out = place.files(), Checked()
    recorded: Mapping[str, schemas.FileEntry] = {e.path: e for e in known.files}
    out.missing = sorted(recorded.keys() - there.keys())
    out.new = sorted(there.keys() - recorded.keys())
    alike = []
    for path in sorted(recorded.keys() & there.keys()):
        if there[path] != recorded[path].size:
            out.changed[path] = f"has {there[path]:,} bytes, {recorded[path].size:,} were recorded"
        else:
            alike.append(path)
    out.bytes = sum(there[p] for p in alike)
    begin(out.bytes)
    for path in alike:
        try:
            found = place.digest(path, tell)
        except OSError as e:
            out.unreadable[path] = e.strerror or type(e).__name__
            continue
        if found == recorded[path].digest:
            out.equal += 1
        else:
            out.changed[path] = "has other content than was recorded"
    if not out.unreadable:
        place.done()
    return out
