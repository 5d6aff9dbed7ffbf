"""Which single condition of a replay tells most, by the class of the symptom: what to change first, and what then."""

from __future__ import annotations

from collections.abc import Mapping

from .._rooms import schemas

LADDER: Mapping[str, tuple[str, ...]] = {
    "one_rank": ("other-rank-batch", "single-device", "fp32", "deterministic"),
    "some_ranks": ("other-rank-batch", "single-device", "fp32"),
    "global": ("fp32", "optimizer-reset", "math-sdpa", "no-compile"),
    "one_tensor": ("fp32", "math-sdpa", "no-compile", "deterministic"),
    "after_restart": ("optimizer-reset", "fp32", "no-compile"),
}
"""Class of symptom -> which single conditions tell most, the first first. The names are those of `lineage replay`."""
ANY = ("fp32", "math-sdpa", "no-compile", "deterministic", "single-device")


def ladder(bad: schemas.FirstBad | None) -> list[str]:
    """The single conditions to change, in the order in which they tell most."""
    first = [name for s in (bad.symptoms if bad else ()) for name in LADDER.get(s.cls, ())]
    return list(dict.fromkeys([*first, *ANY]))


def sample(bad: schemas.FirstBad | None) -> str | None:
    """The sample that stands out, as `without-sample` takes it: its place, with several micro-batches `M.N`."""
    if bad is None or not bad.samples:
        return None
    worst = bad.samples[0]
    return f"{worst.micro}.{worst.place}" if worst.micro else str(worst.place)
