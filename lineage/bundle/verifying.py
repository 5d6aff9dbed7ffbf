"""Verifying a bundle: every file against its digest, and what is partial said so. Needs no torch."""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass, field
from pathlib import Path

from .._rooms import schemas
from ..ledger.scan import Damage
from . import FOLDER, MANIFEST

_CHUNK = 1 << 20
LARGEST_HEADER = 100 << 20
"""Bytes of a safetensors header beyond which a file is refused, as its own library does."""


@dataclass
class Checked:
    """What a check of one bundle found."""

    path: Path
    manifest: schemas.BundleManifest | None = None
    files: int = 0
    bytes: int = 0
    wrong: list[str] = field(default_factory=list)
    """what is damaged, missing or does not belong"""
    partial: list[str] = field(default_factory=list)
    """what the bundle itself says was left out, and a folder that was never finished"""

    @property
    def whole(self) -> bool:
        """Whether all that the manifest names is there as it was written."""
        return not self.wrong and self.manifest is not None


def verify(path: Path) -> Checked:
    """Check one bundle's folder. Nothing is raised for what is wrong with it; nothing outside it is read."""
    out = Checked(path)
    try:
        data = (path / MANIFEST).read_bytes()
    except OSError as e:
        if path.name.startswith("."):
            there = sum(p.is_file() for p in path.rglob("*"))
            out.partial.append(
                "it was never finished: its process was killed while it was written, or is at it. "
                f"{there} files of it are there, the last of them perhaps cut; no digest vouches for them"
            )
        else:
            out.wrong.append(f"{MANIFEST} cannot be read ({e.strerror or e})")
        return out
    try:
        out.manifest = read_manifest(data)
    except ValueError as e:
        out.wrong.append(str(e))
        return out
    root = hashlib.sha256(data).hexdigest()
    name = path.name.rpartition("-")[2]
    if path.name.startswith("."):
        out.partial.append("its process was killed before it had its name")
    elif len(name) == 16 and not root.startswith(name):
        out.wrong.append(f"{MANIFEST} has other content than the folder's name says: it was changed")
    known = {MANIFEST}
    for entry in out.manifest.files:
        known.add(entry.path)
        problem = _file(path, entry)
        if problem:
            out.wrong.append(problem)
        out.files += 1
        out.bytes += entry.size
    for found in sorted(p for p in path.rglob("*") if not p.is_dir()):
        if str(found.relative_to(path)) not in known:
            out.wrong.append(f"{found.relative_to(path)} is not in the manifest")
    out.partial += [f"{what}: {why}" for what, why in out.manifest.left_out.items()]
    return out


def read_manifest(data: bytes) -> schemas.BundleManifest:
    """Read a manifest, also of a newer addition. Raises `ValueError` that says what is wrong."""
    try:
        raw = json.loads(data)
        schema = str(raw["schema"])
        if not schema.startswith("lineage/bundle/1-"):
            raise ValueError(
                f"{MANIFEST} is of {schema}, which this version does not read; install a newer runlineage"
            )
        found = schemas.open_class(schemas.BundleManifest).model_validate(raw)
        assert isinstance(found, schemas.BundleManifest)
        return found
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as e:
        raise ValueError(f"{MANIFEST} is no manifest of a bundle ({type(e).__name__})") from None
    except ValueError as e:
        first = str(e).splitlines()[0]
        raise ValueError(
            first if first.startswith(MANIFEST) else f"{MANIFEST} does not fit its schema: {first}"
        ) from None


def _file(folder: Path, entry: schemas.FileEntry) -> str | None:
    """What is wrong with one file, None where nothing is."""
    path = folder / entry.path
    if entry.path.startswith("/") or ".." in Path(entry.path).parts or path.is_symlink():
        return f"{entry.path} leads out of the bundle"
    if path.suffix not in (".json", ".safetensors"):
        return f"{entry.path} is neither JSON nor safetensors"
    try:
        size = path.stat().st_size
        if size != entry.size:
            return f"{entry.path} has {size:,} bytes, {entry.size:,} were written"
        sha = hashlib.sha256()
        with path.open("rb") as f:
            while data := f.read(_CHUNK):
                sha.update(data)
        if "sha256:" + sha.hexdigest() != entry.digest:
            return f"{entry.path} has other content than was written"
        return _header(path) if path.suffix == ".safetensors" else None
    except FileNotFoundError:
        return f"{entry.path} is gone"
    except OSError as e:
        return f"{entry.path} cannot be read ({e.strerror or e})"


def _header(path: Path) -> str | None:
    """Whether a file has the header of a safetensors file that fits its size."""
    with path.open("rb") as f:
        first = f.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
        if not 2 <= length <= min(LARGEST_HEADER, path.stat().st_size - 8):
            return f"{path.name} is no safetensors file"
        try:
            json.loads(f.read(length))
        except ValueError:
            return f"{path.name} is no safetensors file"
    return None


def damage(ledger: Path) -> list[Damage]:
    """What is wrong with the bundles of a ledger, for `lineage verify`. One that was never finished is no damage."""
    out = []
    for path in folders(ledger):
        name = str(path.relative_to(ledger))
        out += [Damage("LIN-J008", name, 0, text) for text in verify(path).wrong]
    return out


def folders(ledger: Path) -> list[Path]:
    """The bundles of a ledger, oldest segment first; those that were never finished are left out."""
    found = (ledger / FOLDER).glob("*/rank*-step*-*")
    return sorted((p for p in found if p.is_dir()), key=lambda p: (p.parent.name, _numbers(p.name)))


def _numbers(name: str) -> tuple[int, int]:
    """(step, rank) of a bundle's folder, for sorting."""
    parts = name.split("-")
    try:
        return int(parts[1].removeprefix("step")), int(parts[0].removeprefix("rank"))
    except (IndexError, ValueError):
        return 0, 0
