"""Records for the contract: one of each kind that pages show, with words that must then be read on the page."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import uuid6

from ._rooms import schemas
from .base import Page, Shown

RUN = "contract-run"
SPOKEN = "what a person said"
"""Words that stay in the ledger: on no page, unless `share=["text"]` was asked for."""
CUT = ("characters", "shortened", "left out", "left_out")
"""One of these words stands beside what does not fit and was cut."""


def uid() -> str:
    """A new uid."""
    return str(uuid6.uuid7())


def digest(number: int) -> str:
    """A digest that no other number has."""
    return f"sha256:{number:064x}"


def scalar(value: Any) -> schemas.Scalar:
    """A value with its type."""
    return schemas.Scalar.of(value)


@dataclass(frozen=True)
class Told:
    """A record, and what a reader of its page finds."""

    record: Shown
    words: Sequence[str] = ()
    """each of them stands on the page, upper and lower case and commas aside"""

    @property
    def kind(self) -> str:
        """The kind of its payload."""
        return str(self.record.payload.kind)


@dataclass
class Story:
    """The records of one segment, in the order of a journal."""

    segment: str = field(default_factory=uid)
    _seq: Any = field(default_factory=itertools.count)

    def record(self, payload: Any, *, step: int | None = None) -> schemas.Envelope:
        """Wrap a payload as the journal does."""
        return schemas.Envelope(
            id=uid(),
            run=RUN,
            segment=self.segment,
            rank=0,
            step=step,
            at=schemas.now(),
            mono=time.monotonic(),
            seq=next(self._seq),
            prev=digest(0),
            payload=payload,
        )

    def page(self) -> Page:
        """A page that knows nothing yet."""
        return Page(RUN)

    def regimes(self, count: int) -> list[Told]:
        """Regimes that follow each other, ten steps each."""
        return [Told(self.record(self._regime(n), step=10 * n + 1), [digest(1000 + n)]) for n in range(count)]

    def verdict(self, since: int, reason: str = "the learning rate changed") -> Told:
        """A verdict on the run: loss curves are broken since a step."""
        link = schemas.ChainLink(
            code="LIN-D002", concept="learning_rate", step=since, effect="broken", text=reason
        )
        claims = [
            schemas.ClaimVerdict(claim="loss_curve", status="broken", reason=reason, chain=[link]),
            schemas.ClaimVerdict(claim="throughput", status="holds", reason="nothing operational changed"),
        ]
        payload = schemas.Verdict(
            subject=f"run:{RUN}", status="broken", since_step=since, claims=claims, policy=digest(7)
        )
        return Told(self.record(payload, step=since), [str(since)])

    def mitigation(self, before: Any, after: Any) -> Told:
        """A declared change of gradient clipping."""
        payload = schemas.Mitigation(
            uid=uid(), concept="grad_clip", before=scalar(before), after=scalar(after), why=SPOKEN
        )
        return Told(self.record(payload, step=21), [payload.uid, "grad_clip"])

    def seal(self, root: int = 99) -> Told:
        """A root to be anchored."""
        return Told(
            self.record(schemas.Seal(why="close", heads=[], root=digest(root)), step=40), [digest(root)]
        )

    def run(self) -> Told:
        """The run itself."""
        return Told(self.record(schemas.Run(uid=RUN, name=SPOKEN)), [RUN])

    def note(self, text: str, tracker: str) -> Told:
        """A note about a page."""
        payload = schemas.TrackerNote(code="LIN-T002", tracker=tracker, text=text)
        return Told(self.record(payload, step=30), [text])

    def all_kinds(self, tracker: str) -> list[Told]:
        """One record of every kind that may be shown, for a page of this tracker."""
        place = schemas.Place(node="node-a", pid=1)
        segment = schemas.Segment(uid=self.segment, start="fresh", world_size=2, place=place)
        config = schemas.Config(
            source="dict", values={"lr": scalar(3e-4), "clip": scalar(1.0)}, digest=digest(11)
        )
        code = schemas.CodeState(repository=True, revision="4f" * 20, branch="main", dirty=True)
        mitigation = self.mitigation(1.0, 0.3)
        checkpoint = self._checkpoint()
        told = [
            self.run(),
            Told(self.record(segment), [self.segment]),
            Told(self.record(config), [digest(11)]),
            Told(self.record(code), ["4f" * 20]),
            *self.regimes(2),
            Told(self.record(self._drift(), step=11), ["learning_rate"]),
            mitigation,
            Told(self.record(self._effect(mitigation), step=22), [mitigation.words[0]]),
            checkpoint,
            Told(self.record(self._mark(checkpoint), step=31), [checkpoint.words[0], "quarantined"]),
            Told(self.record(self.alarm(float("nan")), step=33), ["nan", "33"]),
            Told(self.record(self._first_bad(), step=33), ["layers.3", "32"]),
            self.verdict(1011),
            Told(self.record(self._finding(), step=34), ["LIN-B002"]),
            Told(self.record(self._degraded(), step=35), ["capture"]),
            self.note("the page keeps both branches", tracker),
            Told(self.record(self._coverage(), step=36), ["loss"]),
            self.seal(),
            Told(self.record(schemas.SegmentEnd(last_step=40), step=40)),
        ]
        return told

    def alarm(self, value: float) -> schemas.Alarm:
        """A loss that is not finite."""
        return schemas.Alarm(
            code="LIN-A001",
            phase="onset",
            signal="loss",
            scope="rank",
            abnormal="non_finite",
            value=value,
            text=f"loss is {value}",
        )

    def _regime(self, n: int) -> schemas.Regime:
        because = [f"learning_rate: {n} -> {n + 1}"] if n else []
        previous = digest(999 + n) if n else None
        return schemas.Regime(
            id=digest(1000 + n),
            index=n,
            from_step=10 * n + 1,
            previous=previous,
            values={"lr": scalar(n)},
            because=because,
        )

    def _drift(self) -> schemas.Drift:
        before, after = scalar(3e-4), scalar(1e-4)
        change = schemas.Change(
            concept="learning_rate",
            cls="R",
            title="learning rate",
            keys=["lr"],
            requested_before=before,
            requested_after=after,
            effective_before=before,
            effective_after=after,
            text="learning rate 0.0003 -> 0.0001",
        )
        return schemas.Drift(from_step=11, changes=[change], confounded=False, undeclared=["learning_rate"])

    def _checkpoint(self) -> Told:
        file = schemas.FileEntry(path="model.pt", size=10, digest=digest(12))
        payload = schemas.Checkpoint(
            uid=uid(),
            step=30,
            path="/ckpt/step-30",
            status="complete",
            manifest=schemas.Manifest(root=digest(13), files=[file]),
        )
        return Told(self.record(payload, step=30), [payload.uid])

    def _mark(self, checkpoint: Told) -> schemas.CheckpointMark:
        return schemas.CheckpointMark(
            checkpoint=checkpoint.words[0], mark="quarantined", why=SPOKEN, by="person"
        )

    def _effect(self, mitigation: Told) -> schemas.MitigationEffect:
        return schemas.MitigationEffect(
            mitigation=mitigation.words[0],
            in_effect="yes",
            from_step=22,
            effective=scalar(0.3),
            text="clipping is 0.3 from step 22",
        )

    def _first_bad(self) -> schemas.FirstBad:
        cell = schemas.Cell(
            segment=self.segment,
            step=33,
            rank=1,
            layer="layers.3",
            signal="activation",
            abnormal="non_finite",
            value=float("inf"),
            text="the output of layers.3 is infinite",
        )
        return schemas.FirstBad(cell=cell, last_good_step=32)

    def _finding(self) -> schemas.Finding:
        return schemas.Finding(
            code="LIN-B002",
            check="contract/1",
            severity="warning",
            subject="batches",
            text="two batches are equal",
        )

    def _degraded(self) -> schemas.Degraded:
        return schemas.Degraded(
            code="LIN-L004",
            part="capture",
            error=f"OSError: {SPOKEN}",
            consequence="the code is not recorded",
        )

    def _coverage(self) -> schemas.Coverage:
        return schemas.Coverage(recorded=["loss"], missing={"scaler": "attach(scaler=scaler)"})
