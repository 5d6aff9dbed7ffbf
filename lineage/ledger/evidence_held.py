"""What lies in the evidence store: finding it by its content, its manifest where it lies elsewhere, its damage."""

from __future__ import annotations

import json
import os
from pathlib import Path

from .._rooms import schemas
from . import evidence_copy, evidence_store, files, layout
from .evidence_files import (
    MANIFEST,
    WHERE,
    EvidenceError,
    Progress,
    base_of,
    differs,
    no_progress,
    some,
)
from .scan import Damage


def folder(ledger: Path) -> Path:
    """Where evidence lies."""
    return ledger / "evidence"


def name(what: str, known: schemas.Manifest) -> str:
    """The name of evidence: what it is, and its content."""
    return f"{slug(what)}-{content(known).partition(':')[2][:16]}"


def slug(what: str) -> str:
    """What it is, as a part of a name."""
    return "".join(c if c.isalnum() else "-" for c in what.lower()).strip("-")[:40] or "evidence"


def content(known: schemas.Manifest) -> str:
    """The root over a checkpoint's own files: marks are written into sidecars, and make it no other checkpoint."""
    own = [e for e in known.files if not files.is_sidecar(e.path.rpartition("/")[2])]
    return files.root_of(own or known.files)


def manifests(ledger: Path) -> list[tuple[Path, schemas.Manifest]]:
    """All evidence of a ledger whose manifest can be read, with it."""
    out = []
    for path in sorted(folder(ledger).glob("*")):
        if not path.name.startswith("."):
            try:
                out.append((path, schemas.Manifest.model_validate_json((path / MANIFEST).read_bytes())))
            except (OSError, ValueError):
                continue
    return out


def find(ledger: Path, known: schemas.Manifest, at: str | None) -> tuple[Path, schemas.Manifest] | None:
    """The evidence that has this content, under whatever name.

    `at`: where its files must be; None: in the store.
    """
    same = content(known)
    for path, found in manifests(ledger):
        if content(found) == same and place_of(path) == at:
            return path, found
    return None


def place_of(path: Path) -> str | None:
    """Where evidence lies whose manifest alone is in the store; None where its files are there too."""
    try:
        at = json.loads((path / WHERE).read_bytes()).get("at")
    except (OSError, ValueError, AttributeError):
        return None
    return None if at is None else str(at)


def free_name(ledger: Path, wanted: str) -> Path:
    """A place in the store that nothing has: other evidence of that name is never replaced."""
    base, n = folder(ledger) / wanted, 1
    target = base
    while target.exists():
        n += 1
        target = base.with_name(f"{base.name}-{n}")
    return target


def point(ledger: Path, known: schemas.Manifest, at: str, what: str) -> Path:
    """Put the manifest of evidence that lies elsewhere into the store, with the place. Raises `OSError`."""
    there = find(ledger, known, at)
    if there is not None:
        return there[0]
    target = free_name(ledger, name(what, known))
    layout.make_folder(folder(ledger))
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    evidence_copy.remove(partial)
    partial.mkdir(mode=layout.DIRECTORY_MODE)
    (partial / MANIFEST).write_text(known.model_dump_json(by_alias=True), encoding="utf-8")
    (partial / WHERE).write_text(json.dumps({"at": at}), encoding="utf-8")
    evidence_copy.finish(partial, target)
    return target


def check(path: Path, known: schemas.Manifest, *, threads: int = 1, progress: Progress = no_progress) -> None:
    """Verify evidence that is held, where it lies. Raises `EvidenceError`."""
    if wrong := wrong_in(path, known, threads=threads, progress=progress):
        raise EvidenceError(
            f"{path} holds this evidence since earlier, and it was changed: {some(wrong)}. "
            "Move that folder away and preserve again."
        )


def wrong_in(
    path: Path, known: schemas.Manifest, *, threads: int = 1, progress: Progress = no_progress
) -> dict[str, str]:
    """What of evidence is not as its manifest says: path -> in words. Raises `OSError`, `EvidenceError`."""
    at = place_of(path)
    if at is not None and evidence_store.is_url(at):
        return evidence_store.differs_at(at, known)
    if at is not None:
        return differs(base_of(Path(at)), known, threads=threads, progress=progress)
    ours = {MANIFEST, WHERE, *(e.path for e in known.files)}
    there = {p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()}
    added = dict.fromkeys(sorted(there - ours), "was not preserved with it, and was put there")
    return {**differs(path, known, threads=threads, progress=progress), **added}


def root_of(path: Path) -> str | None:
    """Return the root of the manifest in an evidence folder, None where there is none that can be read."""
    try:
        known = schemas.Manifest.model_validate(json.loads((path / MANIFEST).read_bytes()))
    except (OSError, ValueError):
        return None
    return files.root_of(known.files)


def digests(path: Path) -> dict[str, str]:
    """File -> digest, of an evidence folder. Raises `OSError`, `ValueError`."""
    return {
        e.path: e.digest for e in schemas.Manifest.model_validate_json((path / MANIFEST).read_bytes()).files
    }


def damage(ledger: Path) -> list[Damage]:
    """Digest all evidence again and name what differs from its manifest. What lies elsewhere is read there."""
    out = []
    for path in sorted(folder(ledger).glob("*")):
        if path.name.startswith("."):
            continue
        below = str(path.relative_to(ledger))
        try:
            known = schemas.Manifest.model_validate(json.loads((path / MANIFEST).read_bytes()))
        except (OSError, ValueError) as e:
            out.append(Damage("LIN-J008", below, 0, f"its manifest cannot be read: {e}"))
            continue
        try:
            wrong = wrong_in(path, known)
        except (OSError, EvidenceError) as e:
            wrong = {"": str(e)}
        at = place_of(path) or below
        out += [Damage("LIN-J008", at, 0, f"{file} {text}".strip()) for file, text in wrong.items()]
    return out
