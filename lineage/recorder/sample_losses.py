"""Losses of single samples, as the loop gives them: a column of the series `samples`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..capture.batch_facts import BatchFacts, hex_of
from ..capture.later import Later
from ..ledger.columns import Columns

MOST = 65_536
"""Losses that one call takes."""
BEYOND = 8
"""Samples past the setting `samples` that get a row all the same: those with the worst losses."""


class Given:
    """The losses of one micro-batch on their way from the device, or as numbers."""

    def __init__(self, values: Any) -> None:
        """Take one loss per sample. Raises `ValueError` for another shape, and for too many."""
        if hasattr(values, "detach"):
            if values.dim() != 1:
                raise ValueError(
                    f"one loss per sample is needed, and the shape is {tuple(values.shape)}: give "
                    "loss.reshape(batch, -1).mean(1)"
                )
            self._check(values.numel())
            self._later: Later | None = Later(values.detach().clone().float())
            self._plain: list[float] = []
        else:
            self._plain = [float(v) for v in values]
            self._check(len(self._plain))
            self._later = None

    @staticmethod
    def _check(n: int) -> None:
        if n > MOST:
            raise ValueError(f"{n:,} losses were given for one micro-batch; at most {MOST:,} are taken")

    def ready(self) -> bool:
        """Whether they have arrived."""
        return self._later is None or self._later.ready()

    def values(self) -> list[float]:
        """The losses, in the order of the samples. Call it only when `ready()`."""
        return self._plain if self._later is None else self._later.values()


def kept(n: int, losses: Sequence[float], most: int) -> list[int]:
    """The places that get a row: the first `most` of `n`, and the worst losses beyond."""
    beyond = sorted(range(min(n, most), len(losses)), key=lambda i: _badness(losses[i]), reverse=True)
    worst = beyond[:BEYOND] if most > 0 else []
    return [*range(min(n, most)), *sorted(worst)]


def _badness(loss: float) -> float:
    return loss if math.isfinite(loss) else math.inf


def columns(
    segment: str,
    rank: int,
    step: int,
    micro: int,
    facts: BatchFacts | None,
    losses: Sequence[float],
    most: int,
) -> Columns | None:
    """The rows of the samples of a micro-batch, with their losses where they were given; None where there are none."""
    known = len(facts.rows) if facts is not None and facts.rows.keys else 0
    places = kept(max(known, len(losses)), losses, most)
    if not places:
        return None
    rows = facts.rows if facts is not None and known else None

    def of(held: Sequence[Any] | None) -> list[Any] | None:
        return [held[i] if i < len(held) else None for i in places] if held is not None else None

    domains = of(rows.domains) if rows is not None else None
    keys = of(rows.keys) if rows is not None else None
    digests = [None if k is None else hex_of(k) for k in keys] if keys is not None else None
    out: dict[str, Any] = {
        "segment": segment,
        "rank": rank,
        "step": step,
        "micro": micro,
        "place": places,
        "digest": digests,
        "sample": of(rows.ids) if rows is not None else None,
        "tokens": of(rows.tokens) if rows is not None else None,
        "domain": domains if domains is not None else (facts.whole_domain if facts is not None else None),
    }
    if losses:
        found = out["loss"] = of(losses) or []
        out["n_nan"] = [None if v is None else int(math.isnan(v)) for v in found]
        out["n_posinf"] = [None if v is None else int(v == math.inf) for v in found]
        out["n_neginf"] = [None if v is None else int(v == -math.inf) for v in found]
    return out
