"""The journal of a run that was read from logs: segments, what is covered, what is odd, what changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from uuid6 import uuid7

from ..._rooms import schemas
from ...capture import secrets
from ...judge import excerpt, firstbad, regime
from ...ledger import scan
from ...ledger.journal import Journal
from ...ledger.seal import seal
from . import odd
from .cut import Part, spans
from .odd import Jumped

if TYPE_CHECKING:
    from .importing import First, Import, Source, Track

BATCH = "global_batch"
SAID = 12
"""Gaps between rows that are named; the rest is counted."""


def write(done: Import) -> None:
    """Write one journal per segment, in the order in which they began, and seal them."""
    parts = done.cutter.parts
    checkpoints: dict[tuple[int, int], str] = {}
    before: dict[int, schemas.Regime | None] = {}
    for part in parts:
        journal = _journal(done, part, 0)
        if part.number == 0:
            journal.append(schemas.Run(uid=done.run, name=done.name, source="import"))
        journal.append(_segment(done, part, journal.place, checkpoints), step=part.from_step or None)
        journal.append(_coverage(done, part))
        opened = before.get(part.parent.number) if part.parent else None
        before[part.number] = _found(done, part, journal, opened)
        for child in parts:
            at = child.from_step
            if child.parent is part and at is not None and (part.number, at) not in checkpoints:
                checkpoints[part.number, at] = _checkpoint(journal, child, at)
        if part is parts[-1]:
            journal.append(seal(scan.heads(done.ledger)[0], "close"))
        journal.close()


def _journal(done: Import, part: Part, rank: int) -> Journal:
    """A journal of one rank; the logs are still there, so no line needs to be durable by itself."""
    return Journal(
        done.ledger, done.run, part.uid, rank, schemas.Place(node=schemas.IMPORTED, pid=0), fsync=False
    )


def _segment(
    done: Import, part: Part, place: schemas.Place, checkpoints: dict[tuple[int, int], str]
) -> schemas.Segment:
    parent = checkpoints.get((part.parent.number, part.from_step or 0)) if part.parent else None
    ranks = {rank for number, rank in done.tracks if number == part.number}
    return schemas.Segment(
        uid=part.uid,
        start=part.start,
        parent_checkpoint=parent,
        parent_evidence="loaded" if part.loaded and parent else "none",
        parent_step=part.from_step,
        world_size=max(done.world or 1, max(ranks, default=0) + 1),
        place=place,
        step_base=0 if done.base == 0 else 1,
        # The signals are copies of what was logged, so nothing is learned from comparing the two.
        settings={"observed": schemas.Scalar.of(True), "imported": schemas.Scalar.of("logs")},
    )


def _checkpoint(journal: Journal, child: Part, step: int) -> str:
    """The state that a later segment went on from; no file of it was seen."""
    uid = str(uuid7())
    why = "the log says that it was loaded" if child.loaded else "a later segment goes on from it"
    missing = [f"known only because {why}: its files were not seen"]
    if not child.exact:
        missing.append("its step is the earliest possible one: rows of the log lie several steps apart")
    journal.append(schemas.Checkpoint(uid=uid, step=step, status="pending", missing=missing), step=step)
    return uid


def _coverage(done: Import, part: Part) -> schemas.Coverage:
    """What the logs have of a segment, and what a reader of it must know."""
    mine = [s for s in done.sources if s.name in done.files.get(part.number, ())]
    recorded = [_told(s) for s in mine]
    if done.world is not None:
        recorded.append(f"world size {done.world:,}, as the log says")
    recorded += [f"{signal}: from `{key}`" for signal, key in done.meaning.keys.items()]
    return schemas.Coverage(
        recorded=[_masked(r) for r in recorded],
        missing={
            "values of each rank before the reduction, effective values, batches": (
                "lineage.attach(run, model=model, optimizer=optimizer) in the next run"
            )
        },
        gaps=[_masked(g) for g in _gaps(done, part, mine)],
    )


def _told(s: Source) -> str:
    keys = ", ".join(f"{k} [{s.told.units[k]}]" if k in s.told.units else k for k in list(s.keys)[:24])
    more = f" and {len(s.keys) - 24} more" if len(s.keys) > 24 else ""
    return f"{s.name} ({s.format.name}, {s.told.recognised:,} rows): {keys}{more}"


def _gaps(done: Import, part: Part, mine: Sequence[Source]) -> list[str]:
    out = ["read from logs after the fact: no live object of this run was seen"]
    for s in mine:
        out += [f"{s.name}: {text}" for text in s.told.gaps]
        if not s.zoned:
            out.append(f"{s.name}: its times carry no zone and were taken for UTC")
        if s.local:
            out.append(f"{s.name}: its lines name the rank within a node; which node it is, is not shown")
        if s.rank is not None:
            out.append(f"{s.name}: rank {s.rank} is told by the file's name alone")
        if s.name in done.cutter.joined:
            out.append(
                f"{s.name}: it goes on where the file before ends; whether that is one segment is not shown"
            )
    for text in dict.fromkeys(t for s in mine for t in s.format.about):
        out.append(text)
    out += _spacing(part, mine)
    if done.base == 0:
        out.append("the log counts its first update as 0: the ledger counts from 1, evaluation excepted")
    if not part.exact and part.from_step is not None:
        out.append(
            f"it starts from a state between step {part.from_step:,} and its first row: the log does not say which"
        )
    if done.cutter.twice and part is done.cutter.parts[-1]:
        out.append(f"{done.cutter.twice:,} rows stand more than once with equal values: each is here once")
    if done.cutter.again and part is done.cutter.parts[-1]:
        first = min(done.cutter.again)
        out.append(
            f"{len(done.cutter.again):,} steps stand more than once with other values, first step {first:,}"
        )
    return [*out, *_scaled(done, part)]


def _spacing(part: Part, mine: Sequence[Source]) -> list[str]:
    """How often the log has a row, what that means for means, and where rows are missing."""
    out = []
    interval = max((s.interval for s in part.spacing.values()), default=1)
    averaged = sorted({k for s in mine for k in s.format.averaged & s.keys.keys()})
    if interval > 1:
        mean = (
            f"; {', '.join(averaged)} is the mean over the steps since the row before, so which of these was bad is "
            "not shown"
            if averaged
            else "; the steps between are not shown"
        )
        out.append(f"logged every {interval:,} steps{mean}")
    missing = spans(part.spacing)
    if missing:
        shown = ", ".join(f"{a + 1:,}-{b - 1:,}" for a, b in missing[:SAID])
        more = f" and {len(missing) - SAID} more" if len(missing) > SAID else ""
        out.append(f"steps {shown}{more} are not in the log, whose rows else come every {interval:,}")
    return out


def _scaled(done: Import, part: Part) -> list[str]:
    """Norms so large beside a loss scale that they may carry it."""
    out = []
    for (number, rank), track in done.tracks.items():
        if number != part.number or not track.odd.scaled:
            continue
        norm, scale = sorted(track.odd.scaled)[len(track.odd.scaled) // 2]
        if norm >= odd.SCALED:
            out.append(
                f"grad norm of rank {rank} is as logged, such as {norm:,.0f} at a loss scale of {scale:,.0f}: some "
                "fp16 optimizers leave the scale in it, and whether this one did is not shown"
            )
    return out


def _found(
    done: Import, part: Part, journal: Journal, before: schemas.Regime | None
) -> schemas.Regime | None:
    """Findings, alarms and drift of a segment; returns the regime that holds at its end."""
    tracks = {rank: t for (number, rank), t in sorted(done.tracks.items()) if number == part.number}
    said: set[tuple[str, str]] = set()
    for rank, track in tracks.items():
        for f in odd.findings(track.odd, rank, track.place):
            if (f.code, f.text) not in said:
                said.add((f.code, f.text))
                value = f.values["first_step"].plain()
                journal.append(f, step=value if isinstance(value, int) else None)
        alarms = _alarms(track)
        own = journal if rank == 0 or not alarms else _journal(done, part, rank)
        for alarm, step in alarms:
            own.append(alarm, step=step)
        if own is not journal:
            own.close()
    if not tracks:
        return before
    first = tracks[min(tracks)].odd
    for jump in first.jumps[:8]:
        _open_question(journal, jump)
    return _batches(journal, first, before)


def _alarms(track: Track) -> list[tuple[schemas.Alarm, int]]:
    """Jumps within the first rows of a log that begins in the middle of a run, where no detector judges yet."""
    out = []
    for signal, code in (("loss", "LIN-A003"), ("grad_norm", "LIN-A004")):
        rows = [(f.step, f.signals[signal]) for f in track.first if signal in f.signals]
        found = excerpt.jump(signal, rows)
        if found is None:
            continue
        at: First = next(f for f in track.first if f.step == found.step)
        text = firstbad.words(signal, "out_of_range", found.value, found.baseline)
        alarm = schemas.Alarm(
            code=code,
            phase="onset",
            signal=signal,
            scope="reduced",
            abnormal="out_of_range",
            value=found.value,
            baseline=found.baseline,
            threshold=found.threshold,
            detector={k: schemas.Scalar.of(v) for k, v in found.parameters.items()},
            text=f"{text}; {track.place} {at.line:,} of {at.file}",
        )
        out.append((alarm, found.step))
    return out


def _open_question(journal: Journal, jump: Jumped) -> None:
    """A learning rate that jumped: whether the schedule was changed cannot be told."""
    text = (
        f"learning rate goes from {jump.before:.6g} to {jump.after:.6g} (line {jump.line:,} of {jump.file}); the log "
        "does not tell whether its schedule was changed: the configs of both sides would"
    )
    journal.append(
        schemas.Drift(
            moment="reported",
            from_step=jump.step,
            changes=[],
            confounded=False,
            not_shown={"lr_schedule": text},
        ),
        step=jump.step,
    )


def _batches(journal: Journal, seen: odd.Odd, before: schemas.Regime | None) -> schemas.Regime | None:
    """A global batch size that changes is a change in effect; one that grows again and again is a ramp."""
    changes = seen.batches
    if len(changes) > 2 and all(b < a for _, b, a, _, _ in changes):
        text = f"it grows {len(changes):,} times, from {changes[0][1]:,.0f} to {changes[-1][2]:,.0f}: a ramp, it seems"
        journal.append(
            schemas.Drift(
                moment="reported",
                from_step=changes[0][0],
                changes=[],
                confounded=False,
                not_shown={BATCH: text},
            ),
            step=changes[0][0],
        )
        return before
    known = schemas.catalogue().concept(BATCH)
    for step, old, new, line, file in changes[:64]:
        change = schemas.Change(
            concept=BATCH,
            cls=known.cls,
            title=known.title,
            keys=["global batch size"],
            effective_before=schemas.Scalar.of(int(old)),
            effective_after=schemas.Scalar.of(int(new)),
            read_from=f"line {line:,} of {file}",
            text=f"global batch size {old:,.0f} -> {new:,.0f} (line {line:,} of {file})",
        )
        drift = schemas.Drift(
            moment="reported", from_step=step, changes=[change], confounded=False, undeclared=[BATCH]
        )
        record = journal.append(drift, step=step)
        values = dict(before.values) if before else {}
        values[BATCH] = schemas.Scalar.of(int(new))
        before = schemas.Regime(
            id=regime.regime_id(values),
            index=before.index + 1 if before else 1,
            from_step=step,
            previous=before.id if before else None,
            values=values,
            because=[change.text],
        )
        journal.append(before, step=step, caused_by=[record.id])
    return before


def _masked(text: str) -> str:
    return str(secrets.mask(text)[0])
