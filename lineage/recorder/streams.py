"""The step's values on their way from the training loop to the series and the detectors."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._rooms import schemas
from ..capture import later
from ..capture.batch import Fingerprint
from ..capture.batch_facts import BatchFacts
from ..capture.later import Later
from ..judge.detect_signal import SIGNALS, SignalDetector
from ..judge.detectors import RULES, Abnormal, Finding
from .domain_losses import Part
from .probing import Probing, tensors
from .sample_losses import Given

if TYPE_CHECKING:
    from ..probes.frame import Frame, OnItsWay


@dataclass
class Pending:
    """What one step left behind, some of it still on the device."""

    step: int
    plain: dict[str, float] = field(default_factory=dict)
    later: dict[str, Later | Part] = field(default_factory=dict)
    probed: tuple[Probing, OnItsWay] | None = None
    batches: list[Fingerprint] = field(default_factory=list)
    by_sample: list[Given] = field(default_factory=list)
    at: Any = None

    def ready(self) -> bool:
        """Whether all of it has arrived on the host."""
        return (
            all(v.ready() for v in self.later.values())
            and all(b.ready() for b in self.batches)
            and all(s.ready() for s in self.by_sample)
            and (self.probed is None or self.probed[1].ready())
        )


@dataclass(frozen=True)
class Values:
    """The values of one step on the host."""

    step: int
    at: Any
    signals: dict[str, float]
    tensors: list[str]
    """parameters whose local gradient is not finite, in the order in which their gradients arrived"""
    batches: list[BatchFacts]
    frame: Frame | None = None
    """what the probes read"""
    by_sample: list[list[float]] = field(default_factory=list)
    """micro-batch -> the loss of each of its samples, where the loop gave them"""

    @property
    def searching(self) -> bool:
        """Whether non-finite gradients are put down to a search for the loss scale."""
        return self.frame is not None and self.frame.searching


class Streams:
    """Keeps what is on its way, in order of steps, and judges what has arrived."""

    def __init__(self) -> None:
        self._queue: deque[Pending] = deque()
        self.detectors = {signal: SignalDetector(signal) for signal in SIGNALS}
        self._abnormal: dict[str, Abnormal] = {}
        self._calm: dict[str, int] = {}
        self.seen: set[str] = set()
        self.onsets: Counter[str] = Counter()
        self.rises: Counter[str] = Counter()
        """slow rises, which are no place to look for a first bad cell"""

    def push(self, pending: Pending) -> None:
        """Add the newest step."""
        self._queue.append(pending)

    def arrived(self, *, wait: float = 0.0) -> list[Values]:
        """Take the steps whose values are on the host, after at most `wait` seconds for those on their way."""
        out = []
        end = time.monotonic() + wait
        while self._queue and later.wait(self._queue[0].ready, end - time.monotonic()):
            out.append(self._values(self._queue.popleft()))
        return out

    @property
    def on_their_way(self) -> int:
        """How many steps have values that are not on the host yet."""
        return len(self._queue)

    def _values(self, p: Pending) -> Values:
        signals = dict(p.plain)
        for name, value in p.later.items():
            signals[name] = _mean(value.values())
        batches = [b.facts() for b in p.batches]
        by_sample = [s.values() for s in p.by_sample]
        if p.probed is None:
            return Values(p.step, p.at, signals, [], batches, by_sample=by_sample)
        probing, sent = p.probed
        frame = probing.frame(sent)
        signals |= probing.signals(frame)
        return Values(p.step, p.at, signals, tensors(frame), batches, frame, by_sample)

    def judge(self, values: Values) -> list[tuple[str, str, Finding]]:
        """Run the detectors over one step: (signal, phase, finding) for each onset, change and end.

        The finding of an end says what has ended; its value is the one that ended it.
        """
        out: list[tuple[str, str, Finding]] = []
        for signal in ("loss", "grad_norm_local", "grad_norm"):
            if signal not in values.signals:
                continue
            self.seen.add(signal)
            if signal != "loss" and values.searching:
                continue  # a loss-scale search makes infinities on purpose: they are in the series, with the scale
            detector = self.detectors[signal]
            rising = detector.rise.alarmed
            value = values.signals[signal]
            finding, slow = detector.update(value)
            if slow is not None:
                first = slow.abnormal == "slow_rise"
                self.rises[signal] += first
                out.append((signal, "onset" if first else "end", slow))
            elif rising and not detector.rise.alarmed:
                out.append(
                    (signal, "end", Finding("slow_rise", value, None, None, detector.rise.rule.parameters()))
                )
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
                    out.append(
                        (signal, "end", Finding(before, value, None, None, RULES[signal].parameters()))
                    )
        return out


CALM = 3
"""Healthy values after which an alarm has ended."""


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan


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


def alarm(signal: str, phase: str, finding: Finding, values: Values, text: str) -> schemas.Alarm:
    """Make the alarm record of a detector's finding."""
    kind = finding.abnormal
    codes = {
        ("loss", "non_finite"): "LIN-A001",
        ("loss", "out_of_range"): "LIN-A003",
        ("grad", "non_finite"): "LIN-A002",
        ("grad", "out_of_range"): "LIN-A004",
        **{(s, "slow_rise"): "LIN-A005" for s in ("loss", "grad")},
        **{(s, "new_level"): "LIN-A006" for s in ("loss", "grad")},
    }
    return schemas.Alarm(
        code=codes[("loss" if signal == "loss" else "grad", kind)],
        phase=phase,
        signal=signal,
        scope="reduced" if signal == "grad_norm" else "rank",
        abnormal=kind,
        value=values.signals.get(signal, math.nan),
        baseline=finding.baseline,
        threshold=finding.threshold,
        tensors=values.tensors[:64] if signal == "grad_norm_local" else [],
        detector={k: schemas.Scalar.of(v) for k, v in finding.detector.items()},
        text=text,
    )
