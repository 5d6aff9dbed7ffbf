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
    progress: Callable[[int, int], None] = lambda done, total: None,
    members: Sequence[Path] | None = None,
) -> schemas.Preserved:
    """Copy a folder or a file into the store, verify the copy, and make it read-only.

    Args:
        progress: called with (bytes done, bytes in all).
        members: the files to take; all of the source's by default.

    Raises `EvidenceError` where the source is gone, where there is no space, or where the copy differs.
    """
    if not source.exists():
        raise EvidenceError(f"{source} is gone; nothing could be preserved of it")
    chosen = list(members) if members is not None else _everything(source)
    if not chosen:
        raise EvidenceError(f"{source} holds no files; nothing could be preserved of it")
    try:
        total = sum(p.stat().st_size for p in chosen)
        before = files.manifest(source, chosen)
        free = shutil.disk_usage(layout.make_folder(folder(ledger))).free
    except OSError as e:
        raise EvidenceError(f"{source} could not be preserved in {folder(ledger)}: {e}") from e
    target = folder(ledger) / f"{_slug(what)}-{before.root.partition(':')[2][:16]}"
    method: Literal["copy", "reflink"] = "copy"
    if not target.exists():
        if total > free:
            raise EvidenceError(f"{source} has {total:,} bytes, and {folder(ledger)} has room for {free:,}")
        method = _copy_all(source, chosen, target, before, total, progress=progress)
    elif wrong := files.compare(target, before):
        raise EvidenceError(
            f"{target} holds this evidence since earlier, and it was changed: {_some(wrong)}. "
            "Move that folder away and preserve again."
        )
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
    """All files, sidecars too: they are part of the evidence. Of a link to a file, what it leads to."""
    if source.is_file():
        return [source]
    return sorted(p for p in source.rglob("*") if p.is_file())


def _copy_all(
    source: Path,
    chosen: Sequence[Path],
    target: Path,
    manifest: schemas.Manifest,
    total: int,
    *,
    progress: Callable[[int, int], None],
) -> Literal["copy", "reflink"]:
    """Copy into a temporary folder, verify, then rename: a half-made or a wrong copy never has the name."""
    base = source if source.is_dir() else source.parent
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    _remove(temporary)
    cloned, done = 0, 0
    try:
        for p in chosen:
            copy = temporary / p.relative_to(base)
            layout.make_folder(copy.parent)
            cloned += _clone_or_copy(p, copy)
            done += p.stat().st_size
            progress(done, total)
        (temporary / MANIFEST).write_text(manifest.model_dump_json(by_alias=True), encoding="utf-8")
        wrong = files.compare(temporary, manifest)
        if wrong:
            raise EvidenceError(
                f"the copy of {source} differs from what was read of it a moment before: {_some(wrong)}. "
                "It is still being written, or the disk is bad; preserve again."
            )
        _make_read_only(temporary)
        os.rename(temporary, target)
    except OSError as e:
        _remove(temporary)
        raise EvidenceError(f"{source} could not be preserved in {target}: {e}") from e
    except BaseException:
        _remove(temporary)
        raise
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


def _remove(path: Path) -> None:
    """Remove a folder, read-only or not."""
    if path.exists():
        for p in [path, *path.rglob("*")]:
            if p.is_dir():
                p.chmod(0o700)
        shutil.rmtree(path, ignore_errors=True)


def _some(lines: Sequence[str]) -> str:
    more = f"; and {len(lines) - 3} more" if len(lines) > 3 else ""
    return "; ".join(lines[:3]) + more


def _slug(what: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in what.lower()).strip("-")[:40]


def root_of(path: Path) -> str | None:
    """Return the root of the manifest in an evidence folder, None where there is none that can be read."""
    try:
        manifest = schemas.Manifest.model_validate(json.loads((path / MANIFEST).read_bytes()))
    except (OSError, ValueError):
        return None
    return files.root_of(manifest.files)


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
