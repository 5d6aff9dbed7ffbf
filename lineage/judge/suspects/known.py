"""What the rules look at: everything that a ledger holds around one first bad cell, in plain values."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath

from ..._rooms import schemas
from .. import drift as drift_
from .. import execution
from ..agreement import Compared, Pattern, patterns
from ..events_near import Near
from ..loss_continued import Continued
from ..replay_course import NOT_YOURS
from ..restored_whole import Outcome
from .one_element import OneElement

NEAR = 100
"""Updates before the bad step within which a change counts as just before it. A spike of a raised learning rate, or of
lost moments, came within tens of updates in the public logs; what is further back is said as further back."""


@dataclass(frozen=True)
class BatchRow:
    """One micro-batch that a rank read."""

    rank: int
    step: int
    micro: int
    digest: str | None
    stats: Mapping[str, float]
    """what the fingerprint has of it: tokens, length_max, mask_density, out_of_range, highest, ..."""


@dataclass(frozen=True)
class SameBatch:
    """The batch of the bad step, as it was read in another place of the run."""

    segment: int
    rank: int
    step: int
    loss: float | None
    """where it was recorded"""
    abnormal: bool | None
    """whether its loss or gradient was a bad cell there; None: no value of it is on record"""


@dataclass(frozen=True)
class ProbeRow:
    """One tensor of the first bad rank at one step, as a probe read it."""

    step: int
    kind: str
    tensor: str
    order: int | None
    elements: int
    norm: float
    """of the finite elements, as they were read"""
    largest: float
    lowest: float | None
    n_nan: int
    infinite: int
    dtype: str
    scale: float

    @property
    def broken(self) -> int:
        """Elements that are not finite."""
        return self.n_nan + self.infinite


@dataclass(frozen=True)
class Boundary:
    """A drift on the way to the bad step."""

    record: str
    segment: int
    """its number"""
    drift: schemas.Drift

    @property
    def step(self) -> int:
        """The first update that was made under what is new."""
        return self.drift.from_step


@dataclass(frozen=True)
class Found:
    """A finding of a check, recorded or made from the records."""

    record: str | None
    segment: int
    rank: int
    step: int | None
    finding: schemas.Finding


@dataclass(frozen=True)
class Known:
    """All that is known. What is empty was not recorded, or does not apply."""

    run: str
    """what the run is called in a command"""
    first: schemas.FirstBad
    cell: schemas.Cell
    segment: int
    """the number of its segment"""
    world: int
    start: str
    parent_step: int | None
    """the step of the checkpoint that the segment started from"""
    boundaries: Sequence[Boundary] = ()
    """drifts on the path to the bad step, the newest first"""
    compared_configs: bool = False
    """whether conditions were recorded at all, so that a change would be seen"""
    outcomes: Sequence[Outcome] = ()
    """what became of each component at the segment's start"""
    restores: Sequence[str] = ()
    losses: Continued | None = None
    """the first losses after the restart, beside those of another branch on the same batches"""
    findings: Sequence[Found] = ()
    batches: Sequence[BatchRow] = ()
    """of the bad step on all ranks, and of the first bad rank's steps before it"""
    same: Sequence[SameBatch] = ()
    signals: Mapping[str, Mapping[int, Mapping[int, float]]] = field(default_factory=dict)
    """signal -> rank -> step -> value, of the steps up to the bad one"""
    rows: Sequence[ProbeRow] = ()
    compared: Compared = field(default_factory=Compared)
    elements: Sequence[OneElement] = ()
    groups: Sequence[str] = ()
    """records that say which ranks must hold the same"""
    held: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """rank -> concept -> the value in effect there, as text"""
    held_by: Mapping[int, str] = field(default_factory=dict)
    """rank -> the record of it"""
    events: Sequence[Near] = ()
    watched: str | None = None
    """what of the machines was watched while the run went on; None: nothing"""
    devices: Sequence[int] = ()
    """numbers of earlier segments in which the same device had the first bad cell"""
    replays: Sequence[tuple[str, schemas.Replay]] = ()
    bundle: str | None = None
    """the folder with the evidence of the bad step"""
    bundled: Sequence[int] = ()
    """the ranks that have such a folder of the bad step"""
    looked_at_elements: bool = False
    """whether it was looked if copies that differ do so in one element alone"""
    environments: int = 1
    """ranks whose packages and drivers are on record"""
    cells: Sequence[schemas.Cell] = ()
    """the abnormal cells of the segment from the bad step to `until`"""
    upto: int | None = None
    """see `until`"""

    # -- where

    @property
    def step(self) -> int:
        """The first bad step."""
        return self.cell.step

    @property
    def rank(self) -> int:
        """The rank of the first bad cell."""
        return self.cell.rank

    @property
    def until(self) -> int:
        """The step of what the first bad cell leads up to within some steps, such as a NaN; else its own."""
        return max(self.step, self.upto or 0)

    @cached_property
    def broken(self) -> schemas.Cell | None:
        """The first cell that is not finite, up to `until`."""
        here = [self.cell, *sorted(self.cells, key=execution.key)]
        found = [c for c in here if c.abnormal == "non_finite" and self.step <= c.step <= self.until]
        return min(found, key=execution.key, default=None)

    @property
    def bad_ranks(self) -> tuple[int, ...]:
        """The ranks of the first bad cell and of those at the same place."""
        return tuple(sorted({self.rank, *(t.rank for t in self.first.ties)}))

    @property
    def replicas_differ(self) -> bool:
        """Whether the first bad cell is a difference between copies."""
        return self.cell.abnormal == "differs"

    @property
    def symptoms(self) -> set[str]:
        """The classes of the symptom."""
        return {s.cls for s in self.first.symptoms}

    def rows_of(self, kind: str, step: int) -> list[ProbeRow]:
        """The probe rows of a kind at a step, in the order of execution."""
        found = [r for r in self.rows if r.kind == kind and r.step == step]
        return sorted(found, key=lambda r: (r.order is None, r.order or 0))

    def series(self, table: str, step: int | None = None, rank: int | None = None) -> str:
        """How rows of a series are named in a line."""
        return (
            f"series {table}: segment {self.segment}, rank {self.rank if rank is None else rank}, "
            f"step {self.step if step is None else step}"
        )

    @property
    def near(self) -> int:
        """Updates within which a change counts as just before."""
        return NEAR

    # -- replays

    @property
    def function(self) -> str:
        """The function of the training code that a replay is made with, as the last one named it."""
        named = [str(r.parameters["with"].plain()) for _, r in self.replays if "with" in r.parameters]
        return next((n for n in reversed(named) if n), NOT_YOURS)

    def replay(
        self, change: str | None = None, *, repeat: int | None = None, whole: bool = False
    ) -> str | None:
        """The command that makes the step again; None where no evidence of the step is on record.

        None for a change, too, where the step was made again and does not show it: nothing is there to be taken away.

        Args:
            change: the one condition to change, as `--change` takes it.
            repeat: how often, for the spread.
            whole: at the run's own size.
        """
        controls = [r for _, r in self.replays if not r.changes]
        idle = bool(controls) and not any(r.result == "reproduced" for r in controls)
        if self.bundle is None or (change is not None and idle):
            return None
        place, launch = shlex.quote(self.bundle), ""
        if whole:  # each rank takes its own bundle, of the folder that holds those of all
            folder = shlex.quote(str(PurePath(self.bundle).parent))
            place, launch = f"{folder} --step {self.step}", f"torchrun --nproc-per-node {self.world} -m "
        more = f" --change {change}" if change else ""
        more += f" --repeat {repeat}" if repeat else ""
        return f"{launch}lineage replay {place} --with {self.function}{more}"

    @property
    def made_on_one_device(self) -> bool:
        """Whether a replay on one device gave a result with nothing else changed."""
        return any(
            not r.changes and r.world_size == 1 and r.result != "inconclusive" for _, r in self.replays
        )

    def tried(self, *changes: str) -> bool:
        """Whether a replay with one of these changes alone gave a result."""
        return any(
            len(r.changes) == 1 and r.changes[0].name in changes and r.result != "inconclusive"
            for _, r in self.replays
        )

    # -- what was said

    def said(self, *codes: str, within: int | None = None, least: str = "warning") -> list[Found]:
        """Findings of these codes up to the bad step, of this severity or worse.

        Args:
            within: only those that began so many steps before it; one without a step counts.
            least: the mildest severity.
        """
        out = []
        for f in self.findings:
            if f.finding.code not in codes:
                continue
            if schemas.severity_place(f.finding.severity) > schemas.severity_place(least):
                continue
            if f.step is not None and f.step > self.step:
                continue
            if within is not None and f.step is not None and self.step - f.step > within:
                continue
            out.append(f)
        return out

    def finding_here(self, found: Found) -> bool:
        """Whether a finding is of the segment of the bad step."""
        return found.segment == self.segment

    def refs(self, found: Found) -> tuple[str, ...]:
        """What a finding rests on, for a line."""
        return (found.record,) if found.record else (f"lineage show: {found.finding.code}",)

    # -- what changed

    def changes(self, *concepts: str, within: int = NEAR) -> list[tuple[Boundary, schemas.Change]]:
        """Changes in effect of these concepts (all without any), at most so many updates before the bad step."""
        return [
            (b, c)
            for b in self.boundaries
            if 0 <= self.step - b.step <= within
            for c in b.drift.changes
            if (not concepts or c.concept in concepts)
            and not drift_.requested_only(c)
            and c.cls in ("R", "C", "B", "unclassified")
        ]

    def after(self, b: Boundary) -> str:
        """How many updates after a boundary the bad step is, in words."""
        n = self.step - b.step
        return "at the first update after it" if n == 0 else f"{n:,} update{'' if n == 1 else 's'} later"

    # -- ranks

    @cached_property
    def parted(self) -> list[Pattern]:
        """How replicas parted, up to the bad step."""
        return [p for p in patterns(self.compared.found) if p.step <= self.step]

    @cached_property
    def agreed(self) -> tuple[int, int] | None:
        """(steps, last step) at which replicas were compared up to the bad step; None where they were at none."""
        steps = [s for s in self.compared.steps if s <= self.step]
        return (len(steps), steps[-1]) if steps and self.compared.tensors else None

    def values(self, signal: str, step: int) -> dict[int, float]:
        """rank -> value of a signal at a step."""
        return {r: v[step] for r, v in self.signals.get(signal, {}).items() if step in v}

    def course(self, signal: str, upto: int | None = None) -> list[tuple[int, float]]:
        """(step, value) of a signal on the first bad rank, up to the bad step or another one."""
        found = self.signals.get(signal, {}).get(self.rank, {})
        last = self.step if upto is None else upto
        return sorted((s, v) for s, v in found.items() if s <= last)

    @property
    def restarted(self) -> int | None:
        """How many updates after the segment's start the bad step is; None where it did not resume."""
        if self.start == "fresh" or self.parent_step is None:
            return None
        return self.step - self.parent_step
