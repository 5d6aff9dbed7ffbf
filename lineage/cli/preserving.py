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
from ..ledger import evidence, files, layout
from ..ledger.journal import Journal
from ..ledger.scan import heads
from ..ledger.seal import seal
from .common import Subject


@dataclass(frozen=True)
class Item:
    """One thing to keep."""

    what: str
    source: Path
    checkpoint: str | None = None
    members: Sequence[Path] | None = None
    known: schemas.Manifest | None = None
    """the manifest recorded at the save"""

    @property
    def size(self) -> int:
        """Bytes, as far as the files are there."""
        files = self.members if self.members is not None else _files(self.source)
        return sum(p.stat().st_size for p in files if p.is_file())


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]


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
            items.append(Item(what, Path(found.checkpoint.path), uid, known=found.checkpoint.manifest))
    captured = subject.ledger.path / "captured" / segment
    if captured.is_dir():
        items.append(Item("first bad batch", captured))
    ledger = subject.ledger.path
    ranks = [
        *(layout.journal_folder(ledger) / segment).glob("*"),
        *(layout.series_folder(ledger) / segment).glob("*"),
    ]
    items.append(Item("rank files", ledger, members=sorted(ranks)))
    return items


def preserve_all(
    subject: Subject,
    segment: str,
    bad: schemas.FirstBad,
    items: Sequence[Item],
    advance: Callable[[int], None] = lambda n: None,
) -> tuple[list[schemas.Preserved], list[str]]:
    """Keep every item and record it. What cannot be kept is named; the rest is kept nevertheless."""
    ledger = subject.ledger.path
    place = schemas.Place(node=node(subject.ledger.run, socket.gethostname()), pid=os.getpid())
    journal = Journal(ledger, subject.ledger.run, segment, 0, place)
    kept, problems = [], []
    if bad.last_good_checkpoint is None:
        problems.append("last good checkpoint: none is recorded before the first bad step")
    if not any(i.what == "first bad batch" for i in items):
        problems.append(
            "first bad batch: no rank captured it (it is captured at an alarm, where a batch was given)"
        )
    for item in items:
        try:
            found = _preserve(ledger, item)
        except (evidence.EvidenceError, OSError) as e:
            problems.append(f"{item.what}: {e}")
            continue
        advance(item.size)
        if item.known:
            wrong = files.compare(ledger / found.location, item.known)
            problems += [f"{item.what}: LIN-C005: {w}; it is kept as it is now" for w in wrong[:3]]
        kept.append(found)
        record = journal.append(found)
        if item.checkpoint:
            mark = schemas.CheckpointMark(
                checkpoint=item.checkpoint,
                mark="preserved",
                why=f"evidence in {found.location}",
                evidence=[record.id],
            )
            journal.append(mark)
    _hold(subject, journal, complete=not problems)
    journal.append(seal(heads(ledger)[0], "incident"))
    journal.close()
    return kept, problems


def _preserve(ledger: Path, item: Item) -> schemas.Preserved:
    """Keep one item. Files that ranks may still append to are copied first, and the copy is kept."""
    if item.members is None:
        return evidence.preserve(ledger, item.source, item.what)
    with tempfile.TemporaryDirectory(
        dir=layout.make_folder(evidence.folder(ledger)), prefix=".taken-"
    ) as taken:
        for member in item.members:
            target = Path(taken) / member.relative_to(item.source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(member, target)
        found = evidence.preserve(ledger, Path(taken), item.what)
    return found.model_copy(update={"source": str(item.source)})


def _hold(subject: Subject, journal: Journal, *, complete: bool) -> None:
    """The incident goes on: its evidence is held. Nothing is said where some of it is missing."""
    closed = {r.payload.uid for r in subject.ledger.of("incident") if r.payload.status == "closed"}
    incidents = [r for r in subject.ledger.of("incident") if r.payload.uid not in closed]
    if incidents and complete:
        latest: schemas.Incident = incidents[-1].payload
        held = schemas.Incident.model_validate({**latest.model_dump(), "status": "evidence_held"})
        journal.append(held, caused_by=[incidents[-1].id])
