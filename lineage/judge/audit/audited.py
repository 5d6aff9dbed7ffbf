"""What the rules of the audit look at: a ledger's records and what was made of them, in plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from ..._rooms import schemas
from .. import drift as drift_
from ..graph import Graph
from ..incident_life import Life, lives


@dataclass(frozen=True)
class Found:
    """A finding of another check."""

    record: str | None
    segment: int
    step: int | None
    finding: schemas.Finding


@dataclass(frozen=True)
class Weakened:
    """A cell of the policy that lets pass what the shipped one does not."""

    concept: str
    claim: str
    status: str
    was: str
    who: str
    why: str
    source: str


@dataclass(frozen=True)
class Audited:
    """A run, from its ledger: read from a folder, or brought together from what a tracker has of it."""

    run: str
    """what it is called in a command"""
    records: Sequence[schemas.Record]
    graph: Graph
    bads: Mapping[str, schemas.FirstBad] = field(default_factory=dict)
    """segment -> its first bad cell"""
    signals: Mapping[str, Mapping[int, frozenset[str]]] = field(default_factory=dict)
    """segment -> rank -> the signals of which it recorded any value"""
    findings: Sequence[Found] = ()
    damage: Sequence[str] = ()
    """what `lineage verify` finds damaged, in words"""
    unread: Mapping[str, int] = field(default_factory=dict)
    """journal file -> its last line that something names, and that a pulled ledger lacks: what they say is not known"""
    anchors: Sequence[str] = ()
    """where roots of the ledger are anchored, as it says"""
    sealed: int = 0
    vanished: Sequence[tuple[str, str]] = ()
    """(checkpoint, path) that should be there by the records, and is not"""
    weakened: Sequence[Weakened] = ()
    policy: str | None = None
    """digest of the policy that is in force here"""
    shipped: str | None = None
    """digest of the policy that this version ships"""
    today: schemas.Verdict | None = None
    """today's verdict of the run's newest state"""

    # -- reading records

    def of(self, kind: str, segment: str | None = None) -> list[schemas.Record]:
        """The records of a kind, oldest first."""
        return [r for r in self._by_kind.get(kind, ()) if segment in (None, r.segment)]

    @cached_property
    def _by_kind(self) -> dict[str, list[schemas.Record]]:
        out: dict[str, list[schemas.Record]] = {}
        for r in sorted(self.records, key=lambda r: (r.at, r.file, r.seq)):
            out.setdefault(r.kind, []).append(r)
        return out

    @cached_property
    def lives(self) -> list[Life]:
        """The incidents."""
        return lives(self.records)

    @cached_property
    def began(self) -> dict[str, datetime]:
        """Segment -> when its first record was written."""
        out: dict[str, datetime] = {}
        for r in self.of("segment"):
            out.setdefault(r.segment, r.at)
        return out

    def number(self, segment: str) -> int:
        """The number of a segment."""
        return self.graph.number(segment)

    def imported(self, segment: str) -> bool:
        """Whether a segment was read from other sources: nothing of it was seen live."""
        info = self.graph.segments.get(segment)
        return info is not None and info.place.node == schemas.IMPORTED

    @cached_property
    def live(self) -> list[str]:
        """The segments that a training process recorded."""
        return [s for s in self.graph.segments if not self.imported(s)]

    # -- what broke, and what came after it

    @cached_property
    def bad_at(self) -> dict[str, datetime | None]:
        """Segment with a first bad cell -> when its first alarm was recorded, as far as that is known."""
        out: dict[str, datetime | None] = {}
        for uid in self.bads:
            alarms = [r.at for r in self.of("alarm", uid)]
            out[uid] = min(alarms, default=None)
        return out

    def after(self, segment: str) -> list[str]:
        """The segments of the run that began later than this one broke, in order."""
        order = list(self.graph.segments)
        run = self.graph.runs.get(segment)
        mine = order.index(segment)
        return [
            s
            for s in order[mine + 1 :]
            if self.graph.runs.get(s) == run
            and self.graph.segments[s].start in ("resume", "rewind", "unknown", "fresh")
        ]

    def next_after(self, segment: str) -> str | None:
        """The segment that came next, after this one broke."""
        return next(iter(self.after(segment)), None)

    def drifts(self, segment: str, moment: str | None = None) -> list[schemas.Record]:
        """The drifts of a segment, its lowest rank's, in the order of steps."""
        found: dict[tuple[str, int], schemas.Record] = {}
        for r in self.of("drift", segment):
            key = (r.payload.moment, r.payload.from_step)
            if moment in (None, r.payload.moment) and (key not in found or r.rank <= found[key].rank):
                found[key] = r
        return sorted(found.values(), key=lambda r: r.payload.from_step)

    def altering(self, record: schemas.Record) -> list[schemas.Change]:
        """The changes of a drift that alter what results mean: in effect, and of class R or C."""
        return [c for c in record.payload.changes if drift_.alters(c)]

    def replayed_before(self, at: datetime) -> bool:
        """Whether any replay had been made by then."""
        return any(r.at <= at for r in self.of("replay"))

    def kept(self, segment: str, until: datetime | None = None) -> list[schemas.Record]:
        """What of a segment was preserved, up to a time: copies of its evidence, and bundles."""
        found = [r for r in self.of("preserved") if r.segment == segment]
        found += self.of("bundle", segment)
        return [r for r in found if until is None or r.at <= until]

    def said_by(self, *codes: str) -> Iterable[Found]:
        """Findings of other checks, by their codes."""
        return (f for f in self.findings if f.finding.code in codes)


def number_of(value: schemas.Scalar | None) -> float | None:
    """A plain number; None for anything else."""
    plain = value.plain() if value is not None else None
    return float(plain) if isinstance(plain, int | float) and not isinstance(plain, bool) else None
