"""The small protocol between the layer and a tracker.

A tracker shows records. It is called on one worker thread of ours, in the order of the journal, and may
raise or wait there: the training thread never calls it. Everything that it shows can be shown again
(`lineage sync`), so each method is idempotent by record id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from ._rooms import schemas

Shown: TypeAlias = schemas.Envelope | schemas.Record
"""A record as it was just written, or as it was read back."""

PREFIX = "lineage/"
"""Everything of ours in a tracker stands under this prefix."""


class TrackerUnavailable(Exception):
    """The tracker cannot be reached now; the record is kept and shown later."""


class TrackerRefused(Exception):
    """The tracker refused this record for good; trying again would not help."""


class NotMine(Exception):
    """Another process shows this record on the page: here it is neither shown nor noted as shown."""


CHECKPOINTS = 512
"""Checkpoints whose records a page keeps."""


@dataclass
class Page:
    """What the page of a run needs to know besides the record at hand. The outbox keeps it current."""

    run: str
    segment_numbers: dict[str, int] = field(default_factory=dict)
    """segment uid -> its number, from 1, in the order in which they began"""
    share: frozenset[str] = frozenset()
    """what may leave the machine beyond the default: `text`, the words of persons and exceptions"""
    ledger: str = ""
    """the ledger folder, to be named in texts"""
    checkpoints: dict[str, Shown] = field(default_factory=dict)
    """checkpoint uid -> the record with which it was complete: for what is said of it later"""

    def know(self, record: Shown) -> None:
        """Keep a complete checkpoint's record; of many, the newest."""
        if isinstance(record.payload, schemas.Checkpoint) and record.payload.status == "complete":
            self.checkpoints[record.payload.uid] = record
            while len(self.checkpoints) > CHECKPOINTS:
                self.checkpoints.pop(next(iter(self.checkpoints)))

    def step_of(self, checkpoint: str) -> int | None:
        """The step of a checkpoint whose record is kept."""
        record = self.checkpoints.get(checkpoint)
        return None if record is None else record.payload.step  # type: ignore[union-attr]

    def number(self, segment: str) -> int:
        """Return the number of a segment, giving the next one to a new uid."""
        return self.segment_numbers.setdefault(segment, len(self.segment_numbers) + 1)


@runtime_checkable
class Tracker(Protocol):
    """One tracker run, as the layer uses it."""

    kind: str

    def alias(self) -> schemas.TrackerAlias:
        """Say what this tracker calls the run. Local knowledge only: no network."""
        ...

    def requested(self) -> Mapping[str, Any] | None:
        """Return the config that the tracker run holds in this process. Local knowledge only: no network."""
        ...

    def show(self, record: Shown, page: Page) -> str | None:
        """Show one record.

        Returns where it can be read in the tracker (for a seal: the place of its anchor), or None where
        this kind of record is not shown, or a newer seal already stands there.
        Raises `TrackerUnavailable` or `TrackerRefused`.
        """
        ...

    def publish(self, file: Path, name: str) -> None:
        """Put a file on the run's page under `lineage/<name>`: the report, a sealed part of the journal."""
        ...

    def close(self) -> None:
        """Let go of the tracker. The user's run is not finished by it."""
        ...
