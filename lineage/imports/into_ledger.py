"""Writing an imported run into a ledger of its own, judged as a recorded run is."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from uuid6 import uuid7

from .._rooms import schemas
from ..judge import placing, regime, reported, reported_values
from ..judge.restarts import same_restart
from ..ledger import scan
from ..ledger.journal import Journal
from ..ledger.seal import seal
from .branches import Branch, branches
from .entries import Book, ImportTrouble


@dataclass
class _Writing:
    """What is known while the branches are written in their order."""

    ledger: Path
    run: str
    entries: Sequence[schemas.Reported]
    judgements: Mapping[str, schemas.ReportedJudgement]
    segments: dict[int, str] = field(default_factory=dict)
    checkpoints: dict[tuple[int, int], str] = field(default_factory=dict)
    regimes: dict[int, schemas.Regime] = field(default_factory=dict)
    mitigations: dict[tuple[str, str], str] = field(default_factory=dict)
    """(entry, concept) -> the declared mitigation that stands for it"""


def run_id(name: str) -> str:
    """A run id for a run's name: the name where it can be one, else a readable form with a digest."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")
    if plain == name and len(plain) <= 100:
        return plain
    return f"{plain[:80]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Judged:
    """A book's entries in their places, and what each does."""

    entries: list[schemas.Reported]
    judgements: list[schemas.ReportedJudgement]


def judge(book: Book) -> Judged:
    """Place and judge the entries of a book, in the order of the source."""
    entries = placing.place(book.entries)
    return Judged(entries, reported.judge(entries))


def into_ledger(book: Book, root: Path, judged: Judged | None = None) -> Path:
    """Write a book as the ledger `root/<run id>` and return the folder; `judged` where that is done already.

    Each restart is a segment; the state that it started from is a checkpoint of the branch that held it, known
    from the source only. Raises `ImportTrouble` where that ledger is there already: an import never adds to one.
    """
    run = run_id(book.run)
    ledger = root / run
    if ledger.exists():
        raise ImportTrouble(
            f"{ledger} is there already; an import never writes into a ledger. Remove it, or name another --dir."
        )
    judged = judged or judge(book)
    entries = judged.entries
    judgements = {j.reported: j for j in judged.judgements}
    writing = _Writing(ledger, run, entries, judgements)
    cut = branches(entries)
    for branch in cut:
        _write_branch(writing, book, branch, cut)
    return ledger


def _write_branch(w: _Writing, book: Book, branch: Branch, cut: Sequence[Branch]) -> None:
    segment = str(uuid7())
    w.segments[branch.number] = segment
    place = schemas.Place(node=schemas.IMPORTED, pid=0)
    # The source is still there: an import that is cut off is made again, so no line needs to be durable by itself.
    journal = Journal(w.ledger, w.run, segment, 0, place, fsync=False)
    if branch.number == 0:
        journal.append(schemas.Run(uid=w.run, name=book.run, source="import"))
    parent = w.checkpoints.get((branch.parent, branch.from_step)) if branch.parent is not None else None
    journal.append(
        schemas.Segment(
            uid=segment,
            start=branch.start,
            parent_checkpoint=parent,
            parent_evidence="declared" if parent else "none",
            parent_step=branch.from_step if branch.parent is not None else None,
            place=place,
        ),
        step=branch.from_step or None,
    )
    journal.append(_coverage(book))
    for after, config in book.configs:
        if (
            after in branch.entries
            or (branch.number == 0 and after == 0)
            or (branch is cut[-1] and after >= len(w.entries))
        ):
            journal.append(config)
    records = {i: journal.append(w.entries[i], step=w.entries[i].placed_at).id for i in branch.entries}
    for i in branch.entries:
        _write_judgement(w, journal, branch, i, records[i])
    _write_drifts(w, journal, branch, records)
    for child in cut:
        if child.parent == branch.number and (branch.number, child.from_step) not in w.checkpoints:
            w.checkpoints[branch.number, child.from_step] = _write_checkpoint(journal, child.from_step)
    if branch is cut[-1]:
        journal.append(seal(scan.heads(w.ledger)[0], "close"))
    journal.close()


