"""Writing events into a ledger: masked, under pseudonyms, each once, by a writer of its own."""

from __future__ import annotations

import os
import re
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

from ..._rooms import schemas
from ...capture import canonical, secrets
from ...capture.pseudonym import node as pseudonym
from ...ledger import events as ledger_events
from ...ledger import scan
from ...ledger.journal import Journal
from ...ledger.reader import Ledger
from ...ledger.seal import seal
from ..entries import ImportTrouble
from . import times
from .draft import Draft, Found, Written

MOST_TEXT = 2_000
MOST_VALUES = 64
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MOST_PARTS = 32
MANY = 20_000
"""Events of one file from which on those that are further than `FAR` from the run are left out, and counted."""
FAR = timedelta(days=1)
_OWN_CLOCK = ("kernel", "nvidia-smi-q", "nvidia-smi-csv", "dcgm-dmon", "dcgm-health", "nvml")
"""Formats whose times are of the machine that they tell of."""


@dataclass(frozen=True)
class Told:
    """What the person who imports says of a source, where it does not say so itself."""

    node: str | None = None
    zone: tzinfo | None = None
    offset: float | None = None
    """seconds to add to its times, so that they are of the run's clock"""
    at: datetime | None = None
    booted: datetime | None = None


@dataclass
class Done:
    """What became of one file."""

    file: str
    format: str
    read: int
    unit: str
    events: int = 0
    new: int = 0
    corrected: int = 0
    known: int = 0
    problems: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


class Names:
    """Pseudonyms of hosts: those under which the run's own nodes stand, where they are the same."""

    def __init__(self, run: str, known: set[str]) -> None:
        self._run, self._known = run, known
        self._own_domain = socket.gethostname().partition(".")[2]
        self._made: dict[str, str] = {}
        self._forms: dict[str, str] = {}

    def of(self, host: str) -> str:
        """The pseudonym of a host, written short or in full, in either case."""
        if host in self._known:
            return host
        if host not in self._made:
            self._made[host] = self._find(host)
            self._forms |= {host: self._made[host], host.partition(".")[0]: self._made[host]}
        return self._made[host]

    def _find(self, host: str) -> str:
        short = host.partition(".")[0]
        forms = [host, short, *([f"{short}.{self._own_domain}"] if self._own_domain else [])]
        for form in dict.fromkeys(f for h in forms for f in (h, h.lower())):
            made = pseudonym(self._run, form)
            if made in self._known:
                return made
        return pseudonym(self._run, short.lower())

    def hide(self, text: str) -> str:
        """A text with the host names that were met replaced by their pseudonyms."""
        return _TOKEN.sub(lambda m: _replaced(m[0], self._forms), text) if self._forms else text


def _replaced(token: str, known: Mapping[str, str]) -> str:
    """A word with each part of it that is a known host replaced, the longest first: `dmesg-gpu-01.txt`."""
    if token in known:
        return known[token]
    if not any(c in token for c in "._-"):
        return token
    parts = re.split(r"([._-])", token)
    if len(parts) > _MOST_PARTS:
        return token
    out, at = "", 0
    while at < len(parts):
        ends = (end for end in range(len(parts), at, -1) if "".join(parts[at:end]) in known)
        end = next(ends, None)
        out += parts[at] if end is None else known["".join(parts[at:end])]
        at = at + 1 if end is None else end
    return out


def into_ledger(ledger: Ledger, found: Sequence[tuple[Path, Found]], told: Told) -> list[Done]:
    """Write the events of files that this ledger does not have yet.

    They stand in a journal file of this process's own, in the newest segment's folder; no other file is touched. An
    event that is there and now has another time or place, or is counted more often, is written again and supersedes
    the earlier record. Raises `ImportTrouble` for a ledger without a segment, `OSError` where nothing can be written.
    """
    if not ledger.segments:
        raise ImportTrouble(f"{ledger.path} holds no segment: events are placed beside a run")
    names = Names(ledger.run, {p.place.node for p in ledger_events.places(ledger.records)})
    reference, span = _reference(ledger), _span(ledger)
    known = ledger_events.latest(ledger.records)
    held: dict[str, tuple[schemas.Event, str | None]] = {k: (r.payload, r.id) for k, r in known.items()}
    out: list[Done] = []
    waiting: dict[str, tuple[schemas.Event, str | None]] = {}
    for path, one in found:
        left = _far(one, told, reference, span)
        done, events = _made(path, one, told, names, reference)
        if left:
            done.problems.append(
                f"LIN-E003: {left:,} of {left + len(one.drafts):,} are more than a day from the run and were left out: "
                f"of a file with more than {MANY:,} events only those around it are taken"
            )
        for event in events:
            before = held.get(event.key)
            if before is None:
                done.new += 1
            elif _corrects(event, before[0]):
                done.corrected += 1
            else:
                done.known += 1
                continue
            held[event.key] = event, None
            waiting[event.key] = event, before[1] if before else None
        out.append(done)
    if waiting:
        _write(ledger, list(waiting.values()))
    return out


