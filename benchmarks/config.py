"""How long two configs take to compare: in the catalogue's terms, beside a comparison of the bare values."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import schemas
from lineage.capture import config as capture
from lineage.judge.requested import compare

from .table import SPREAD, Column, Table, Target
from .timing import Variant, summary, take_turns, timed

NAME = "config"
COLUMNS = (
    Column("keys", "keys", "count"),
    Column("what", "two configs compared by"),
    Column("renames", "silent about a renamed key"),
    *SPREAD,
    Column("ratio", "time, judge = 1", "ratio"),
)
JUDGE = "lineage.judge.requested.compare"


def config(keys: int, lr_key: str) -> dict[str, object]:
    """A config of so many keys, most of them known to nobody, with one learning rate."""
    values: dict[str, object] = {f"s{i % 50}.group{i % 7}.item{i}": i * 1.5 for i in range(keys - 3)}
    return {**values, lr_key: 1e-4, "model.n_layers": 32, "data.paths": ["a", "b"]}


def by_dict(a: Mapping[str, object], b: Mapping[str, object]) -> list[str]:
    """Keys whose values differ."""
    return [k for k in {*a, *b} if a.get(k) != b.get(k)]


def by_lines(a: Mapping[str, object], b: Mapping[str, object]) -> list[str]:
    """A unified diff of sorted lines, as people diff two YAML files."""
    left, right = ([f"{k}: {v}" for k, v in sorted(side.items())] for side in (a, b))
    found = difflib.unified_diff(left, right, n=0, lineterm="")
    return [line for line in found if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def _variants(size: int) -> dict[str, Callable[[], object]]:
    """Name -> what compares two configs of a size, and returns something true where it found a difference."""
    one, two = config(size, "lr"), config(size, "optimizer.lr")
    a, b = capture.capture(one), capture.capture(two)

    def judged() -> list[str]:
        found = compare(a, b)
        return [*found.changes, *found.one_sided]

    return {
        JUDGE: judged,
        "values by key": partial(by_dict, one, two),
        "difflib over sorted lines": partial(by_lines, one, two),
    }


def run(*, rounds: int = 7, sizes: tuple[int, ...] = (100, 1_000, 10_000)) -> Table:
    """Compare two configs that differ in the name of one key."""
    table = Table(NAME, "Two configs compared that differ in the name of one key", COLUMNS)
    slowest = 0.0
    schemas.catalogue()  # read once, before the clock runs
    for size in sizes:
        variants = _variants(size)
        told = {name: bool(compared()) for name, compared in variants.items()}
        turns: dict[str, Variant] = {name: partial(timed, compared) for name, compared in variants.items()}
        samples = take_turns(turns, rounds, budget=20.0)
        base = summary(samples[JUDGE])["median"]
        for name, taken in samples.items():
            s: dict[str, Any] = summary(taken)
            renames = "no" if told[name] else "yes"
            table.add(keys=size, what=name, renames=renames, **s, ratio=s["median"] / base)
        slowest = max(slowest, float(base))
    largest = f"two configs of {max(sizes):,} keys in under a second"
    table.targets.append(Target(largest, f"{slowest:.2f} s", slowest < 1.0))
    return table