def append(
    journal: Journal, ledger: Path, judged: Judged, before: schemas.Regime | None, from_step: int
) -> None:
    """Add judged entries to a segment that was imported from something else, with the drift and regimes they make.

    `before`: the regime that holds there. `from_step`: completed updates of the state the segment started from.
    """
    judgements = {j.reported: j for j in judged.judgements}
    w = _Writing(ledger, journal.run, judged.entries, judgements)
    branch = Branch(1, from_step=from_step, parent=0, entries=list(range(len(judged.entries))))
    if before is not None:
        w.regimes[0] = before
    records = {i: journal.append(e, step=e.placed_at).id for i, e in enumerate(judged.entries)}
    for i in branch.entries:
        _write_judgement(w, journal, branch, i, records[i])
    _write_drifts(w, journal, branch, records)


def _write_judgement(w: _Writing, journal: Journal, branch: Branch, i: int, record: str) -> None:
    """The judgement of an entry; what a person reports as changed is a declared mitigation without evidence."""
    entry = w.entries[i]
    judged = w.judgements[entry.uid]
    at = first_update(entry, branch)
    journal.append(judged, step=entry.placed_at, caused_by=[record])
    if judged.regime_change != "yes" or entry.source.authority == "machine":
        return
    for concept in judged.concepts:
        uid = w.mitigations[entry.uid, concept] = str(uuid7())
        why = entry.text or "not stated in the fields of the entry"
        asked, held = _asked_and_held(entry)
        before = entry.before if held is None else None
        journal.append(
            schemas.Mitigation(uid=uid, concept=concept, before=before, after=asked, why=why), step=at
        )
        text = "reported by a person; no live value of this run was seen"
        if held is not None:
            text = f"a person reports that {held.text()} was in effect; no live value of this run was seen"
        effect = schemas.MitigationEffect(
            mitigation=uid,
            in_effect="not_shown" if held is None else "no",
            effective=held,
            text=text,
            evidence=[record],
        )
        journal.append(effect, step=at)


def _coverage(book: Book) -> schemas.Coverage:
    """Say that nothing here was seen live."""
    return schemas.Coverage(
        recorded=["what the source reports"],
        missing={"effective values": "lineage.attach(run, model=model, optimizer=optimizer) in the next run"},
        gaps=["imported after the fact: no live object, file or series of this run was seen", *book.problems],
    )


def _write_checkpoint(journal: Journal, step: int) -> str:
    uid = str(uuid7())
    missing = ["known only from a restart that the source names: its files were not seen"]
    journal.append(schemas.Checkpoint(uid=uid, step=step, status="pending", missing=missing), step=step)
    return uid


def _write_drifts(w: _Writing, journal: Journal, branch: Branch, records: Mapping[int, str]) -> None:
    """One drift for each moment, in the order of the source, and the regime that each opens.

    Entries of one step came together. Those of which only the earliest possible step is known share a moment where
    they came on one day, or out of one pair of configs; else each is a moment of its own.
    """
    at: dict[int, list[int]] = {}
    for i in branch.entries:
        at.setdefault(first_update(w.entries[i], branch), []).append(i)
    before = w.regimes.get(branch.parent) if branch.parent is not None else None
    for step, here in sorted(at.items()):
        beside = [w.entries[i] for i in here]
        for moment in _moments(w.entries, here, branch):
            causes = [records[i] for i in moment]
            found = {w.entries[i].uid: records[i] for i in moment}
            drift = _drift(w, [w.entries[i] for i in moment], beside, found, step, branch)
            if not drift.changes and not drift.not_shown:
                continue
            journal.append(drift, step=step, caused_by=causes)
            before = _write_regime(journal, drift, before, causes)
    if before is not None:
        w.regimes[branch.number] = before


def _moments(entries: Sequence[schemas.Reported], here: Sequence[int], branch: Branch) -> list[list[int]]:
    """Entries of one earliest step, by the moment at which they came."""
    out: dict[object, list[int]] = {}
    for i in here:
        entry = entries[i]
        key: object = "at the step"
        if placing.instead(entry, branch.from_step) is not None:
            key = entry.comparison or entry.date or i
        out.setdefault(key, []).append(i)
    return list(out.values())


