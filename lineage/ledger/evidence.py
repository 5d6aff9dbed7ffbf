"""The evidence store: write-once copies that rotation cannot reach, and manifests of what was moved out of its reach.

A checkpoint is kept in one of three ways, see `preserve`. Digested before, digested again where it lies afterwards,
then made read-only. A hard link is never one of them: it shows whatever is written over the original in place.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .._rooms import schemas
from . import evidence_copy, evidence_held, evidence_move, evidence_store, files, hashing, layout
from .evidence_cost import Cost, cost
from .evidence_files import (
    MANIFEST,
    EvidenceError,
    Progress,
    Say,
    base_of,
    differs,
    everything,
    identities,
    manifest,
    no_progress,
    say_nothing,
    some,
)
from .evidence_held import damage, digests, folder, place_of, point, root_of

__all__ = [
    "MANIFEST",
    "Cost",
    "EvidenceError",
    "Method",
    "cost",
    "damage",
    "digests",
    "folder",
    "place_of",
    "point",
    "preserve",
    "root_of",
]

Method = Literal["auto", "reflink", "copy", "move"]
Made = Literal["copy", "reflink", "moved"]


def preserve(
    ledger: Path,
    source: Path | str,
    what: str,
    *,
    method: Method = "auto",
    to: Path | str | None = None,
    members: Sequence[Path] | None = None,
    threads: int = 1,
    progress: Progress = no_progress,
    say: Say = say_nothing,
) -> schemas.Preserved:
    """Keep a checkpoint, a folder or a file where neither rotation nor overwriting reaches it.

    Args:
        source: a folder, a file, or a URL that fsspec reads; a file:// URL is the path that it names.
        what: what it is, in words; part of the name of a copy.
        method: `auto` shares extents where the file system can and copies elsewhere; `reflink` fails where it cannot;
            `copy` copies every byte; `move` renames the checkpoint out of the rotation's reach, which takes no space.
        to: a folder or URL for the copy; by default the ledger's evidence store, which has its manifest in any case.
        members: the files to take; all of the source's by default.
        threads: for digests. 1 also maps no file, as is right inside a training process.
        progress: called with (what is being done, bytes done, bytes in all).
        say: called with what was left out, and with what was held already.

    Content that is held already is verified and not copied again. Raises `EvidenceError` where the source is gone,
    where there is no room, where its files change meanwhile, or where the copy differs; nothing is lost then, and
    no half-made copy has a name. After an interrupt the next call goes on.
    """
    how = _How(ledger, what, method, threads, progress, say)
    place = evidence_store.placed(source)
    to = None if to is None else evidence_store.placed(to)
    if isinstance(place, str):
        return how.fetched(place, to)
    path = place
    if not path.exists():
        raise EvidenceError(f"{path} is gone; nothing could be preserved of it")
    evidence_copy.drop_stale(folder(ledger))
    try:
        kept = method == "auto" and to is None and evidence_move.is_kept(path)
        if (method == "move" or kept) and members is None:
            return how.moved(path)
        chosen = list(members) if members is not None else everything(path, say)
        if not chosen:
            raise EvidenceError(f"{path} holds no files; nothing could be preserved of it")
        return how.copied(path, chosen, to, whole=members is None)
    except evidence_move.CannotMove as e:
        raise EvidenceError(f"{e}. Leave --method out, and it is copied") from None
    except OSError as e:
        raise EvidenceError(f"{path} could not be preserved in {folder(ledger)}: {e}") from e


@dataclass(frozen=True)
class _How:
    """The settings of one preservation, and its three ways."""

    ledger: Path
    what: str
    method: Method
    threads: int
    progress: Progress
    say: Say

    def copied(
        self, path: Path, chosen: Sequence[Path], to: Path | str | None, *, whole: bool
    ) -> schemas.Preserved:
        """A copy in the store, in another folder, or at a URL."""
        before = identities(chosen)
        known = self._digested(path, chosen)
        name = evidence_held.name(self.what, known)
        at = None if to is None else _place(to, name)
        held = evidence_held.find(self.ledger, known, at)
        if held is not None:
            self._check(*held)
            return self._record(str(path), *held, "copy", at)
        made: Made = "copy"
        if at is None:
            target = evidence_held.free_name(self.ledger, name)
            made = self._copy(path, chosen, target, known)
        elif evidence_store.is_url(at):
            evidence_store.put(path, chosen, known, str(to), name, progress=self.progress)
            target = point(self.ledger, known, at, self.what)
        else:
            made = self._beside(path, chosen, Path(at), known)
            target = point(self.ledger, known, at, self.what)
        if whole and (everything(path) != list(chosen) or identities(chosen) != before):
            evidence_copy.remove(target)
            raise EvidenceError(f"the files of {path} changed while they were preserved; preserve again")
        return self._record(str(path), target, known, made, at)

    def _check(self, held: Path, known: schemas.Manifest) -> None:
        evidence_held.check(held, known, threads=self.threads, progress=self.progress)
        where = place_of(held) or held
        self.say(f"{where} holds this content already; it was verified, and is not copied again")

    def _beside(self, path: Path, chosen: Sequence[Path], target: Path, known: schemas.Manifest) -> Made:
        """A copy in a folder of the caller's."""
        if not target.exists():
            return self._copy(path, chosen, target, known)
        if wrong := differs(target, known, threads=self.threads, progress=self.progress):
            raise EvidenceError(
                f"{target} is there, and holds something else: {some(wrong)}. Name another --to"
            )
        return "copy"

    def _copy(
        self, path: Path, chosen: Sequence[Path], target: Path, known: schemas.Manifest
    ) -> Literal["copy", "reflink"]:
        biggest = max(chosen, key=lambda p: p.stat().st_size)
        shared = self.method != "copy" and evidence_copy.reflinks(biggest, target.parent)
        if self.method == "reflink" and not shared:
            raise EvidenceError(
                f"the file system cannot share extents between {path} and {target.parent}: it takes btrfs or xfs, "
                "and one file system for both. Nothing was changed; leave --method out, and it is copied"
            )
        if not shared:
            needed = evidence_store.known_bytes(known) - evidence_copy.begun(target)
            evidence_copy.room(target.parent, path, needed)
            if begun := evidence_copy.begun(target):
                self.say(f"an earlier copy of it was interrupted: its {begun:,} bytes were gone on with")
        return evidence_copy.copy(
            path,
            chosen,
            target,
            known,
            method="auto" if shared else "copy",
            threads=self.threads,
            progress=self.progress,
        )

    def moved(self, path: Path) -> schemas.Preserved:
        """Renamed out of the rotation's reach. Its manifest in the store has no sidecars: marks are written there."""
        chosen = files.listing(path)
        if not chosen:
            raise EvidenceError(f"{path} holds no files; nothing could be preserved of it")
        known = self._digested(path, chosen)
        path = Path(os.path.abspath(path))
        now = evidence_move.out_of_reach(path)
        if wrong := differs(base_of(now), known, threads=self.threads, progress=self.progress):
            raise EvidenceError(
                f"{path} was written to while it was moved to {now}: {some(wrong)}. Preserve {now} again"
            )
        target = point(self.ledger, known, str(now), self.what)
        if now == path:
            self.say(f"{path} was moved out of the rotation's reach before; it was verified")
        else:
            self.say(f"{path} is now {now}: resume from there")
        return self._record(str(path), target, known, "moved", str(now))

    def fetched(self, url: str, to: Path | str | None) -> schemas.Preserved:
        """Copied from a store."""
        if self.method in ("move", "reflink") or to is not None:
            asked = f"--method {self.method}" if to is None else f"--to {to}"
            raise EvidenceError(
                f"{url} is in a store: it can only be copied into the evidence store, so not with {asked}"
            )
        found = evidence_store.fetch(
            folder(self.ledger),
            lambda known: evidence_held.name(self.what, known),
            url,
            threads=self.threads,
            progress=self.progress,
        )
        if found.held:
            self._check(found.folder, found.manifest)
        return self._record(url, found.folder, found.manifest, "copy", None)

    def _digested(self, path: Path, chosen: Sequence[Path]) -> schemas.Manifest:
        """Digest the source; what an interrupted run digested is not read again, if its files have not changed."""
        kept = hashing.Kept(self.ledger / layout.DIGESTS, f"preserve {path.absolute()}")
        known = manifest(path, chosen, kept=kept, threads=self.threads, progress=self.progress)
        kept.forget()
        return known

    def _record(
        self, source: str, target: Path, known: schemas.Manifest, method: Made, at: str | None
    ) -> schemas.Preserved:
        return schemas.Preserved(
            what=self.what,
            source=source,
            location=str(target.relative_to(self.ledger)),
            root=known.root,
            files=len(known.files),
            bytes=evidence_store.known_bytes(known),
            method=method,
            verified=True,
            at=at,
        )


def _place(to: Path | str, name: str) -> str:
    return f"{str(to).rstrip('/')}/{name}" if evidence_store.is_url(to) else str(Path(to).absolute() / name)
