"""The values of one step on the host, with what must be known to read them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .columns import SUMSQ, Stats, stats
from .ring import Slot
from .sheet import Key

SEARCH = 20
"""Steps in a row with non-finite gradients that a search for the loss scale may take: 65,536 is halved 16 times
before it is 1."""


@dataclass(frozen=True)
class Facts:
    """What the host knew when a step ended."""

    order: tuple[str, ...] = ()
    """parameters in the order in which their gradients arrived; none of the others had a gradient"""
    dtypes: Mapping[str, str] = field(default_factory=dict)
    """parameter -> type of its gradient, block -> type of its output, where they were read"""
    scope: str = "local"
    """`local`: this rank's gradients before any reduction"""
    scaled: bool = False
    """whether gradients were read while multiplied by the loss scale; `Frame.scale` is that scale"""
    first_scale: float = 1.0
    """the loss scale that the scaler begins with: in its first step there is no tensor of it yet"""
    divided_by: int = 1
    """FSDP2 in float16 divides before it reduces, and gradients are read after that"""
    groups: tuple[dict[str, Any], ...] = ()
    """effective values of each parameter group after the step"""
    lr_of: Mapping[str, float] = field(default_factory=dict)
    clip_threshold: float | None = None
    counters: tuple[float, float] | None = None
    way: str | None = None
    """how updates are computed, see `update`"""
    not_read: Mapping[Key, str] = field(default_factory=dict)
    dropped: int = 0
    """steps so far whose values were lost because the host had not taken earlier ones"""
    digests: bool = False


@dataclass
class Frame:
    """One step: statistics by (kind, name), scalars, and facts."""

    step: int
    facts: Facts
    found: dict[Key, Stats]
    scalars: dict[str, float]
    searching: bool = False
    """whether non-finite gradients are put down to a search for the loss scale"""
    clip_rate: float | None = None
    """share of the last steps whose gradient norm was above the clip threshold"""
    updated: bool = True
    """whether a step counter of the optimizer moved; unknown counts as yes"""

    def of(self, kind: str) -> Iterator[tuple[str, Stats]]:
        """(name, statistics) of one kind, in the order of its rows."""
        return ((key.name, s) for key, s in self.found.items() if key.kind == kind)

    @property
    def scale(self) -> float:
        """What gradients were multiplied by when they were read."""
        scale = self.scalars.get("loss_scale", self.facts.first_scale) if self.facts.scaled else 1.0
        return scale / self.facts.divided_by

    @property
    def skipped(self) -> bool | None:
        """Whether the loss scaler held the update back: its scale fell. None without a scaler."""
        after = self.scalars.get("loss_scale_next")
        return after < self.scalars.get("loss_scale", self.facts.first_scale) if after is not None else None

    def gradient_norm(self, name: str | None = None) -> float:
        """L2 norm of one gradient, or of all, without the loss scale. NaN and infinities come through."""
        found = [s for n, s in self.of("gradient") if name is None or n == name]
        norms = [s.norm for s in found]
        if any(math.isnan(n) for n in norms) or not norms:
            return math.nan
        return math.inf if math.inf in norms else math.sqrt(math.fsum(s.sumsq for s in found)) / self.scale

    def update_ratio(self, name: str) -> tuple[float, str] | None:
        """(norm of the update / norm of the weight, how it was computed), where both are known."""
        weight, update = self.found.get(Key("weight", name)), self.found.get(Key("update", name))
        if weight is None or weight.norm == 0.0:
            return None
        if update is not None:
            return update.norm / weight.norm, self.facts.way or ""
        proxy = self.proxy(name)
        return (proxy / weight.norm, "proxy: lr x gradient norm") if proxy is not None else None

    def proxy(self, name: str) -> float | None:
        """Learning rate times gradient norm: what stands for an update that cannot be computed. None if not known."""
        if Key("gradient", name) not in self.found or name not in self.facts.lr_of:
            return None
        return self.facts.lr_of[name] * self.gradient_norm(name)

    def proxies(self) -> dict[str, float]:
        """The proxy of each weight that was read, where the optimizer's updates cannot be computed."""
        if self.facts.way is None or not self.updated or self.skipped:
            return {}
        found = {n: self.proxy(n) for n, _ in self.of("weight") if Key("update", n) not in self.found}
        return {name: norm for name, norm in found.items() if norm is not None and math.isfinite(norm)}

    def no_gradient(self, trainable: list[str]) -> list[str]:
        """Which of these had no gradient in this step. Absent is not zero: an expert without tokens has none."""
        arrived = set(self.facts.order)
        return [name for name in trainable if name not in arrived]

    def non_finite(self) -> list[Key]:
        """What holds a NaN or an infinity, gradients in the order of their arrival; a scale search is left out."""
        bad = [key for key, s in self.found.items() if not s.finite]
        place = {name: i for i, name in enumerate(self.facts.order)}
        bad.sort(key=lambda key: (key.kind != "gradient", place.get(key.name, len(place))))
        return [k for k in bad if not (self.searching and k.kind in ("gradient", "activation_gradient"))]

    def negative_moments(self) -> list[str]:
        """Parameters whose second moment has an element below zero, which no update can make."""
        return [name for name, s in self.of("moment2") if s.lowest < 0.0]


@dataclass
class OnItsWay:
    """A step whose values may not have arrived yet."""

    step: int
    facts: Facts
    slots: list[Slot]

    def ready(self) -> bool:
        """Whether everything is on the host. Polls; never waits."""
        return all(slot.ready() for slot in self.slots)

    def synchronize(self) -> None:
        """Wait until everything is on the host."""
        for slot in self.slots:
            if slot.event is not None:
                slot.event.synchronize()

    def frame(self) -> Frame:
        """The values. Call it only when `ready`."""
        found: dict[Key, Stats] = {}
        scalars: dict[str, float] = {}
        for slot in self.slots:
            for key, row in slot.take():
                read = stats(row, digest=self.facts.digests)
                if read is None:
                    continue
                if key.kind == "scalar":
                    scalars[key.name] = row[SUMSQ]
                else:
                    found[key] = read
        return Frame(self.step, self.facts, found, scalars)


class Memory:
    """What one step's frame takes from the steps before it."""

    CLIPPED = 100
    """Steps over which the clip rate is taken."""

    def __init__(self) -> None:
        self._counters: tuple[float, float] | None = None
        self._non_finite = 0
        self._clipped: list[bool] = []

    def add(self, frame: Frame) -> Frame:
        """Fill in what depends on earlier steps. Frames must come in the order of steps."""
        counters = frame.facts.counters
        if counters is None and "step_min" in frame.scalars:
            counters = frame.scalars["step_min"], frame.scalars["step_max"]
        frame.updated = counters is None or self._counters is None or counters != self._counters
        self._counters = counters
        if not frame.updated or frame.skipped or frame.scalars.get("gate"):
            for key in [k for k in frame.found if k.kind == "update"]:
                del frame.found[key]  # computed from old moments: nothing was updated
        broken = any(not s.finite for _, s in frame.of("gradient"))
        self._non_finite = self._non_finite + 1 if broken else 0
        frame.searching = frame.facts.scaled and broken and self._non_finite <= SEARCH
        norm, threshold = frame.scalars.get("clip_norm"), frame.facts.clip_threshold
        if norm is not None and threshold is not None:
            self._clipped = [*self._clipped[1 - self.CLIPPED :], not norm <= threshold]
            frame.clip_rate = sum(self._clipped) / len(self._clipped)
        return frame
