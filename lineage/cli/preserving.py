"""Which evidence an incident needs, and the keeping of it."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .._rooms import schemas
from ..capture.pseudonym import node
from ..judge.graph import Node
from ..judge.incident_life import lives
from ..judge.quarantined import quarantine
from ..ledger import evidence, evidence_store, hashing, layout
from ..ledger.evidence_files import Progress, Say, no_progress, say_nothing
from ..ledger.journal import Journal
from ..ledger.reader import Ledger
from ..ledger.scan import heads
from ..ledger.seal import seal
from ..recorder import incidents
from ..recorder.quarantine import mark_one
from .common import Subject


@dataclass(frozen=True)
class Item:
    """One thing to keep."""

    what: str
    source: Path | str
    """a URL is text"""
    checkpoint: str | None = None
    members: Sequence[Path] | None = None
    known: schemas.Manifest | None = None
    """the manifest recorded at the save"""

    @property
    def size(self) -> int:
        """Bytes of the files of ranks; what a checkpoint takes, `evidence.cost` says."""
        return sum(p.stat().st_size for p in self.members or () if p.is_file())


def place_of(path: str) -> Path | str:
    """A checkpoint's place as it is recorded: a path, or a URL."""
    return evidence_store.placed(path)


def plan(subject: Subject, segment: str, bad: schemas.FirstBad) -> list[Item]:
    """The last good checkpoint, the first bad one, the batches captured at the alarm, and all ranks' files."""
    items = []
    nodes = subject.graph.nodes
    for what, uid in (
        ("last good checkpoint", bad.last_good_checkpoint),
        ("first bad checkpoint", bad.first_bad_checkpoint),
    ):
        found = nodes.get(uid or "")
        if found and found.checkpoint.path:
            known = found.checkpoint.manifest
            items.append(Item(what, _at_hand(subject, found), uid, known=known))
    captured = subject.ledger.path / "captured" / segment
    if any(captured.glob("**/batches*")):
        items.append(Item("first bad batch", captured))
    ledger = subject.ledger.path
    ranks = [
        *(layout.journal_folder(ledger) / segment).glob("*"),
        *(layout.series_folder(ledger) / segment).glob("*"),
    ]
    items.append(Item("rank files", ledger, members=sorted(ranks)))
    return items


def _at_hand(subject: Subject, node: Node) -> Path | str:
    """Where a checkpoint is: where it was saved or moved to; where it is gone from there, what was kept of it."""
    saved = place_of(str(node.checkpoint.path))
    if isinstance(saved, str) or saved.exists():
        return saved
    told = {e for m in node.marks if m.mark == "preserved" for e in m.evidence}
    for r in reversed(subject.ledger.of("preserved")):
        kept = subject.ledger.path / r.payload.location if r.payload.at is None else place_of(r.payload.at)
        if r.id in told and isinstance(kept, Path) and kept.exists():
            return kept
    return saved


def costs(subject: Subject, items: Sequence[Item], method: evidence.Method) -> dict[str, evidence.Cost | str]:
    """What each item would take, or why that cannot be told."""
    out: dict[str, evidence.Cost | str] = {}
    for item in items:
        if item.members is not None:
            out[item.what] = evidence.Cost(len(item.members), item.size, item.size, None, "copy")
            continue
        try:
            way = method if item.checkpoint else "auto"
            out[item.what] = evidence.cost(subject.ledger.path, item.source, way, known=item.known)
        except evidence.EvidenceError as e:
            out[item.what] = str(e)
    return out


def held_before(ledger: Path) -> set[str]:
    """The evidence that is there already, by its place in the ledger."""
    return {str(p.relative_to(ledger)) for p in evidence.folder(ledger).glob("*")}


def used(kept: Sequence[schemas.Preserved], before: set[str]) -> int:
    """Bytes of disk that were used up by what was kept."""
    return sum(p.bytes for p in kept if p.method == "copy" and p.location not in before)


def open_journal(subject: Subject, segment: str) -> Journal:
    """A journal file of this process, in a segment of the run."""
    place = schemas.Place(node=node(subject.ledger.run, socket.gethostname()), pid=os.getpid())
    return Journal(subject.ledger.path, subject.ledger.run, segment, 0, place)


