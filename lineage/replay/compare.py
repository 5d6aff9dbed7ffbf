"""What a replay gave beside what was recorded: numbers and gradients, to the last bit."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .._rooms import schemas
from ..bundle.reading import Bundle
from .step import Step

SIGNALS = (
    "loss",
    "grad_norm_local",
    "grad_norm",
    "loss_scale",
    "moment1_norm",
    "moment2_norm",
    "update_norm",
    "weight_norm",
)
AFTER = ("moment1_norm", "moment2_norm", "update_norm", "weight_norm")
MOST = 64


def same(a: float, b: float) -> bool:
    """Whether two numbers are equal; NaN equals NaN."""
    return a == b or (math.isnan(a) and math.isnan(b))


def values(bundle: Bundle, runs: Sequence[Step], *, alone: bool) -> list[schemas.ReplayValue]:
    """The signals of the step. `alone`: one device makes the step of one rank; what is reduced cannot be compared."""
    recorded = bundle.signals(bundle.step)
    no_update = 1.0 in (recorded.get("update_held_back"), recorded.get("update_skipped"))
    if no_update or bundle.manifest.done < bundle.step:  # a replay makes it all the same
        recorded = {k: v for k, v in recorded.items() if k not in AFTER}
    out = []
    for name in SIGNALS:
        given = [r.signals[name] for r in runs if name in r.signals]
        if not given:
            continue
        known = recorded.get(name)
        reduced = alone and name not in ("loss", "grad_norm_local", "loss_scale")
        finite = [v for v in given if math.isfinite(v)]
        out.append(
            schemas.ReplayValue(
                signal=name,
                recorded=known,
                replayed=given,
                equal=None if known is None or reduced else all(same(v, known) for v in given),
                spread=max(finite) - min(finite) if len(finite) > 1 else None,
            )
        )
    return out


def gradients(
    bundle: Bundle, run: Step, step: int | None = None
) -> tuple[int, int, list[schemas.ReplayTensor]]:
    """(gradients that both have, how many are equal in every number that was recorded, those that are not)."""
    recorded = bundle.gradients(bundle.step if step is None else step)
    compared, equal, out = 0, 0, []
    for name, row in recorded.items():
        found = run.gradients.get(name)
        if found is None:
            continue
        compared += 1
        broken = [int(row[k] or 0) for k in ("n_nan", "n_posinf", "n_neginf")]
        scale = float(row.get("scale") or 1.0)
        alike = (
            same(row["sumsq"], found.sumsq)
            and same(row["largest"] if row["largest"] is not None else math.nan, found.largest)
            and broken == [found.n_nan, found.n_posinf, found.n_neginf]
            and scale == run.scale
        )
        if alike:
            equal += 1
            continue
        out.append(
            schemas.ReplayTensor(
                tensor=name,
                recorded_norm=math.sqrt(row["sumsq"]) / scale,
                replayed_norm=found.norm_of_finite / run.scale,
                recorded_broken=sum(broken),
                replayed_broken=found.n_nan + found.n_posinf + found.n_neginf,
            )
        )
    return compared, equal, out[:MOST]


def first_broken(bundle: Bundle, run: Step) -> tuple[str | None, str | None]:
    """(recorded, replayed) first gradient in the order of arrival that is not finite."""
    rows = [
        r
        for r in bundle.gradients(bundle.step).values()
        if (r["n_nan"] or 0) + (r["n_posinf"] or 0) + (r["n_neginf"] or 0)
    ]
    rows.sort(key=lambda r: (r["order"] is None, r["order"] or 0))
    here = [n for n in run.order if n in run.gradients and not run.gradients[n].finite]
    return (rows[0]["tensor"] if rows else None), (here[0] if here else None)


def before(bundle: Bundle, runs: Sequence[Step]) -> list[str]:
    """What differs from the record in the updates that were made again before the step."""
    out = []
    for run in runs:
        known = bundle.signals(run.step)
        for name in ("loss", "grad_norm_local"):
            here = run.signals.get(name)
            if name in known and here is not None and not same(known[name], here):
                was = f"{known[name]:.9g} was recorded"
                out.append(f"step {run.step:,} gave {name} {here:.9g} when it was made again, {was}")
    return out
