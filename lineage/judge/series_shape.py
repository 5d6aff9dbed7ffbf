"""What the values of a series look like: how far they move, how finely they are written, where they stand still."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from .._rooms import schemas
from .series_names import Name, of

NEAR = 32
"""Values around a place that tell how far the series moves there."""

CHANCE = 1e-6
"""At most this often may chance alone give as many equal rows in a series of that length."""
FINEST = 1e-3
"""Chance that two neighbours are equal, at least: no series is taken for finer than that."""


@dataclass(frozen=True)
class Logged:
    """One series of one rank, in the order in which it was logged."""

    key: str
    steps: Sequence[int]
    values: Sequence[float]
    rank: int = 0
    by: str = "probes"
    """the tracker it was logged to; `probes`: a signal of the layer's own"""

    @property
    def own(self) -> bool:
        """Whether the layer read it itself."""
        return self.by == "probes"

    @property
    def name(self) -> Name | None:
        """What its key names."""
        if self.own:
            return OWN.get(self.key)
        return of(self.key)

    @property
    def said(self) -> str:
        """It in words, as findings name it."""
        return f"{self.by}: {self.key}"

    def at(self) -> dict[int, float]:
        """step -> value; of several rows at one step the last."""
        return dict(zip(self.steps, self.values, strict=True))


OWN = {
    "loss": Name("loss", True, "local"),
    "grad_norm_local": Name("norm", True, "local"),
    "grad_norm": Name("norm", True, "global"),
    "update_norm": Name("update", True, None),
}
"""Signals of the layer that are judged as series."""


@dataclass(frozen=True)
class Stand:
    """Equal finite values in a row: positions `first` to `last`, both included."""

    first: int
    last: int
    value: float

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.last - self.first + 1


def stands(values: Sequence[float]) -> list[Stand]:
    """All runs of bitwise equal finite values, those of one row too. A non-finite value ends one."""
    out: list[Stand] = []
    first = 0
    for i in range(1, len(values) + 1):
        if i < len(values) and values[i] == values[first]:
            continue
        if math.isfinite(values[first]):
            out.append(Stand(first, i - 1, values[first]))
        first = i
    return out


def moves(values: Sequence[float], first: int, last: int) -> list[float]:
    """Sizes of the moves near positions `first` to `last`, outside of them; equal neighbours are none."""
    before = values[max(0, first - NEAR) : first + 1]
    after = values[last : last + NEAR]
    return [
        abs(b - a)
        for part in (before, after)
        for a, b in pairwise(part)
        if a != b and math.isfinite(a) and math.isfinite(b)
    ]


def grid(values: Sequence[float]) -> tuple[float, str]:
    """The smallest step between two values as they are written, near their median size, and what sets it.

    Either a number of decimals (0.001) or of bits (bfloat16 keeps 8, fp16 11); the coarser of the two.
    """
    finite = [v for v in values if math.isfinite(v) and v != 0.0]
    if not finite:
        return 0.0, "nothing"
    # A value moves in either grid or not at all, so the finest of a sample is that of the whole.
    sample = finite if len(finite) <= 512 else finite[:: len(finite) // 512]
    decimals = max(_decimals(v) for v in sample)
    bits = max(_bits(v) for v in sample)
    size = statistics.median(abs(v) for v in sample)
    binary = math.ldexp(1.0, math.frexp(size)[1] - bits)
    decimal = 10.0**-decimals
    if bits <= 11 and binary >= decimal:
        return binary, "bfloat16" if bits <= 8 else "float16"
    return max(decimal, binary), f"{decimals} decimals"


def _decimals(value: float) -> int:
    mantissa, _, exponent = repr(abs(value)).partition("e")
    digits = len(mantissa.partition(".")[2].rstrip("0"))
    return max(0, digits - int(exponent or 0))


def _bits(value: float) -> int:
    """Bits of the mantissa that are in use: 8 or fewer for a value of bfloat16."""
    whole = int(math.ldexp(math.frexp(abs(value))[0], 53))
    return 53 - ((whole & -whole).bit_length() - 1)


def chance(s: Logged, stand: Stand) -> float:
    """How often chance gives as many equal rows somewhere in the series, judged by its moves nearby."""
    sizes = moves(s.values, stand.first, stand.last)
    if not sizes:
        return 1.0
    near = s.values[max(0, stand.first - NEAR) : stand.last + NEAR + 1]
    # the smaller moves decide, as a series that settles moves less and less
    typical = statistics.quantiles(sizes, n=4)[0] if len(sizes) > 3 else min(sizes)
    equal = min(1.0, max(FINEST, grid(near)[0] / typical)) if typical > 0 else 1.0
    return min(1.0, len(s.values) * equal ** (stand.rows - 1))


def significant(value: float) -> int:
    """Decimal digits that a value is written with: 0.150 has two, 1.0 one."""
    digits = repr(abs(value)).partition("e")[0].replace(".", "").strip("0")
    return len(digits)


def moved(series: Sequence[Logged], but: Logged, first: int, last: int, *, least: int) -> Logged | None:
    """A loss or norm that moved at nearly each of its rows from step `first` to `last`: training went on there."""
    for other in series:
        if other is but or other.name is None or not other.name.main or other.rank != but.rank:
            continue
        if other.by != but.by and not other.own and not but.own:
            continue
        inside = [v for s, v in zip(other.steps, other.values, strict=True) if first <= s <= last]
        pairs = [(a, b) for a, b in pairwise(inside) if math.isfinite(a) and math.isfinite(b)]
        if len(pairs) >= least and sum(a != b for a, b in pairs) >= 0.8 * len(pairs):
            return other
    return None


def finding(
    check: str,
    code: str,
    severity: Literal["note", "warning", "fault"],
    series: Logged,
    text: str,
    remedy: str,
    **values: float | int | str | None,
) -> schemas.Finding:
    """A finding about one series; `values` hold what it rests on and the parameters of the check."""
    shown = {"rank": series.rank, "rows": len(series.values), **values}
    return schemas.Finding(
        code=code,
        check=check,
        severity=severity,
        subject=series.key,
        text=text,
        names=[series.said],
        values={k: schemas.Scalar.of(v) for k, v in shown.items() if v is not None},
        remedy=remedy,
    )


def blocks(steps: Sequence[int], axis: Sequence[int] = ()) -> list[tuple[int, int]]:
    """First and last of each run of neighbours, by the rows of an axis where one is given, else by number."""
    place = {s: i for i, s in enumerate(sorted(set(axis)))} if axis else {}
    out: list[tuple[int, int]] = []
    for s in steps:
        if out and place.get(s, s) == place.get(out[-1][1], out[-1][1]) + 1:
            out[-1] = (out[-1][0], s)
        else:
            out.append((s, s))
    return out


def spans(steps: Sequence[int], axis: Sequence[int] = (), most: int = 3) -> str:
    """Steps in words: `5, 9-12 and 3 more places`."""
    found = blocks(steps, axis)
    text = ", ".join(f"{a:,}" if a == b else f"{a:,}-{b:,}" for a, b in found[:most])
    return text + (f" and {len(found) - most} more places" if len(found) > most else "")


def main(series: Sequence[Logged], kind: str | None = None) -> Iterator[Logged]:
    """The series of the run's own loss and norms."""
    for s in series:
        if s.name is not None and s.name.main and kind in (None, s.name.kind):
            yield s