def first_update(entry: schemas.Reported, branch: Branch) -> int:
    """The first update under what an entry reports: the one after the restart, else the one at its place."""
    if entry.restart_from is not None and entry.restart_from == branch.from_step:
        return branch.from_step + 1
    return max(entry.placed_at or 0, branch.from_step + 1, 1)


def _drift(
    w: _Writing,
    entries: Sequence[schemas.Reported],
    beside: Sequence[schemas.Reported],
    records: Mapping[str, str],
    step: int,
    branch: Branch,
) -> schemas.Drift:
    """The drift that entries of one moment amount to. What cannot be told is `not_shown`, with the reason.

    `beside` are all entries of that step, those of other moments too.
    """
    changes: list[schemas.Change] = []
    not_shown: dict[str, str] = {}
    for entry in entries:
        judged = w.judgements[entry.uid]
        if judged.regime_change == "yes":
            where = placing.instead(entry, branch.from_step)
            changes += [_change(w, entry, judged, c, records[entry.uid], where) for c in judged.concepts]
        elif judged.regime_change == "cannot_tell":
            not_shown[judged.concepts[0]] = judged.reason
    altered = {c.concept for c in changes}
    return schemas.Drift(
        moment="reported",
        from_step=step,
        lower_bound=placing.known_instead(entries, branch.from_step),
        changes=changes,
        confounded=_confounded(entries, beside, w.judgements),
        undeclared=[c.concept for c in changes if c.mitigation is None],
        unproven=[c.concept for c in changes if c.mitigation is not None],
        not_shown={k: v for k, v in not_shown.items() if k not in altered},
    )


def _confounded(
    entries: Sequence[schemas.Reported],
    beside: Sequence[schemas.Reported],
    judgements: Mapping[str, schemas.ReportedJudgement],
) -> bool:
    """Two or more changes at one restart: of one entry, or of entries whose restart or day is the same."""
    changed = [e for e in entries if judgements[e.uid].regime_change == "yes"]
    if any(len(judgements[e.uid].concepts) >= 2 for e in changed):
        return True
    others = [e for e in beside if judgements[e.uid].regime_change == "yes"]
    return any(a is not b and same_restart(a, b) for a, b in product(changed, others))


def _change(
    w: _Writing,
    entry: schemas.Reported,
    judged: schemas.ReportedJudgement,
    concept: str,
    record: str,
    where: str | None,
) -> schemas.Change:
    """One change; `where` is what is known instead of its step, which a reader must know."""
    known = schemas.catalogue().concept(concept)
    asked, held = _asked_and_held(entry)
    source = f"{entry.source.name}, {entry.source.place}" if entry.source.place else entry.source.name
    return schemas.Change(
        concept=concept,
        cls=known.cls,
        title=known.title if known.id != "unclassified" else concept,
        keys=entry.keys,
        requested_before=entry.before if held is None else None,
        requested_after=asked,
        effective_after=held,
        read_from=f"{'a machine' if entry.source.authority == 'machine' else 'a person'}: {source}",
        mitigation=w.mitigations.get((entry.uid, concept)),
        text=judged.reason + (f" ({where}: at or after this step)" if where else ""),
        evidence=[record],
    )


def _asked_and_held(entry: schemas.Reported) -> tuple[schemas.Scalar | None, schemas.Scalar | None]:
    """What was asked for, and what was in effect where the entry says that this was something else."""
    found = reported_values.asked_not_held(entry.before, entry.after)
    if found is None:
        return entry.after, None
    return schemas.Scalar.of(found[0]), schemas.Scalar.of(found[1])


def _write_regime(
    journal: Journal, drift: schemas.Drift, before: schemas.Regime | None, causes: Sequence[str]
) -> schemas.Regime | None:
    if not drift.changes:
        return before
    values = dict(before.values) if before else {}
    values |= {
        c.concept: c.requested_after or schemas.Scalar.of(f"changed at {drift.from_step}")
        for c in drift.changes
    }
    opened = schemas.Regime(
        id=regime.regime_id(values),
        index=before.index + 1 if before else 1,
        from_step=drift.from_step,
        lower_bound=drift.lower_bound,
        previous=before.id if before else None,
        values=values,
        because=[c.text for c in drift.changes],
    )
    journal.append(opened, step=drift.from_step, caused_by=causes)
    return opened
