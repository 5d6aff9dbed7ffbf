"""The step's values on their way from the training loop to the series and the detectors."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .._rooms import schemas
from ..capture.batch import Fingerprint
from ..capture.later import Later
from ..judge.detectors import RULES, Detector, Finding


@dataclass
class Pending:
    """What one step left behind, some of it still on the device."""

    step: int
    plain: dict[str, float] = field(default_factory=dict)
    later: dict[str, Later] = field(default_factory=dict)
    gradients: tuple[Later, list[int]] | None = None
    batches: list[Fingerprint] = field(default_factory=list)
    at: Any = None

    def ready(self) -> bool:
        """Whether all of it has arrived on the host."""
        waiting = [*self.later.values(), *(b.later for b in self.batches)]
        waiting += [self.gradients[0]] if self.gradients else []
        return all(v.ready() for v in waiting if v is not None)


@dataclass(frozen=True)
class Values:
    """The values of one step on the host."""

    step: int
    at: Any
    signals: dict[str, float]
    tensors: list[str]
    """parameters whose local gradient is not finite, in the order in which their gradients arrived"""
    batches: list[tuple[str, int, int]]


class Streams:
    """Keeps what is on its way, in order of steps, and judges what has arrived."""

    def __init__(self, names: Callable[[], list[str]]) -> None:
        self._names = names
        self._queue: deque[Pending] = deque()
        self.detectors = {signal: Detector(rule) for signal, rule in RULES.items()}
        self._abnormal: dict[str, str] = {}
        self._calm: dict[str, int] = {}
        self.seen: set[str] = set()
        self.onsets: Counter[str] = Counter()

    def push(self, pending: Pending) -> None:
        """Add the newest step."""
        self._queue.append(pending)

    def arrived(self, *, wait: bool = False) -> list[Values]:
        """Take the steps whose values are on the host; with `wait`, all of them."""
        out = []
        while self._queue and (wait or self._queue[0].ready()):
            out.append(self._values(self._queue.popleft()))
        return out

    def _values(self, p: Pending) -> Values:
        signals = dict(p.plain)
        for name, later in p.later.items():
            signals[name] = _mean(later.values())
        tensors: list[str] = []
        if p.gradients:
            norms, order = p.gradients[0].values(), p.gradients[1]
            signals["grad_norm_local"] = _norm([norms[i] for i in order])
            names = self._names()
            tensors = [names[i] for i in order if not math.isfinite(norms[i])]
        return Values(p.step, p.at, signals, tensors, [(b.digest(), b.samples, b.tokens) for b in p.batches])

    def judge(self, values: Values) -> list[tuple[str, str, Finding | None]]:
        """Run the detectors over one step: (signal, phase, finding) for each onset, change and end."""
        out: list[tuple[str, str, Finding | None]] = []
        for signal in ("loss", "grad_norm_local", "grad_norm"):
            if signal not in values.signals:
                continue
            self.seen.add(signal)
            finding = self.detectors[signal].update(values.signals[signal])
            before = self._abnormal.get(signal)
            if finding:
                self._calm[signal] = 0
                self._abnormal[signal] = finding.abnormal
                if before is None:
                    self.onsets[signal] += 1
                    out.append((signal, "onset", finding))
                elif before != finding.abnormal:
                    out.append((signal, "change", finding))
            elif before:
                self._calm[signal] = self._calm.get(signal, 0) + 1
                if self._calm[signal] >= CALM:
                    del self._abnormal[signal]
                    out.append((signal, "end", None))
        return out


CALM = 3
"""Healthy values after which an alarm has ended."""


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _norm(norms: list[float]) -> float:
    """L2 norm of a vector of norms, in float64; NaN and infinities come through."""
    if any(math.isnan(n) for n in norms):
        return math.nan
    return math.hypot(*norms) if norms else 0.0


def rows(segment: str, rank: int, values: Values) -> list[dict[str, Any]]:
    """The series rows of one step."""
    return [
        {
            "segment": segment,
            "rank": rank,
            "step": values.step,
            "signal": signal,
            "value": value,
            "n_nan": int(math.isnan(value)),
            "n_posinf": int(value == math.inf),
            "n_neginf": int(value == -math.inf),
            "at": values.at,
        }
        for signal, value in values.signals.items()
    ]


def batch_rows(segment: str, rank: int, values: Values) -> list[dict[str, Any]]:
    """The fingerprint rows of one step."""
    return [
        {
            "segment": segment,
            "rank": rank,
            "step": values.step,
            "micro": micro,
            "digest": digest,
            "samples": samples,
            "tokens": tokens,
            "at": values.at,
        }
        for micro, (digest, samples, tokens) in enumerate(values.batches)
    ]


def alarm(signal: str, phase: str, finding: Finding | None, values: Values, text: str) -> schemas.Alarm:
    """Make the alarm record of a detector's finding."""
    kind = finding.abnormal if finding else "non_finite"
    codes = {
        ("loss", "non_finite"): "LIN-A001",
        ("loss", "out_of_range"): "LIN-A003",
        ("grad", "non_finite"): "LIN-A002",
        ("grad", "out_of_range"): "LIN-A004",
    }
    return schemas.Alarm(
        code=codes[("loss" if signal == "loss" else "grad", kind)],
        phase=phase,
        signal=signal,
        scope="reduced" if signal == "grad_norm" else "rank",
        abnormal=kind,
        value=values.signals.get(signal, math.nan),
        baseline=finding.baseline if finding else None,
        threshold=finding.threshold if finding else None,
        tensors=values.tensors[:64] if signal == "grad_norm_local" else [],
        detector={k: schemas.Scalar.of(v) for k, v in RULES[signal].parameters().items()},
        text=text,
    )
