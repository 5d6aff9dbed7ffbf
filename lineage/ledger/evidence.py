"""The evidence store: write-once copies that rotation cannot reach.

A hard link would survive a deletion and not an overwrite in place (torch.save keeps the inode), so evidence
is copied: by reflink where the file system can, byte by byte elsewhere. Digested while it is read, digested
again where it lies, then made read-only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from .._rooms import schemas
from . import files, layout
from .scan import Damage

MANIFEST = "evidence.json"
_FICLONE = 0x40049409
"""ioctl that shares extents between two files (Linux: btrfs, xfs); it fails elsewhere and nothing is lost."""


class EvidenceError(RuntimeError):
    """Evidence could not be preserved; the text says what and why. The original is untouched."""


def folder(ledger: Path) -> Path:
    """Where evidence lies."""
    return ledger / "evidence"


def preserve(
    ledger: Path,
    source: Path,
    what: str,
    *,
    known: schemas.Manifest | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    members: Sequence[Path] | None = None,
) -> schemas.Preserved:
    """Copy a folder or a file into the store, verify the copy, and make it read-only.

    Args:
        known: the manifest recorded at the save. Where a file differs from it, the evidence is still kept
            and `EvidenceError` is not raised; the difference is the caller's to record.
        progress: called with (bytes done, bytes in all).
        members: the files to take; all of the source's by default.

    Raises `EvidenceError` where the source is gone, where there is no space, or where the copy differs.
    """
    if not source.exists():
        raise EvidenceError(f"{source} is gone; nothing could be preserved of it")
    chosen = list(members) if members is not None else _everything(source)
    total = sum(p.stat().st_size for p in chosen)
    free = shutil.disk_usage(layout.make_folder(folder(ledger))).free
    if total > free:
        raise EvidenceError(f"{source} has {total:,} bytes, and {folder(ledger)} has room for {free:,}")
    before = files.manifest(source, chosen)
    target = folder(ledger) / f"{_slug(what)}-{before.root.partition(':')[2][:16]}"
    method: Literal["copy", "reflink"] = "copy"
    if not target.exists():
        method = _copy_all(source, chosen, target, before, total, progress)
    wrong = files.compare(target, before)
    if wrong:
        raise EvidenceError(f"the copy of {source} in {target} differs: {'; '.join(wrong[:3])}")
    return schemas.Preserved(
        what=what,
        source=str(source),
        location=str(target.relative_to(ledger)),
        root=before.root,
        files=len(before.files),
        bytes=total,
        method=method,
        verified=True,
    )


def _everything(source: Path) -> list[Path]:
    """All files, sidecars too: they are part of the evidence."""
    if source.is_file():
        return [source]
    return sorted(p for p in source.rglob("*") if p.is_file() and not p.is_symlink())


def _copy_all(
    source: Path,
    chosen: Sequence[Path],
    target: Path,
    manifest: schemas.Manifest,
    total: int,
    progress: Callable[[int, int], None],
) -> Literal["copy", "reflink"]:
    """Copy into a temporary folder beside the target, then rename: a half-made copy never has the name."""
    base = source if source.is_dir() else source.parent
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    cloned, done = 0, 0
    try:
        for p in chosen:
            copy = temporary / p.relative_to(base)
            layout.make_folder(copy.parent)
            cloned += _clone_or_copy(p, copy)
            done += p.stat().st_size
            progress(done, total)
        (temporary / MANIFEST).write_text(manifest.model_dump_json(by_alias=True), encoding="utf-8")
        _make_read_only(temporary)
        os.rename(temporary, target)
    except OSError as e:
        _make_writable(temporary)
        shutil.rmtree(temporary, ignore_errors=True)
        raise EvidenceError(f"{source} could not be preserved in {target}: {e}") from e
    layout.fsync_folder(target.parent)
    return "reflink" if cloned == len(chosen) else "copy"


def _clone_or_copy(source: Path, target: Path) -> bool:
    with source.open("rb") as a, target.open("xb") as b:
        with contextlib.suppress(OSError):
            fcntl.ioctl(b.fileno(), _FICLONE, a.fileno())
            return True
        shutil.copyfileobj(a, b, files.CHUNK)
        b.flush()
        os.fsync(b.fileno())
    return False


def _make_read_only(path: Path) -> None:
    for p in path.rglob("*"):
        p.chmod(0o400 if p.is_file() else 0o500)


def _make_writable(path: Path) -> None:
    if path.exists():
        path.chmod(0o700)
        for p in path.rglob("*"):
            if p.is_dir():
                p.chmod(0o700)


def _slug(what: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in what.lower()).strip("-")[:40]


def damage(ledger: Path) -> list[Damage]:
    """Digest all evidence again and name what differs from its manifest."""
    out = []
    for path in sorted(folder(ledger).glob("*")):
        if path.name.startswith("."):
            continue
        name = str(path.relative_to(ledger))
        try:
            manifest = schemas.Manifest.model_validate(json.loads((path / MANIFEST).read_bytes()))
            wrong = files.compare(path, manifest)
        except (OSError, ValueError) as e:
            wrong = [f"its manifest cannot be read: {e}"]
        out += [Damage("LIN-J008", name, 0, text) for text in wrong]
    return out
