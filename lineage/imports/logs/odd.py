"""What contradicts itself inside a log: counters against lines, rates against times, a rate that jumps."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from decimal import Decimal
from statistics import median

from ..._rooms import schemas
from . import megatron
from .numbers import SECONDS
from .rows import Row

ELAPSED = {"elapsed time per iteration (ms)": "ms", "elapsed time per iteration (s)": "s"}
RATE = "samples per second"
LR_FROM = 100
"""A learning rate is not judged in the first steps, where a warm-up moves it by itself."""
LR_LEAST = 0.01
LR_TIMES = 5.0
SCALED = 1e3
"""A median norm from here on, beside a loss scale, may well carry that scale."""
MOST = 64


@dataclass
class Jumped:
    """A learning rate that went from one value to another within one row."""

    step: int
    before: float
    after: float
    line: int
    file: str
    steps: int
    alone: bool
    """no rows around it tell how it moves elsewhere"""


@dataclass
class Odd:
    """Follows the training rows of one rank in one segment."""

    skips: int = 0
    denied: int = 0
    first_denied: tuple[int, int, str] | None = None
    ratios: list[float] = field(default_factory=list)
    first_rate: tuple[int, int, str] | None = None
    uneven: list[tuple[int, float, float, int, str]] = field(default_factory=list)
    uneven_rows: int = 0
    lost: list[tuple[int, str, int, str]] = field(default_factory=list)
    lost_rows: int = 0
    jumps: list[Jumped] = field(default_factory=list)
    batches: list[tuple[int, float, float, int, str]] = field(default_factory=list)
    scaled: list[tuple[float, float]] = field(default_factory=list)
    """norm and loss scale of the first rows that have both"""
    _consumed: tuple[int, float, float] | None = None
    _lrs: deque[tuple[int, float, int, str]] = field(default_factory=lambda: deque(maxlen=4))
    _quanta: deque[float] = field(default_factory=lambda: deque(maxlen=16))

    def add(self, row: Row, file: str, skips: int, lr_key: str | None, *, has_loss: bool) -> None:
        """A training row, and how many lines before it said that a step was skipped.

        `has_loss`: whether it has a training loss, under whatever key its format prints that.
        """
        v = row.values
        where = (row.step, row.line, file)
        self.skips += skips
        counted = v.get(megatron.SKIPPED)
        if counted is not None and skips > counted:
            self.denied += int(skips - counted)
            self.first_denied = self.first_denied or where
        may = not has_loss and (counted is not None or megatron.NORM in v)
        why = megatron.vanished(v) if may else None
        if why is not None:
            self.lost_rows += 1
            if len(self.lost) < MOST:
                self.lost.append((row.step, why, row.line, file))
        self._rate(v, where)
        self._samples(v, where)
        if lr_key is not None and lr_key in v and math.isfinite(v[lr_key]):
            self._lr(row.step, v[lr_key], row.line, file)
        norm, scale = v.get(megatron.NORM), v.get(megatron.SCALE)
        if norm and scale and scale > 1 and len(self.scaled) < 256:
            self.scaled.append((norm, scale))

    def _rate(self, v: dict[str, float], where: tuple[int, int, str]) -> None:
        """Samples per second against batch size and time; only values of some digits can be compared."""
        elapsed = next(((v[k], u) for k, u in ELAPSED.items() if k in v), None)
        batch, rate = v.get(megatron.BATCH), v.get(RATE)
        if elapsed is None or not batch or not rate or elapsed[0] <= 0 or len(self.ratios) >= 256:
            return
        self.first_rate = self.first_rate or where
        self.ratios.append(batch / (elapsed[0] * SECONDS[elapsed[1]]) / rate)

    def _samples(self, v: dict[str, float], where: tuple[int, int, str]) -> None:
        """Consumed samples against the steps made since the last row, at the batch sizes of both rows."""
        batch, consumed = v.get(megatron.BATCH), v.get(megatron.SAMPLES)
        if batch is None or consumed is None or not math.isfinite(batch + consumed):
            return
        step, line, file = where
        if self._consumed is not None:
            s0, c0, b0 = self._consumed
            if b0 != batch and len(self.batches) < 4 * MOST:
                self.batches.append((step, b0, batch, line, file))
            made, low, high = consumed - c0, (step - s0) * min(b0, batch), (step - s0) * max(b0, batch)
            if step > s0 and not low <= made <= high:
                self.uneven_rows += 1
                if len(self.uneven) < MOST:
                    self.uneven.append((step, made, low if made < low else high, line, file))
        self._consumed = step, consumed, batch

    def _lr(self, step: int, value: float, line: int, file: str) -> None:
        self._quanta.append(float(Decimal(1).scaleb(int(Decimal(repr(value)).as_tuple().exponent))))
        if self._lrs and self._lrs[-1][0] == step:
            return
        self._lrs.append((step, value, line, file))
        points = list(self._lrs)
        if len(points) >= 3:
            self._judge(points[-4] if len(points) == 4 else None, points[-3], points[-2], points[-1])

    def done(self) -> None:
        """No more rows come: the last step of the learning rate has no successor."""
        points = list(self._lrs)
        if len(points) >= 2:
            self._judge(points[-3] if len(points) >= 3 else None, points[-2], points[-1], None)

    def _judge(
        self,
        earlier: tuple[int, float, int, str] | None,
        a: tuple[int, float, int, str],
        b: tuple[int, float, int, str],
        later: tuple[int, float, int, str] | None,
    ) -> None:
        """A jump is a move of a hundredth, five times as steep as the moves before and after it."""
        steps = b[0] - a[0]
        move = abs(b[1] - a[1])
        if a[0] <= LR_FROM or steps <= 0 or a[1] <= 0 or move < LR_LEAST * a[1]:
            return
        if move <= 3 * min(self._quanta):
            return
        slope = move / steps
        beside = [abs(q[1] - p[1]) / (q[0] - p[0]) for p, q in ((earlier, a), (b, later)) if p and q]
        if (beside and slope <= LR_TIMES * max(beside)) or (not beside and steps > 10):
            return
        if len(self.jumps) < MOST:
            self.jumps.append(Jumped(b[0], a[1], b[1], b[2], b[3], steps, not beside))

    @property
    def rate_factor(self) -> float | None:
        """How many times the samples per second are what batch size and time give; None where they agree."""
        if len(self.ratios) < 2:
            return None
        found = median(self.ratios)
        return found if not 0.8 <= found <= 1.25 else None


def findings(odd: Odd, rank: int, place: str) -> list[schemas.Finding]:
    """What is said of one rank of one segment."""
    out: list[schemas.Finding] = []
    if odd.first_denied is not None:
        step, line, file = odd.first_denied
        out.append(
            _finding(
                "LIN-S010",
                "log-skips/1",
                megatron.SKIPPED,
                f"{odd.skips:,} lines say that a step was skipped, and the counter beside them leaves out "
                f"{odd.denied:,} of these; first at step {step:,}, {place} {line:,} of {file}",
                "count the lines: those steps made no update, and their norm is none of theirs",
                rank,
                first_step=step, lines=odd.skips, not_counted=odd.denied, line=line,
            )
        )  # fmt: skip
    if (factor := odd.rate_factor) is not None and odd.first_rate is not None:
        step, line, file = odd.first_rate
        near = 900 < factor < 1100
        out.append(
            _finding(
                "LIN-S011",
                "log-rate/1",
                RATE,
                f"global batch size and elapsed time give {factor:,.3g} times the {RATE} that is printed"
                + (": it is per millisecond" if near else "")
                + f"; first at step {step:,}, {place} {line:,} of {file}",
                "compare throughput by batch size and elapsed time",
                rank,
                first_step=step, factor=factor, rows=len(odd.ratios), line=line,
            )
        )  # fmt: skip
    if odd.uneven:
        step, made, due, line, file = odd.uneven[0]
        out.append(
            _finding(
                "LIN-S012",
                "log-samples/1",
                megatron.SAMPLES,
                f"they grow by {made:,.0f} at step {step:,} ({place} {line:,} of {file}), where steps and batch size "
                f"give {due:,.0f}" + (f"; at {odd.uneven_rows:,} rows in all" if odd.uneven_rows > 1 else ""),
                "look whether batches were skipped, the counter was set anew, or lines of two runs stand in one file",
                rank,
                first_step=step, grown=made, due=due, rows=odd.uneven_rows, line=line,
            )
        )  # fmt: skip
    if odd.lost:
        out.append(_vanished(odd, rank, place))
    return [*out, *(_jumped(j, rank, place) for j in odd.jumps[:8])]


def _vanished(odd: Odd, rank: int, place: str) -> schemas.Finding:
    step, why, line, file = odd.lost[0]
    said = {
        "nan": "the counter of nan iterations says that it was NaN",
        "skipped": "the counter of skipped iterations says that the step was skipped",
        "unsaid": "no counter says why",
    }[why]
    return _finding(
        "LIN-S004",
        "log-field/1",
        megatron.LOSS,
        f"absent from {odd.lost_rows:,} training lines that this format prints it in, first at step {step:,} ({place} "
        f"{line:,} of {file}): {said}",
        "take those steps for non-finite or skipped until something shows otherwise",
        rank,
        first_step=step, rows=odd.lost_rows, line=line,
    )  # fmt: skip


def _jumped(j: Jumped, rank: int, place: str) -> schemas.Finding:
    return _finding(
        "LIN-S013",
        "log-lr/1",
        "learning rate",
        f"goes from {j.before:.6g} to {j.after:.6g} within {j.steps:,} step{'s' if j.steps > 1 else ''}, at step "
        f"{j.step:,} ({place} {j.line:,} of {j.file})"
        + ("" if j.alone else f", more than {LR_TIMES:.0f} times as steep as around it")
        + ": the schedule was changed or made a step of its own, which the log does not tell",
        "look for a restart or an override of the schedule at that step",
        rank,
        first_step=j.step, before=j.before, after=j.after, line=j.line,
    )  # fmt: skip


def _finding(
    code: str, check: str, subject: str, text: str, remedy: str, rank: int, **values: float
) -> schemas.Finding:
    held = {k: schemas.Scalar.of(v) for k, v in {"rank": rank, **values}.items()}
    return schemas.Finding(
        code=code, check=check, severity="warning", subject=subject, text=text, names=[subject], values=held,
        remedy=remedy,
    )  # fmt: skip
