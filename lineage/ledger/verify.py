"""Verifying a ledger: chains, seals, blobs, series, evidence; file, line and kind of any damage are named.

What cannot be seen: a last line changed before any seal or later header names it, and a tail cut off to the
last seal, unless an anchor outside the folder is at hand. Nor can a value changed inside a hot series file,
which has no checksums, or a series file that was removed: the journal does not name them. Whoever can write
both ledger and anchor can change both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .._rooms import schemas
from ..bundle import verifying as bundles
from . import blobs, evidence, layout, pulled, scan, series, tables
from .blanked import BLANKED
from .seal import root_of

Known = dict[tuple[str, int], str]
"""(journal file, sequence number) -> digest of that line"""


@dataclass
class Verification:
    """What was checked and what was found."""

    files: int = 0
    records: int = 0
    seals: int = 0
    anchored: list[str] = field(default_factory=list)
    """where roots of this ledger are anchored, as the ledger says"""
    damage: list[scan.Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """what could not be checked, and what an honest reader must know"""
    unread: dict[str, int] = field(default_factory=dict)
    """journal file -> its last line that a seal or a header names, and that the pages of a pulled ledger do not have"""

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged. A torn last line that was never acknowledged is no damage."""
        return all(d.code == "LIN-J001" for d in self.damage)


def verify(ledger: Path, anchors: Sequence[str] = ()) -> Verification:
    """Check everything in a ledger folder.

    `anchors` are roots read from outside (a tracker's tag, a git note): each must be the root of a seal here. Of a
    ledger that was pulled out of a tracker the roots that were read there count too, and what a tracker never has is
    said, not taken for damage.
    """
    out = Verification()
    marker = _marker(ledger, out)
    anchors = [*anchors, *(marker.roots if marker else ())]
    known: Known = {}
    records: list[schemas.Record] = []
    for path in scan.journal_files(ledger):
        found, damage = scan.read_file(path, ledger)
        out.files += 1
        out.damage += damage
        records += found
        known |= _digests(path, ledger) | {(r.file, r.seq): scan.digest_of(r.raw) for r in found}
    out.records = len(records)
    out.damage += _heads(records, known)
    out.damage += _anchors(records, anchors, pulled_=marker is not None)
    out.damage += _own_anchors(records)
    out.damage += _blobs(ledger, records)
    out.damage += _series(ledger)
    out.damage += _evidence(ledger, records)
    out.damage += _bundles(ledger, records)
    out.damage += _two_writers(records)
    out.damage += _wordless(records, marker)
    if marker:
        _set_apart(out, marker)
    seals = [r for r in records if r.kind == "seal"]
    out.seals = len(seals)
    told = {f"{r.payload.tracker}: {r.payload.place}" for r in records if r.kind == "anchor"}
    out.anchored = sorted(told.union(marker.places if marker else ()))
    out.notes += [
        f"{file} began elsewhere: {text}; verify that one too" for file, text in _moved(records).items()
    ]
    out.notes += _of_pulled(marker, records) if marker else []
    out.notes += _notes(out, anchors)
    return out


def _marker(ledger: Path, out: Verification) -> pulled.Pulled | None:
    try:
        return pulled.read(ledger)
    except pulled.MarkerDamaged as e:
        out.damage.append(scan.Damage("LIN-J006", pulled.NAME, 0, str(e)))
        return None


def _wordless(records: Iterable[schemas.Record], marker: pulled.Pulled | None) -> list[scan.Damage]:
    """Lines without their words come from trackers: the training process writes none."""
    if marker is not None:
        return []
    text = "stands here as a tracker has it, without its words; the training process wrote it with them"
    return [scan.Damage("LIN-J003", r.file, r.line, text) for r in records if r.raw.startswith(BLANKED)]


def _set_apart(out: Verification, marker: pulled.Pulled) -> None:
    """What is not here because no tracker has it, or the pages that were read do not: said, and no damage."""
    kept = []
    for d in out.damage:
        if d.code == "LIN-J008" and d.text.partition(";")[0].partition(",")[0].endswith("is gone"):
            gone = d.text if d.text.startswith("blob") else f"{d.file} {d.text}"
            name = gone.partition(" is gone")[0].replace("blob ", "the diff of the working tree, blob ")
            said = f"missing: {name}: no tracker gets it; it stayed where the run trained"
            out.notes += [said] if said not in out.notes else []
        elif d.code == "LIN-J007" and d.line > marker.lines.get(d.file, 0):
            out.unread[d.file] = max(out.unread.get(d.file, 0), d.line)
        else:
            kept.append(d)
    out.damage = kept
    for file, last in sorted(out.unread.items()):
        first = marker.lines.get(file, 0) + 1
        out.notes.append(
            f"missing: journal {file}, lines {first:,} to {last:,}: a seal or a header names them, and the pages that "
            "were read do not have them"
        )


