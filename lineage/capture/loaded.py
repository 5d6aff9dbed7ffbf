"""Digests of the repository's files that this process loaded: what of a commit or a diff can matter to it.

A file that git holds unchanged is named by git's own blob id, which the revision fixes already, so nothing is read.
A changed or untracked file is read once and gets the id that git would give it; where a secret stands in it, the
digest is over the masked text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from . import canonical, modules, secrets
from .files import LARGEST, masked_content
from .git import Git

MOST = 5000
"""Loaded files that are listed."""
TOTAL = 4 << 20
"""Bytes of changed and untracked loaded files that are read in all: looking for secrets takes 0.4 s per MiB."""


@dataclass
class Loaded:
    """The loaded files of a repository."""

    files: dict[str, str] = field(default_factory=dict)
    """path in the repository -> digest"""
    whole: bool = False
    """every loaded file has its digest here"""
    note: str | None = None


def digests(git: Git, changed: Collection[str] | None, entry: str | None) -> Loaded:
    """Return what this process loaded from the repository until now, with the entry script.

    `changed` names the paths that differ from the revision, submodules among them; None where git did not tell.
    """
    if modules.is_installed(git.folder.resolve()):
        return Loaded(note="the repository lies among installed packages: its loaded files are not listed")
    paths = {*modules.inside(git.folder), *_entry(git, entry)}
    held = _held(git) if changed is not None and paths else {}
    found, left, budget = Loaded(), 0, TOTAL
    for path in sorted(paths)[:MOST]:
        name = path.relative_to(git.folder).as_posix()
        digest = None if _is_changed(name, changed or ()) else held.get(name)
        if digest is None:
            data = _content(path, budget)
            budget -= len(data or b"")
            digest = None if data is None else _digest(data, sha256=any(len(h) > 50 for h in held.values()))
        if digest is None:
            left += 1
        else:
            found.files[secrets.mask(canonical.text(name))[0]] = digest
    left += max(0, len(paths) - MOST)
    found.whole = bool(paths) and not left and len(found.files) == len(paths)
    if left:
        found.note = (
            f"{left:,} loaded files of the repository have no digest: too large, too many or with secrets"
        )
    return found


def _entry(git: Git, entry: str | None) -> list[Path]:
    if not entry:
        return []
    path = Path(entry).resolve()
    inside = path.is_file() and path.is_relative_to(git.folder) and not modules.is_installed(path)
    return [path] if inside else []


def _held(git: Git) -> dict[str, str]:
    """Path -> digest of every file that git tracks, submodules included; nothing where git does not tell."""
    listed = git("ls-files", "--stage", "--recurse-submodules", "-z", limit=32 << 20)
    if not listed.ok or listed.cut:
        return {}
    found = {}
    for line in listed.output.decode("utf-8", "surrogateescape").split("\0"):
        about, _, name = line.partition("\t")
        parts = about.split()
        if name and len(parts) == 3 and parts[2] == "0":
            found[name] = f"{'sha1' if len(parts[1]) == 40 else 'sha256'}:{parts[1]}"
    return found


def _is_changed(name: str, changed: Collection[str]) -> bool:
    """Whether a path or the submodule that it lies in differs from the revision."""
    parts = name.split("/")
    return any("/".join(parts[:n]) in changed for n in range(1, len(parts) + 1))


def _content(path: Path, budget: int) -> bytes | None:
    if secrets.is_secret_file(path.name):
        return None
    try:
        return path.read_bytes() if path.stat().st_size <= min(LARGEST, budget) else None
    except OSError:
        return None


def _digest(data: bytes, *, sha256: bool) -> str | None:
    """The blob id that git would give a content, or a digest of the masked text where a secret stands in it."""
    masked = masked_content(data)
    if masked is None:
        return None
    if masked != data:
        return canonical.digest_bytes(masked)
    whole = b"blob %d\0" % len(data) + data
    if sha256:
        return "sha256:" + hashlib.sha256(whole).hexdigest()
    return "sha1:" + hashlib.sha1(whole, usedforsecurity=False).hexdigest()
