"""Short ways to make reported entries."""

from __future__ import annotations

from typing import Any, Literal

from uuid6 import uuid7

import schemas


def entry(
    concept: str,
    before: Any = None,
    after: Any = None,
    *,
    step: int | None = None,
    date: str | None = None,
    restart: int | None = None,
    order: int = 1,
    authority: Literal["machine", "person"] = "person",
    source: str = "logbook.json",
) -> schemas.Reported:
    """Make one entry of a logbook."""
    return schemas.Reported(
        uid=str(uuid7()),
        order=order,
        step=step,
        date=date,
        restart_from=restart,
        concept=concept,
        before=None if before is None else schemas.Scalar.of(before),
        after=None if after is None else schemas.Scalar.of(after),
        source=schemas.Source(name=source, authority=authority),
    )


FIRST = entry("none", step=0, order=0)
"""Something that stands before the entry under test, so that it is not the first of its run."""