def _of_pulled(marker: pulled.Pulled, records: Sequence[schemas.Record]) -> list[str]:
    """What a reader of a pulled ledger must know: what it was held against, and what it lacks."""
    sources = ", ".join(p.source for p in marker.pages)
    roots = f"{len(marker.roots):,} anchored {'root' if len(marker.roots) == 1 else 'roots'}"
    out = [
        f"pulled out of {sources}, as read at {marker.since}; "
        + (f"held against {roots}: {', '.join(marker.places)}" if marker.roots else "no anchor stands there")
    ]
    wordless = [r for r in records if r.raw.startswith(BLANKED)]
    if wordless:
        kinds = ", ".join(sorted({r.kind for r in wordless}))
        out.append(
            f"{len(wordless):,} of {len(records):,} lines ({kinds}) are here without the words of persons and "
            "exceptions, which stayed where the run trained: the chain runs over the digests of the whole lines, and "
            "what else these lines say cannot be held against it"
        )
    return [*out, *marker.notes, *(f"missing: {m}" for m in marker.missing)]


def _digests(path: Path, ledger: Path) -> Known:
    """Digests of all whole lines by their place: a line that cannot be read is not taken for a gone one."""
    name = str(path.relative_to(layout.journal_folder(ledger)))
    try:
        return {(name, n - 1): scan.digest_of(raw) for n, raw, whole in scan.raw_lines(path) if whole}
    except OSError:
        return {}  # `scan.read_file` has named it


def _heads(records: Iterable[schemas.Record], known: Known) -> list[scan.Damage]:
    """Every head that a seal or a later header names must still be there, unchanged."""
    out = []
    here, moved = {file for file, _ in known}, _moved(records)
    for r in records:
        heads = {"seal": "heads", "journal_header": "previous"}.get(r.kind)
        if heads is None:
            continue
        for head in getattr(r.payload, heads):
            there = known.get((head.file, head.seq))
            if there is None and head.file not in here and r.file in moved:
                continue  # it is in the other folder, see `_notes`
            if there is None:
                text = f"line {head.seq + 1}, which {r.file} line {r.line} names, is gone: cut or removed"
                out.append(scan.Damage("LIN-J007", head.file, head.seq + 1, text))
            elif there != head.digest:
                text = f"differs from the digest that {r.file} line {r.line} holds: it was changed afterwards"
                out.append(scan.Damage("LIN-J003", head.file, head.seq + 1, text))
        if r.kind == "seal" and root_of(r.payload.heads) != r.payload.root:
            out.append(scan.Damage("LIN-J003", r.file, r.line, "the seal's root does not fit its heads"))
    return list({(d.code, d.file, d.line): d for d in out}.values())


def _moved(records: Iterable[schemas.Record]) -> dict[str, str]:
    """Journal files that began in another folder, which could not be written -> what they say of it."""
    found = (r for r in records if r.kind == "degraded" and r.payload.code == "LIN-J012")
    return {r.file: r.payload.consequence for r in found if r.payload.part == "journal" and r.seq == 1}


def _anchors(
    records: Iterable[schemas.Record], anchors: Sequence[str], *, pulled_: bool
) -> list[scan.Damage]:
    roots = {r.payload.root for r in records if r.kind == "seal"}
    or_ = (
        ", or the chunk of the journal with it never came to the page (`lineage sync` where the run trained)"
    )
    why = "it was cut or edited after it" + (or_ if pulled_ else "")
    return [
        scan.Damage("LIN-J009", "", 0, f"anchor {a} is the root of no seal in this ledger: {why}")
        for a in anchors
        if a not in roots
    ]