def name_later(subject: Subject, journal: Journal, bads: dict[str, schemas.FirstBad]) -> dict[str, bool]:
    """Write down what no process named while it ran: first bad cells with their incidents, and quarantine marks.

    Returns checkpoint -> whether its sidecar has the mark, of those that were marked now.
    """
    told = subject.ledger.of("first_bad")
    named = {r.payload.cell.segment for r in told if r.payload.cell is not None}
    for segment, bad in bads.items():
        if bad.cell is not None and segment not in named:
            incidents.open_incident(bad, journal.append)
    now = Ledger(subject.ledger.path)  # with what was just written: marks name the records that they rest on
    found = quarantine(now.records, bads=bads)
    return {q.checkpoint: mark_one(q, journal.append) for q in found.unmarked}


def preserve_all(
    subject: Subject,
    segment: str,
    bad: schemas.FirstBad,
    items: Sequence[Item],
    progress: Callable[[str], Progress] = lambda what: no_progress,
    *,
    method: evidence.Method = "auto",
    say: Say = say_nothing,
) -> tuple[list[schemas.Preserved], list[str]]:
    """Keep every item and record it. What cannot be kept is named; the rest is kept nevertheless."""
    ledger = subject.ledger.path
    journal = open_journal(subject, segment)
    name_later(subject, journal, {segment: bad})
    kept, problems = [], []
    if bad.last_good_checkpoint is None:
        problems.append("last good checkpoint: none is recorded before the first bad step")
    if not any(i.what == "first bad batch" for i in items):
        problems.append(
            "first bad batch: no rank captured it (it is captured at an alarm, where a batch was given)"
        )
    for item in items:
        try:
            found = _preserve(ledger, item, method, progress(item.what), say)
        except (evidence.EvidenceError, OSError) as e:
            problems.append(f"{item.what}: {e}")
            continue
        if item.known:
            problems += [f"{item.what}: {w}" for w in other_than_saved(ledger, found, item.known)]
        kept.append(found)
        record(journal, found, item.checkpoint)
    _hold(subject, journal, segment, complete=not problems)
    journal.append(seal(heads(ledger)[0], "incident"))
    journal.close()
    return kept, problems


def record(
    journal: Journal, found: schemas.Preserved, checkpoint: str | None, why: str | None = None
) -> None:
    """Write down what was kept, and that the checkpoint is preserved, with where it lies now."""
    written = journal.append(found)
    if checkpoint:
        moved = found.at if found.method == "moved" else None
        fact = schemas.CheckpointMark(
            checkpoint=checkpoint,
            mark="preserved",
            why=why or f"evidence in {found.at or found.location}",
            evidence=[written.id],
            by="person" if why else "layer",
            path=moved,
        )
        journal.append(fact)


def other_than_saved(ledger: Path, found: schemas.Preserved, known: schemas.Manifest) -> list[str]:
    """What of kept evidence is not as it was recorded at the save, in words: it is kept as it is now."""
    held = evidence.digests(ledger / found.location)
    wrong = [
        f"{e.path} {'is gone' if e.path not in held else 'has other content than was recorded'}"
        for e in known.files
        if held.get(e.path) != e.digest
    ]
    return [f"LIN-C005: {w}; it is kept as it is now" for w in wrong[:3]]


def _preserve(
    ledger: Path, item: Item, method: evidence.Method, progress: Progress, say: Say
) -> schemas.Preserved:
    """Keep one item. Files that ranks may still append to are copied first, and the copy is kept."""
    if item.members is None:
        return evidence.preserve(
            ledger,
            item.source,
            item.what,
            method=method if item.checkpoint else "auto",
            threads=hashing.ALL_CORES,
            progress=progress,
            say=say,
        )
    with tempfile.TemporaryDirectory(
        dir=layout.make_folder(evidence.folder(ledger)), prefix=".taken-"
    ) as taken:
        for member in item.members:
            target = Path(taken) / member.relative_to(item.source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(member, target)
        found = evidence.preserve(ledger, Path(taken), item.what, progress=progress)
    return found.model_copy(update={"source": str(item.source)})


def _hold(subject: Subject, journal: Journal, segment: str, *, complete: bool) -> None:
    """The incident goes on: its evidence is held. Nothing is said where some of it is missing."""
    told = lives(Ledger(subject.ledger.path).records)  # read anew: it may have been opened just now
    going_on = [life for life in told if life.is_open and life.reached("evidence_held") is None]
    of_this = [life for life in going_on if life.segment == segment] or going_on
    if of_this and complete:
        journal.append(of_this[-1].adds("evidence_held"), caused_by=of_this[-1].records[-1:])
