"""One table per experiment: rows of measured figures, targets that are met or missed, notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


def seconds(value: float) -> str:
    """A duration in the unit that reads best, three digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * scale >= 1.0 or unit == "us":
            return f"{value * scale:.3g} {unit}" if value * scale < 1000 else f"{value * scale:,.0f} {unit}"
    raise AssertionError(value)


def _times(value: float) -> str:
    return f"{value:,.3g}x" if value < 1000 else f"{value:,.0f}x"


FORMATS: Mapping[str, Callable[[Any], str]] = {
    "text": str,
    "count": lambda v: f"{v:,}",
    "seconds": seconds,
    "ratio": _times,
    "rate": lambda v: f"{v:,.0f}",
    "number": lambda v: f"{v:.3g}",
    "percent": lambda v: f"{100 * v:+.1f} %",
    "share": lambda v: f"{v:.2f}" if 0.005 <= v < 0.995 or v in (0.0, 1.0) else f"{v:.3f}",
}
"""What a column holds -> how it is printed. The JSON file keeps the numbers as they are."""


@dataclass(frozen=True)
class Column:
    """A column: the key in each row, its heading, and what it holds (a key of `FORMATS`)."""

    key: str
    heading: str
    kind: str = "text"


SPREAD = (
    Column("n", "n", "count"),
    Column("min", "min", "seconds"),
    Column("median", "median", "seconds"),
    Column("p99", "p99", "seconds"),
)
"""The columns that `timing.summary` fills."""


@dataclass(frozen=True)
class Target:
    """What the product promises, what was measured, and whether that meets it."""

    text: str
    measured: str
    met: bool

    def line(self) -> str:
        """The target as one line."""
        return f"{'met' if self.met else 'MISSED'}: {self.text} (measured: {self.measured})"


@dataclass
class Table:
    """The result of one experiment. A row may leave a column empty by not holding its key."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: list[dict[str, Any]] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, **values: Any) -> None:
        """Add a row. Raises `KeyError` for a key that no column has (`max` is kept in the JSON only)."""
        known = {c.key for c in self.columns} | {"max"}
        if unknown := values.keys() - known:
            raise KeyError(f"table {self.name!r} has no column {sorted(unknown)}; it has {sorted(known)}")
        self.rows.append(values)

    def markdown(self) -> str:
        """The table as Markdown whose columns also line up as plain text."""
        cells = [
            [FORMATS[c.kind](row[c.key]) if row.get(c.key) is not None else "" for c in self.columns]
            for row in self.rows
        ]
        heads = [c.heading for c in self.columns]
        widths = [max(len(r[i]) for r in [heads, *cells]) for i in range(len(heads))]
        left = [c.kind == "text" for c in self.columns]

        def line(texts: Sequence[str]) -> str:
            padded = (
                t.ljust(w) if lft else t.rjust(w) for t, w, lft in zip(texts, widths, left, strict=True)
            )
            return f"| {' | '.join(padded)} |"

        rule = "|".join(
            "-" * (w + 2) if lft else "-" * (w + 1) + ":" for w, lft in zip(widths, left, strict=True)
        )
        parts = [f"## {self.name}: {self.title}", "", line(heads), f"|{rule}|", *map(line, cells)]
        for heading, lines in (("", [t.line() for t in self.targets]), ("", self.notes)):
            if lines:
                parts += [heading, *(f"- {text}" for text in lines)]
        return "\n".join(parts)

    def plain(self) -> dict[str, Any]:
        """The table as JSON values, durations in seconds."""
        return asdict(self)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Table:
        """The inverse of `plain`."""
        return cls(
            data["name"],
            data["title"],
            [Column(**c) for c in data["columns"]],
            list(data["rows"]),
            [Target(**t) for t in data["targets"]],
            list(data["notes"]),
        )
