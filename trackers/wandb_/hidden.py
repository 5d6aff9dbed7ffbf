"""What W&B's page leaves out of the user's own values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..base import PREFIX, Page, Shown
from .handle import Handle

NAMES = ("NaN", "Infinity", "-Infinity")
MOST_NAMES = 8


def segment_end(h: Handle, record: Shown, page: Page) -> str | None:
    """Name the metrics whose last value is not finite: W&B's charts leave such points out without a word."""
    summary = getattr(
        h.run.summary, "_as_dict", None
    )  # one question to wandb-core, however many metrics there are
    if record.rank != 0 or h.shared or summary is None:
        return None
    found = not_finite(summary())
    if not found:
        return None
    shown = ", ".join(n if len(n) <= 80 else f"{n[:79]}…" for n in found[:MOST_NAMES])
    more = f" and {len(found) - MOST_NAMES:,} more" if len(found) > MOST_NAMES else ""
    h.summary(
        {f"{PREFIX}notes/LIN-T003": f"the last value of {shown}{more} is not finite: charts leave it out"}
    )
    h.config({})
    return h.place(f"{PREFIX}notes/LIN-T003")


def not_finite(summary: Mapping[str, Any]) -> list[str]:
    """The user's own keys whose value is NaN or an infinity, as the client keeps them."""
    return sorted(
        k
        for k, v in summary.items()
        if not k.startswith(("_", PREFIX)) and (v in NAMES or (isinstance(v, float) and not math.isfinite(v)))
    )
