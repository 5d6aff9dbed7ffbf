"""Alarms, the first bad cell, and the end of a segment."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from uuid6 import uuid7

from .._rooms import schemas
from ..capture.watched import LINES
from ..judge import firstbad
from ..judge.detectors import Finding
from ..ledger import health as health_
from ..ledger import layout, scan
from ..ledger.reader import Ledger
from . import boundary, captured, health, mitigations, on_page, quarantine, streams
from .contain import describe, log
from .writer import Writer

if TYPE_CHECKING:
    from .live_agreement import Raised
    from .recorder import Recorder


def asked(on_alarm: Any) -> Any:
    """What was asked for at an alarm; what cannot be done is said, and left out."""
    if on_alarm is None or on_alarm == "request_stop" or callable(on_alarm):
        return on_alarm
    shown = repr(on_alarm) if isinstance(on_alarm, str) else f"a {type(on_alarm).__name__}"
    log.warning(
        "lineage: on_alarm=%s is left out: it takes a callback or 'request_stop'. Alarms are recorded all the same.",
        shown,
    )
    return None


def raise_alarm(
    rec: Recorder, w: Writer, signal: str, phase: str, finding: Finding, values: streams.Values
) -> None:
    """Record an alarm's onset, change or end, and tell whoever asked."""
    tensors = values.tensors if signal == "grad_norm_local" else []
    if phase == "end" and finding.abnormal != "new_level":
        text = f"{signal} is in its range again"
    elif finding.abnormal == "slow_rise":
        text = firstbad.words(signal, finding.abnormal, finding.value, finding.baseline)
        text += f", beginning about {finding.since} steps before"
    else:
        text = firstbad.words(signal, finding.abnormal, finding.value, finding.baseline, tensors)
    alarm = streams.alarm(signal, phase, finding, values, text)
    record = w.write(alarm, step=values.step)
    rec.recent.follow(signal, phase, finding.abnormal)
    if phase == "change" and alarm.abnormal == "non_finite":
        _keep_batch(
            rec, w, values, alarm, record.id
        )  # a spike that became NaN: another step, and another fault
    if phase != "onset":
        return
    slow = alarm.abnormal == "slow_rise"
    if not slow:  # no batch is to blame for a slow rise
        _keep_batch(rec, w, values, alarm, record.id)
    log.warning("lineage: rank %d, step %d: %s (%s)", w.world.rank, values.step, text, alarm.code)
    tell(rec, alarm)


def tell(rec: Recorder, alarm: schemas.Alarm) -> None:
    """Tell whoever asked of an alarm's onset, on the training thread. A slow rise asks for no stop."""
    slow = alarm.abnormal == "slow_rise"
    if rec._on_alarm == "request_stop":
        rec.should_stop = rec.should_stop or not slow  # a healthy norm may rise too
    elif callable(rec._on_alarm):
        try:
            rec._on_alarm(alarm)
        except Exception as e:
            rec.trouble("on_alarm", e, "the callback was not heard; the alarm is on record")


def of_group(rec: Recorder, w: Writer, raised: Raised) -> None:
    """Ranks that must hold the same do not: keep this rank's evidence, and where it raised the alarm, tell of it."""
    nothing = streams.Values(raised.step, schemas.now(), {}, [], [])
    _keep_batch(rec, w, nothing, raised.alarm, raised.record)
    if raised.own:
        rec.steps.streams.onsets[raised.alarm.signal] += 1
        tell(rec, raised.alarm)


def _keep_batch(
    rec: Recorder, w: Writer, values: streams.Values, alarm: schemas.Alarm, record: str | None
) -> None:
    """Keep the evidence of the alarm's step: taken here, written as a bundle on a worker thread."""
    if not rec.settings.bundle_bytes:
        return
    try:
        held = captured.take(rec, w, values, alarm, record)
    except Exception as e:
        rec.trouble("bundle", e, "the evidence of a bad step is not kept")
        return
    if held is not None:
        w.bundles.put(lambda: captured.keep(rec, w, held))


def follow(rec: Recorder, w: Writer) -> None:
    """On the process with the tracker: show the alarms of other ranks, read from their journals while idle."""
    if w.outbox is None or w.world.world_size <= 1:
        return
    w.tasks._idle = Follower(w).look
    w.tasks.start()


class Follower:
    """Reads what other ranks have written since the last look. One folder, no collective, no lock."""

    KINDS = ("alarm", "degraded", "restore", "incident")

    def __init__(self, writer: Writer) -> None:
        self._w = writer
        self._read: dict[str, int] = {}

    def look(self) -> None:
        """Show new alarms of other ranks in the tracker."""
        own = self._w.journal.path
        for path in sorted(own.parent.glob("*.jsonl")):
            size = path.stat().st_size
            if path == own or self._read.get(path.name) == size:
                continue
            records, _ = scan.read_file(path, self._w.ledger)
            seen = self._read.get(path.name + "#", -1)
            for r in records:
                if r.seq > seen and r.kind in self.KINDS:
                    self._w.show(r)
            self._read[path.name] = size
            self._read[path.name + "#"] = max((r.seq for r in records), default=seen)


def warn_if_damaged(w: Writer) -> None:
    """A segment that goes on in a damaged ledger says so once: what stood in the lines is not known to it."""
    damage = [d for d in Ledger(w.ledger).damage if d.code != "LIN-J001"]  # a torn last line was never there
    if damage:
        first = damage[0]
        log.warning(
            "lineage: the ledger that this segment continues is damaged in %d places (the first: %s %s line %d: %s). "
            "What stood there is not known here; see `lineage verify %s`",
            len(damage),
            first.code,
            first.file,
            first.line,
            first.title,
            w.ledger,
        )


