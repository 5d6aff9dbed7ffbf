"""The files that evidence is made of: which ones, what their digests are, and whether they are still so."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .._rooms import schemas
from . import files, hashing, sidecars

MANIFEST = "evidence.json"
WHERE = "where.json"
"""Beside the manifest of evidence that lies elsewhere: where it lies, and how it came there."""

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, bytes done, bytes in all)."""
Say = Callable[[str], None]
"""Called with what a person should know of what was preserved, one sentence each."""


class EvidenceError(RuntimeError):
    """Evidence could not be preserved; the text says what and why. The original is untouched."""


def no_progress(doing: str, done: int, total: int) -> None:
    """Tell nobody."""


def say_nothing(text: str) -> None:
    """Tell nobody."""


def everything(source: Path, say: Say = say_nothing) -> list[Path]:
    """All files of a checkpoint, sidecars too: they are part of the evidence.

    A link to a file counts as the file that it leads to, a link to a folder as the folder. A link that leads nowhere,
    or back to a folder around it, is said and left out.
    """
    if source.is_file():
        return [source, *sidecars.of_file(source)]
    found = sorted(_walk(source, {os.path.realpath(source)}, say))
    if source / MANIFEST not in found:
        return found
    try:  # evidence itself: what the store wrote is no part of it
        schemas.Manifest.model_validate_json((source / MANIFEST).read_bytes())
    except ValueError:
        raise EvidenceError(own_name(source)) from None
    return [p for p in found if p not in (source / MANIFEST, source / WHERE)]


def own_name(source: object) -> str:
    """That a checkpoint has a file where the store writes its own."""
    return (
        f"{source} holds a file {MANIFEST} of its own, a name that the evidence store needs. Preserve the folder "
        "around it, or rename that file"
    )


def _walk(folder: Path, around: set[str], say: Say) -> Iterator[Path]:
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        path = folder / entry.name
        if entry.is_dir():
            real = os.path.realpath(path)
            if real in around:
                say(f"{path} leads back to a folder around it, and is left out")
                continue
            yield from _walk(path, around | {real}, say)
        elif entry.is_file():
            yield path
        elif entry.is_symlink():
            say(f"{path} is a link to {os.readlink(path)}, which is not there: nothing of it is preserved")


def base_of(source: Path) -> Path:
    """The folder that the paths in a manifest are relative to."""
    return source if source.is_dir() else source.parent


def manifest(
    source: Path,
    chosen: Sequence[Path],
    *,
    kept: hashing.Kept | None = None,
    threads: int = 1,
    progress: Progress = no_progress,
) -> schemas.Manifest:
    """Digest files. Raises `OSError`.

    `threads`: 1 does not map files, as is right inside a training process; more reads as a command does.
    """
    total, done = sum(p.stat().st_size for p in chosen), 0

    def tell(count: int) -> None:
        nonlocal done
        done += count
        progress("digesting", done, total)

    mapped = False if threads == 1 else None
    found = hashing.digest_all(chosen, kept, threads=threads, mapped=mapped, tell=tell)
    base = base_of(source)
    entries = [
        schemas.FileEntry(path=p.relative_to(base).as_posix(), size=p.stat().st_size, digest=found[p])
        for p in chosen
    ]
    return schemas.Manifest(root=files.root_of(entries), files=entries, method="blake3 per file")


def differs(
    folder: Path, known: schemas.Manifest, *, threads: int = 1, progress: Progress = no_progress
) -> dict[str, str]:
    """Digest files again: path -> what of it is not as the manifest says, in words. Raises `OSError`."""
    total, done, out = sum(e.size for e in known.files), 0, {}

    def tell(count: int) -> None:
        nonlocal done
        done += count
        progress("verifying", done, total)

    mapped = False if threads == 1 else None
    for entry in known.files:
        path = folder / entry.path
        if not path.is_file():
            out[entry.path] = "is gone"
        elif (size := path.stat().st_size) != entry.size:
            out[entry.path] = f"has {size:,} bytes, {entry.size:,} were recorded"
        elif hashing.digest(path, threads=threads, mapped=mapped, tell=tell) != entry.digest:
            out[entry.path] = "has other content than was recorded"
    return out


def identities(chosen: Sequence[Path]) -> list[list[int]]:
    """What changes when one of the files is written to. Raises `OSError`."""
    return [hashing.identity(p.stat()) for p in chosen]


def some(wrong: dict[str, str]) -> str:
    """The first of many, in words."""
    more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    return "; ".join(f"{path} {text}" for path, text in list(wrong.items())[:3]) + more