def _write(ledger: Ledger, events: Sequence[tuple[schemas.Event, str | None]]) -> None:
    heads, torn = scan.heads(ledger.path)
    place = schemas.Place(node=pseudonym(ledger.run, socket.gethostname()), pid=os.getpid())
    # The source is still there: an import that is cut off is made again, so no line needs to be durable by itself.
    journal = Journal(
        ledger.path,
        ledger.run,
        ledger.segments[-1].uid,
        0,
        place,
        fsync=False,
        previous=heads,
        set_aside=torn,
    )
    for event, supersedes in events:
        journal.append(event, supersedes=supersedes)
    journal.append(seal(scan.heads(ledger.path)[0], "close"))
    left = journal.close()
    if left:
        raise OSError(f"{journal.path} did not take {left} records; make room and import again")


def _reference(ledger: Ledger) -> datetime:
    """A time of the run: a year that is not written is the one that comes closest to it."""
    began = [r.at for r in ledger.records if r.kind == "segment"]
    return began[-1] if began else schemas.now()


def _span(ledger: Ledger) -> tuple[datetime, datetime]:
    """From the first record of any segment to the last."""
    at = [r.at for r in ledger.records] or [schemas.now()]
    return min(at), max(at)


def _far(found: Found, told: Told, reference: datetime, span: tuple[datetime, datetime]) -> int:
    """Leave out of a file with very many events those far from the run; returns how many.

    A site's whole history is no evidence of one run, and each event is a record that is kept for good.
    """
    if len(found.drafts) <= MANY:
        return 0
    low, high = span[0] - FAR, span[1] + FAR

    def near(d: Draft) -> bool:
        at, _ = _moment(d.when, told, reference)
        until, _ = _moment(d.until, told, reference)
        return at is None or (at <= high and low <= max(at, until or at))

    kept = [d for d in found.drafts if near(d)]
    left = len(found.drafts) - len(kept)
    found.drafts[:] = kept
    return left


def _made(
    path: Path, found: Found, told: Told, names: Names, reference: datetime
) -> tuple[Done, list[schemas.Event]]:
    """The events of a file; what a file says twice is one event with a count."""
    done = Done(path.name, found.format, found.read, found.unit, problems=list(found.problems))
    for host in {n for d in found.drafts for n in d.nodes} | ({told.node} if told.node else set()):
        names.of(host)
    file = _masked(names.hide(path.name))
    counted: Counter[str] = Counter()
    events: dict[str, schemas.Event] = {}
    for draft in found.drafts:
        event = event_of(draft, file, found.format, told, names, reference)
        counted[event.key] += _count(draft)
        events.setdefault(event.key, event)
        if event.until and (kept := events[event.key]).until and event.until > kept.until:
            events[event.key] = kept.model_copy(update={"until": event.until})
    done.problems += _about_times(found, told)
    done.events = len(events)
    done.keys = list(events)
    return done, [e.model_copy(update={"count": counted[k]}) for k, e in events.items()]


def _count(draft: Draft) -> int:
    told = str(draft.values.get("count", draft.values.get("occurrences", "")))
    return int(told) if told.isdigit() and 0 < int(told) < 10**9 else 1


def _about_times(found: Found, told: Told) -> list[str]:
    """What is not known of the times of a file, each once."""
    out: list[str] = []
    written = [d.when for d in found.drafts if d.when is not None]
    if told.zone is None and any(w.at is not None and w.at.tzinfo is None for w in written):
        out.append(
            "LIN-E002: its times have no zone, and are read as UTC; --zone says of which zone they are"
        )
    if any(w.at is not None and not w.year for w in written):
        out.append("LIN-E002: its times have no year: the one that comes closest to the run is taken")
    if told.booted is None and any(w.since_boot is not None for w in written):
        out.append("LIN-E002: its times count from the boot; --booted says when that was (`uptime -s`)")
    return out


