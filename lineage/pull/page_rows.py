"""A page's rows as a training log, so that they are cut into segments and written as every imported log is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from .._rooms import trackers
from ..imports.logs.rows import Kind, Note, Row, Told
from .values import stepped

_EVALUATION = re.compile(r"(?:^|[/_. ])(?:eval|evaluation|val|valid|validation|test)(?:[/_. ]|$)", re.I)


class PageRows:
    """Reads one page. What it has read is kept: number of a row -> its step."""

    name: ClassVar[str] = "tracker"
    place: ClassVar[str] = "row"
    axis: ClassVar[str] = "the step that the tracker has"
    signals: ClassVar[dict[str, str]] = {}
    about: ClassVar[tuple[str, ...]] = (
        "read from the tracker's page: values of one rank, or of all after the reduction, which the page does not tell",
    )
    averaged: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, page: trackers.Held) -> None:
        self.page = page
        self.steps: list[tuple[int, int]] = []
        self.latest: dict[str, int] = {}
        self.highest: dict[str, int] = {}

    def read(self, path: Path, told: Told) -> Iterator[Row | Note]:
        """Give all rows in the order in which they were logged."""
        for gap in self.page.about().gaps:
            told.say(gap)
        for row in stepped(self.page):
            told.recognised += 1
            told.lines = row.number
            self.steps.append((row.number, row.step))
            for key in row.values:
                self.latest[key] = row.step
                self.highest[key] = max(self.highest.get(key, row.step), row.step)
            kind: Kind = "eval" if all(_EVALUATION.search(k) for k in row.values) else "train"
            yield Row(row.step, dict(row.values), row.number, kind, at=row.at)

    def step_after(self, number: int) -> int | None:
        """The step of the first row from a number on; None after the last."""
        return next((step for n, step in self.steps if n >= number), None)

    def rewound(self) -> list[str]:
        """Keys whose value of the highest step, which pages show as the latest, was not logged last."""
        keys = sorted(k for k, step in self.latest.items() if step < self.highest[k])
        if not keys:
            return []
        first, more = keys[0], f" and {len(keys) - 1} further keys" if len(keys) > 1 else ""
        return [
            f"{first}{more}: the value of the highest step, {self.highest[first]:,}, which MLflow's page shows as the "
            f"latest, is older than the one of step {self.latest[first]:,}: training went back"
        ]


class MlflowRows(PageRows):
    """An MLflow run's metrics."""

    name: ClassVar[str] = "mlflow"


class WandbRows(PageRows):
    """A W&B run's history."""

    name: ClassVar[str] = "wandb"


def of(page: trackers.Held) -> PageRows:
    """The reader of a page."""
    return {"mlflow": MlflowRows, "wandb": WandbRows}.get(page.tracker, PageRows)(page)
