"""Checks on what probes read: how model and optimizer fit together, broken optimizer state, and the clip rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from .._rooms import schemas

MOST = 64
"""Names that one finding lists; `count` tells how many there are."""

Severity = Literal["note", "warning", "fault"]


class Holding(Protocol):
    """What an optimizer holds beside what the model has; see `lineage.probes.held.Held`."""

    @property
    def not_held(self) -> list[str]:
        """Trainable, and in no parameter group."""

    @property
    def stale(self) -> list[str]:
        """Held, and no part of the model."""

    @property
    def twice(self) -> list[str]:
        """Held more than once."""

    @property
    def frozen(self) -> list[str]:
        """Held, and not trainable."""

    @property
    def decayed(self) -> list[str]:
        """Vectors with weight decay."""

    @property
    def of_model(self) -> tuple[int, int]:
        """How many of the model's trainable parameters are held, and how many it has."""


_HOLDING: tuple[tuple[str, str, Severity, str, str], ...] = (
    (
        "not_held",
        "LIN-P001",
        "warning",
        "trainable and in no group of the optimizer: never updated",
        "give them to the optimizer, or set requires_grad to False",
    ),
    (
        "stale",
        "LIN-P002",
        "fault",
        "held by the optimizer and no part of the model: the optimizer updates tensors that nothing uses",
        "make the optimizer after the model is wrapped, moved and tied",
    ),
    (
        "twice",
        "LIN-P003",
        "fault",
        "held by the optimizer more than once: updated more than once in each step",
        "give each parameter to one group",
    ),
    (
        "frozen",
        "LIN-P004",
        "note",
        "held by the optimizer and not trainable",
        "leave them out of the optimizer",
    ),
    (
        "decayed",
        "LIN-P005",
        "note",
        "vectors (norm weights, biases) with weight decay",
        "most recipes give them a group with weight_decay=0; if it is meant, nothing",
    ),
)


def holding(held: Holding) -> list[schemas.Finding]:
    """What is odd about which parameters the optimizer holds; usually nothing."""
    return [
        finding(
            code,
            "optimizer-holds/1",
            severity,
            "optimizer",
            text + _of(held, field),
            getattr(held, field),
            remedy,
        )
        for field, code, severity, text, remedy in _HOLDING
        if getattr(held, field)
    ]


def _of(held: Holding, field: str) -> str:
    """Beside what is stale: how much of the model the optimizer still holds."""
    return f"; of the model it holds {held.of_model[0]:,} of {held.of_model[1]:,}" if field == "stale" else ""


def state(negative: Sequence[str], broken: Sequence[str]) -> list[schemas.Finding]:
    """Optimizer state and weights that no healthy update leaves behind."""
    found = []
    if negative:
        text = "second moments have elements below zero, which no update makes"
        found.append(
            finding(
                "LIN-P006",
                "optimizer-state/1",
                "fault",
                "optimizer",
                text,
                negative,
                "compare the state with the checkpoint that was loaded: lineage verdict",
            )
        )
    if broken:
        text = "not finite after the step"
        found.append(
            finding(
                "LIN-P007",
                "optimizer-state/1",
                "fault",
                "optimizer",
                text,
                broken,
                "stop, keep the evidence (lineage incident preserve), go back to the last good checkpoint",
            )
        )
    return found


class Unreached:
    """Tells once which trainable parameters have had no gradient since the start. An expert may get its first later."""

    AFTER = 20
    """Steps with gradients after which it looks."""

    def __init__(self) -> None:
        self._steps = 0
        self._arrived: set[str] = set()

    def look(self, arrived: Sequence[str], trainable: Callable[[], Sequence[str]]) -> list[schemas.Finding]:
        """Take the parameters that had a gradient in this step; `trainable` is asked once for those that might."""
        if not arrived or self._steps >= self.AFTER:
            return []
        self._arrived.update(arrived)
        self._steps += 1
        left = [n for n in trainable() if n not in self._arrived] if self._steps == self.AFTER else []
        if not left:
            return []
        text = f"trainable parameters had no gradient in the first {self.AFTER} steps"
        remedy = "unused parts, detached outputs and experts without tokens look like this: freeze them, or look why"
        return [finding("LIN-P009", "no-gradient/1", "warning", "gradients", text, left, remedy)]


class ClipRate:
    """Tells when nearly every step is clipped, and again only after it was not so."""

    HIGH, LOW = 0.95, 0.5
    """Share of the last 100 steps. The threshold is then a rate in disguise: the update's size is fixed by it."""
    LEAST = 100
    """Steps before it says anything."""

    def __init__(self) -> None:
        self._steps = 0
        self._told = False

    def look(self, rate: float | None, threshold: float | None) -> list[schemas.Finding]:
        """Judge the share of recent steps whose norm was above the threshold."""
        if rate is None:
            return []
        self._steps += 1
        if self._told and rate < self.LOW:
            self._told = False
        if self._told or self._steps < self.LEAST or rate < self.HIGH:
            return []
        self._told = True
        text = f"{rate:.0%} of the last 100 steps were clipped"
        found = finding(
            "LIN-P008",
            "clip-rate/1",
            "warning",
            "gradients",
            text,
            [],
            "look at the norms before clipping: the threshold decides the size of nearly every update",
        )
        shown = {"rate": rate, "threshold": threshold, "high": self.HIGH}
        return [found.model_copy(update={"values": {k: schemas.Scalar.of(v) for k, v in shown.items()}})]


def finding(
    code: str,
    check: str,
    severity: Severity,
    subject: str,
    text: str,
    names: Sequence[str],
    remedy: str,
) -> schemas.Finding:
    """A finding about some names, of which the first are listed."""
    return schemas.Finding(
        code=code,
        check=check,
        severity=severity,
        subject=subject,
        text=f"{len(names):,} {text}" if names else text,
        names=list(names[:MOST]),
        count=len(names) or None,
        remedy=remedy,
    )