def close(rec: Recorder, w: Writer, error: BaseException | None) -> None:
    """The last records of a segment: why it ended, what was covered, where it began to be bad, the verdict."""
    error = error or _unhandled(rec) or rec.steps.left_by
    ended = "exited" if rec.at_exit else "finished"
    reason = "exception" if error else "stop_requested" if rec.should_stop else ended
    w.tasks.drain(w.settings.exit_timeout * 6)  # first: the end is drawn in the regime that they open
    if w.world.rank == 0:
        rec.followed.look()  # the last good checkpoint is one that is still there
    w.write(
        schemas.SegmentEnd(reason=reason, error=describe(error) if error else None, last_step=rec.steps.done)
    )
    mitigations.settle(rec, w)
    rec.gaps += _unseen_ranks(w)
    if rec.steps.probing is not None:
        rec.gaps += rec.steps.probing.gaps()
    rec.gaps += rec.steps.agreeing.gaps()
    w.write(health_.covered(coverage(rec), health.at_end(w, health.observer())))
    if w.world.rank == 0:
        if w.outbox is not None and w.world.world_size > 1:
            Follower(w).look()
        name_first_bad(w)
        boundary.write_verdict(w)
        on_page.at_end(w)


def _unseen_ranks(w: Writer) -> list[str]:
    """Ranks whose journal is not in this folder: they record elsewhere, or not at all."""
    if w.world.world_size <= 1:
        return []
    there = {found[1] for p in w.journal.path.parent.glob("*.jsonl") if (found := layout.writer_of(p.name))}
    gone = sorted(set(range(w.world.world_size)) - there)
    if not gone or (w.world.rank != 0 and 0 in there):
        return []
    names = ", ".join(map(str, gone[:8])) + (f" and {len(gone) - 8} more" if len(gone) > 8 else "")
    text = f"LIN-J013: ranks {names} do not write to this ledger folder ({w.ledger})"
    log.warning("lineage: %s: set LINEAGE_DIR to a folder that all ranks share", text)
    return [text]


def last_unhandled() -> BaseException | None:
    """The exception that the interpreter printed last, if there is one."""
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)


def _unhandled(rec: Recorder) -> BaseException | None:
    """An exception that ended the script: one that was printed since attach, not an earlier cell's."""
    found = last_unhandled()
    return found if found is not rec.unhandled_before else None


def name_first_bad(w: Writer) -> None:
    """Where alarms are on record: name the first bad cell, open an incident, mark the checkpoints.

    What descends from a quarantined checkpoint of an earlier segment is marked too.
    """
    found = boundary.first_bad(w)
    bad = found is not None and found.cell is not None
    if found is not None and bad:
        open_incident(found, w.write)
    quarantine.mark(w)
    if bad:
        w.seal("incident")


def open_incident(found: schemas.FirstBad, write: quarantine.Write) -> str:
    """Write down where it began, an incident of it, and the place of the checkpoints in it. Returns the incident."""
    assert found.cell is not None
    record = write(found)
    uid = str(uuid7())
    write(
        schemas.Incident(
            uid=uid,
            title=f"rank {found.cell.rank}, step {found.cell.step}: {found.cell.text}",
            first_bad_step=found.cell.step,
            first_bad_rank=found.cell.rank,
            last_good_checkpoint=found.last_good_checkpoint,
        ),
        caused_by=[record.id],
    )
    for checkpoint, mark in (
        (found.last_good_checkpoint, "last_good"),
        (found.first_bad_checkpoint, "first_bad"),
    ):
        if checkpoint:
            why = f"first bad cell: rank {found.cell.rank}, step {found.cell.step}"
            write(
                schemas.CheckpointMark(checkpoint=checkpoint, mark=mark, why=why, evidence=[record.id]),
                caused_by=[record.id],
            )
    return uid


def coverage(rec: Recorder) -> schemas.Coverage:
    """What is recorded, and for what is not, the line that would add it."""
    watched = rec.watched
    recorded: list[str] = []
    missing: dict[str, str] = {}
    for name in ("model", "optimizer", "scheduler", "loader"):
        if getattr(watched, name) is not None:
            recorded.append(name)
        elif name in rec.unread:
            missing[name] = f"{LINES[name]} with an object that can be read ({rec.unread[name]})"
        else:
            missing[name] = LINES[name]
    if watched.ema is not None:
        recorded.append("ema")
    if rec.world.rank == 0:  # rank 0 records it for all
        (recorded.append("config") if rec.now.config else missing.update(config=LINES["config"]))
    values = {
        "loss": "st.loss(loss) inside `with rec.step(step, batch) as st:`",
        "grad_norm_local": LINES["model"],
        "grad_norm": "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)",
    }
    for signal, line in values.items():
        if signal in rec.steps.streams.seen:
            recorded.append(signal)
        else:
            missing[signal] = line
    if rec.watched.batches_seen:
        recorded.append("batch fingerprints")
    else:
        missing["batch fingerprints"] = "with rec.step(step, batch):"
    if not rec._saves:
        missing["checkpoints"] = "rec.checkpoint(path, step=step)"
    node = rec.hardware.covered() if rec.hardware is not None else ([], {}, [])
    return schemas.Coverage(
        recorded=[*recorded, *node[0]], missing={**missing, **node[1]}, gaps=[*rec.gaps, *node[2]]
    )