def _own_anchors(records: Sequence[schemas.Record]) -> list[scan.Damage]:
    """A root that the ledger itself says was anchored must be that of a seal here, unless the seal is elsewhere."""
    roots, moved = {r.payload.root for r in records if r.kind == "seal"}, _moved(records)
    return [
        scan.Damage(
            "LIN-J009",
            r.file,
            r.line,
            f"the seal with the root {r.payload.root}, anchored in {r.payload.tracker}: {r.payload.place}, is gone",
        )
        for r in records
        if r.kind == "anchor" and r.payload.root not in roots and r.file not in moved
    ]


def _blobs(ledger: Path, records: Iterable[schemas.Record]) -> list[scan.Damage]:
    """Blobs must be there and fit their names."""
    out = []
    for r in records:
        digest = getattr(r.payload, "diff", None) if r.kind == "code" else None
        if digest and not blobs.path_of(ledger, digest).is_file():
            out.append(scan.Damage("LIN-J008", r.file, r.line, f"blob {digest} is gone"))
    for path in sorted((ledger / "blobs").glob("sha256/*/*")):
        if path.name.startswith("."):
            continue
        name = str(path.relative_to(ledger))
        try:
            if hashlib.sha256(path.read_bytes()).hexdigest() != path.name:
                out.append(scan.Damage("LIN-J008", name, 0, "content differs from its name"))
        except OSError as e:
            out.append(scan.Damage("LIN-J008", name, 0, f"cannot be read: {e}"))
    return out


def _evidence(ledger: Path, records: Iterable[schemas.Record]) -> list[scan.Damage]:
    """Evidence must fit its manifest, and be there under the root that the journal recorded."""
    out = evidence.damage(ledger)
    for r in records:
        if r.kind != "preserved":
            continue
        found = evidence.root_of(ledger / r.payload.location)
        if found is None:
            text = f"is gone, or its manifest is; {r.file} line {r.line} recorded it"
            out.append(scan.Damage("LIN-J008", r.payload.location, 0, text))
        elif found != r.payload.root:
            text = f"its manifest is not the one that {r.file} line {r.line} recorded"
            out.append(scan.Damage("LIN-J008", r.payload.location, 0, text))
    return out


def _bundles(ledger: Path, records: Iterable[schemas.Record]) -> list[scan.Damage]:
    """Bundles must fit their manifests, and be there where the journal recorded one."""
    out = bundles.damage(ledger)
    for r in records:
        if r.kind == "bundle" and not (ledger / r.payload.location).is_dir():
            text = f"is gone; {r.file} line {r.line} recorded it"
            out.append(scan.Damage("LIN-J008", r.payload.location, 0, text))
    return out


def _series(ledger: Path) -> list[scan.Damage]:
    out = []
    for table in tables.TABLES:
        for path in series.files(ledger, table):
            fault = series.fault(path)
            if fault:
                out.append(scan.Damage("LIN-J010", str(path.relative_to(ledger)), 0, fault))
    return out


def _two_writers(records: Iterable[schemas.Record]) -> list[scan.Damage]:
    """Two processes that trained as one rank of one run at overlapping times.

    A tool that adds to the ledger, such as `lineage incident`, begins no segment and is not meant.
    """
    spans: dict[str, list[float]] = {}
    ranks: dict[int, set[str]] = {}
    for r in records:
        spans.setdefault(r.file, []).append(r.at.timestamp())
        if r.kind == "segment":
            ranks.setdefault(r.rank, set()).add(r.file)
    out = []
    for rank, files in ranks.items():
        first, *others = sorted(files, key=lambda f: min(spans[f]))
        for second in others:
            if min(spans[second]) < max(spans[first]) and not _one_process(first, second):
                text = f"writes for rank {rank} at the same time as {first}; both are kept"
                out.append(scan.Damage("LIN-J011", second, 1, text))
            first = max(first, second, key=lambda f: max(spans[f]))
    return out


def _one_process(a: str, b: str) -> bool:
    """Whether one process wrote both files, in two segments of its own: it attached twice."""
    apart = a.partition("/")[0] != b.partition("/")[0]
    return apart and layout.writer_of(a) == layout.writer_of(b)


def _notes(v: Verification, anchors: Sequence[str]) -> list[str]:
    if anchors:
        return []
    if v.anchored:
        return [
            "no anchor was compared: read the root in "
            + ", ".join(v.anchored)
            + " and run `lineage verify --anchor sha256:...`"
        ]
    return ["no seal is anchored outside this folder, so a tail that was cut off cannot be seen"]
