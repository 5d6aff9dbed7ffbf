"""What a post-mortem is made of: what the report knows of the run, and what was judged of one incident of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..._rooms import schemas
from ...judge import first_hour
from ...judge.audit import AuditFinding
from ...judge.incident_life import Life
from ...judge.suspects import Suspects
from ...ledger import blanked
from ..facts import BadFact, DriftFact, Facts
from ..timeline import Event


@dataclass(frozen=True)
class Given:
    """One incident, with everything that is known around it."""

    facts: Facts
    """of the whole run, as the report has them"""
    hour: first_hour.Facts
    """of the incident, as its checklist has them"""
    suspects: Suspects | None
    """None where there is no bad cell"""
    audit: Sequence[AuditFinding]
    not_judged: Mapping[str, str] = field(default_factory=dict)
    """code of a rule that a ledger pulled from a tracker cannot answer -> why"""

    @property
    def life(self) -> Life:
        """The incident."""
        return self.hour.life

    @property
    def headline(self) -> str:
        """The incident's title; in a ledger pulled from a tracker that did not get it, what the first bad cell says."""
        title = self.life.latest.title
        if title != blanked.NOT_SHARED:
            return title
        if self.cell is None:
            return "an incident whose title stayed where the run trained"
        return f"rank {self.cell.rank}, step {self.cell.step:,}: {self.cell.text}"

    @property
    def cell(self) -> schemas.Cell | None:
        """The first bad cell."""
        return self.hour.bad.cell if self.hour.bad else None

    @property
    def step(self) -> int | None:
        """The first bad step: of the cell, else as a person said it."""
        return self.cell.step if self.cell else self.life.latest.first_bad_step

    @property
    def number(self) -> int:
        """Number of the segment that it happened in."""
        return self.hour.graph.number(self.life.segment)

    @cached_property
    def bad(self) -> BadFact | None:
        """The first bad cell with its grids."""
        if self.cell is None:
            return None
        return next((b for b in self.facts.bads if b.segment == self.number), None)

    @cached_property
    def alarm(self) -> schemas.Record | None:
        """The first alarm of its segment at or after the first bad step."""
        mine = [r for r in self.hour.records if r.kind == "alarm" and r.segment == self.life.segment]
        near = [r for r in mine if self.step is None or (r.step or 0) >= self.step]
        return min(near, key=lambda r: (r.step or 0, r.at), default=None)

    @cached_property
    def replays(self) -> list[schemas.Replay]:
        """The replays of this incident, oldest first."""
        return [r.payload for r in first_hour.replays(self.hour)]

    @cached_property
    def bundles(self) -> list[schemas.Record]:
        """The bundles of the segment."""
        return [r for r in self.hour.records if r.kind == "bundle" and r.segment == self.life.segment]

    @cached_property
    def decisions(self) -> list[schemas.Record]:
        """The recovery decisions, oldest first."""
        return self.life.recoveries

    @cached_property
    def later(self) -> list[int]:
        """Numbers of the segments that began after the incident, of the same run."""
        return [self.hour.graph.number(r.segment) for r in first_hour.resumes(self.hour)]

    @cached_property
    def carried(self) -> schemas.Record | None:
        """The segment that carries the decision out."""
        return first_hour.resumed(self.hour)

    @cached_property
    def drifts(self) -> list[DriftFact]:
        """What changed in the segment that broke, and in those that came after it."""
        return [d for d in self.facts.drifts if d.segment in (self.number, *self.later)]

    @cached_property
    def events(self) -> list[Event]:
        """What happened: a few events before the first bad step, and all from there to the end of the incident."""
        began = self.alarm.at if self.alarm else self.life.opened
        closed = self.life.reached("closed")
        before = [e for e in self.facts.events if e.at < began and e.segment in (self.number, None)]
        after = [e for e in self.facts.events if e.at >= began and (closed is None or e.at <= closed.at)]
        return [*before[-BEFORE:], *after]


BEFORE = 8
"""Events before the first bad step."""