def event_of(
    d: Draft, file: str | None, format_: str, told: Told, names: Names, reference: datetime
) -> schemas.Event:
    """The event of a draft, masked and under pseudonyms. `file` is None where it was read live."""
    nodes = [names.of(n) for n in (d.nodes or ((told.node,) if told.node else ()))]
    when, zone = _moment(d.when, told, reference)
    until, _ = _moment(d.until, told, reference)
    if d.when is None and told.at is not None:  # a time that cannot be read is no missing one
        when, zone = told.at, "given"
    text = _masked(names.hide(d.text))
    values = _values(d.values, names)
    device = d.device_uuid if d.device_uuid and d.device_uuid.strip("GPUgpu-0") else None
    written = None if d.when is None else d.when.text[:200]
    if written is not None and d.when is not None and d.when.at is None and d.when.since_boot is None:
        written = _masked(written)  # it is no time, so it may be anything
    problems = [_masked(names.hide(p)) for p in d.problems]
    if d.device_uuid and device is None:
        problems.append("its device has a UUID of zeros, which names no device")
    told_when = written or (when.isoformat() if when else None)
    identity = {
        "format": format_,
        "when": told_when,
        "place": [sorted(nodes), device, d.device_index, d.device_pci, d.rank, d.pid],
        "what": [d.category, d.code, text],
    }
    made: dict[str, Any] = {"category": d.category, "severity": d.severity, "zone": zone}
    return schemas.Event(
        key=canonical.digest(identity),
        when=when,
        until=until if until and when and until >= when else None,
        written=written,
        clock=nodes[0] if format_ in _OWN_CLOCK and len(nodes) == 1 else None,
        shift=told.offset if when is not None else None,
        precision=_precision(d.when) if when is not None else None,
        nodes=nodes,
        device_uuid=device,
        device_index=d.device_index,
        device_pci=d.device_pci,
        rank=d.rank,
        pid=d.pid,
        code=None if d.code is None else _masked(names.hide(d.code))[:200],
        text=text,
        meaning=d.meaning,
        values=values,
        source=schemas.EventSource(format=format_, file=file, line=d.line),
        problems=problems,
        **made,
    )


def _moment(w: Written | None, told: Told, reference: datetime) -> tuple[datetime | None, str]:
    """The time in UTC on the run's clock, and what its zone rests on."""
    if w is None:
        return None, "unknown"
    shift = timedelta(seconds=told.offset or 0.0)
    if w.since_boot is not None:
        if told.booted is None:
            return None, "unknown"
        return told.booted + timedelta(seconds=w.since_boot) + shift, "given"
    if w.at is None:
        return None, "unknown"
    at = w.at if w.year else times.with_year(w.at, reference)
    if at.tzinfo is not None:
        return at.astimezone(UTC) + shift, "stated"
    if told.zone is not None:
        return at.replace(tzinfo=told.zone).astimezone(UTC) + shift, "given"
    return at.replace(tzinfo=UTC) + shift, "assumed"


def _precision(w: Written | None) -> float:
    return 1.0 if w is None else w.precision


def _corrects(new: schemas.Event, old: schemas.Event) -> bool:
    """Whether a later reading knows more: another time, a longer one, or a higher count."""
    if new.when is not None and (new.when, new.zone, new.shift) != (old.when, old.zone, old.shift):
        return old.when is None or (old.zone, new.zone) != ("given", "assumed")
    if new.until is not None and (old.until is None or new.until > old.until):
        return True
    return new.count > old.count


def _masked(text: str) -> str:
    told = secrets.mask(canonical.text(text))[0]
    return told if len(told) <= MOST_TEXT else f"{told[:MOST_TEXT]}... ({len(told):,} characters)"


def _values(values: Mapping[str, Any], names: Names) -> dict[str, schemas.Scalar]:
    out: dict[str, schemas.Scalar] = {}
    for key, value in list(values.items())[:MOST_VALUES]:
        name = _masked(str(key))[:200]
        plain = names.hide(value) if isinstance(value, str) else value
        masked, hit = secrets.mask_value(str(key), plain)
        if hit and masked == secrets.MASK:
            out[name] = schemas.MASKED
        elif isinstance(masked, str):
            out[name] = schemas.Scalar.of(_masked(masked))
        elif isinstance(masked, bool | int | float) or masked is None:
            out[name] = schemas.Scalar.of(masked)
        else:
            out[name] = schemas.Scalar.of(_masked(names.hide(str(masked))))
    return out
