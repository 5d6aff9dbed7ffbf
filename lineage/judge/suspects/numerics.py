"""Numerics: overflow, and values that are not finite and were made by an operation from finite ones."""

from __future__ import annotations

import math
from collections.abc import Iterable

from . import sources
from .known import Known, ProbeRow
from .rules import Family, Next, Said

family = Family("numerics", "numerics")

LIMITS = {
    "float8_e4m3fn": 448.0,
    "float8_e5m2": 57344.0,
    "float16": 65504.0,
    "bfloat16": 3.3895e38,
    "float32": 3.4028e38,
}
"""Type -> its largest finite number."""
NARROW = ("float8_e4m3fn", "float8_e5m2", "float16")
CLOSE = 16.0
"""A magnitude within this factor of the type's largest number is close to it."""
CONCEPTS = ("precision", "fp8", "loss_scale", "reduce_precision", "optim_state_precision", "fp32_islands")
LATELY = 50
LARGE = 0.1
"""Norm of an update over that of the weights: a thousandth is usual, and a tenth is none of a healthy run."""


@family.rule("overflow", "for", "exact", sources.MIXED)
def overflow(known: Known) -> Iterable[Said]:
    """Infinities in a type of small range, or magnitudes close to the largest number of their type."""
    row = _first_row(known)
    if known.broken is None or row is None or row.dtype not in LIMITS:
        return
    limit = LIMITS[row.dtype]
    near = [
        r for r in known.rows if r.kind == row.kind and r.dtype == row.dtype and r.largest * CLOSE >= limit
    ]
    close = max(near, key=lambda r: (r.step, r.largest), default=None)
    records = (known.series("tensors", row.step),)
    if row.infinite and row.dtype in NARROW:
        more = ""
        if close is not None:
            where = f"({close.tensor}, step {close.step:,})"
            more = f"; the largest finite magnitude on record is {close.largest:,.4g} {where}"
        yield Said(
            f"{row.kind} of {row.tensor} has {row.infinite:,} infinities of {row.elements:,} elements in "
            f"{row.dtype}, "
            f"whose largest number is {limit:,.5g}{more}",
            records,
        )
    elif close is not None:
        yield Said(
            f"{close.kind} of {close.tensor} had a magnitude of {close.largest:,.4g} at step "
            f"{close.step:,}, close to "
            f"the largest number of {row.dtype} ({limit:,.4g})",
            (known.series("tensors", close.step),),
        )


@family.rule("made-there", "for", "exact", sources.NUMERICAL)
def made_there(known: Known) -> Iterable[Said]:
    """Outputs or a loss that are not finite where all that was computed before them is."""
    c = known.broken
    if c is None or c.signal not in ("activation", "loss"):
        return
    outputs = known.rows_of("activation", c.step)
    fine = [r for r in outputs if not r.broken]
    state = _state(known)
    if c.signal == "loss" and outputs and len(fine) == len(outputs):
        yield Said(
            f"the outputs of all {len(outputs):,} blocks are finite at step {c.step:,}, and the loss is not{state}: it "
            "was made after them",
            (known.series("tensors", c.step), known.series("probes", c.step)),
        )
    first = next((r for r in outputs if r.broken), None)
    if c.signal != "activation" or first is None:
        return
    place = outputs.index(first)
    if place == 0 and not state:
        return  # neither what went in nor what it was computed with is known
    before = f"the outputs of the {place:,} blocks before it are finite" if place else "it is the first block"
    kinds = f"{first.n_nan:,} NaN, {first.infinite:,} infinities of {first.elements:,} elements"
    yield Said(
        f"the output of {first.tensor} is the first that is not finite ({kinds}); {before}{state}: it was made there",
        (known.series("tensors", c.step),),
    )


@family.rule("backward", "for", "shape", sources.DEEP)
def backward(known: Known) -> Iterable[Said]:
    """Gradients that are not finite where loss and outputs are."""
    c = known.broken
    if c is None or c.signal not in ("gradient", "grad_norm_local"):
        return
    loss = known.values("loss", c.step).get(c.rank)
    if loss is not None and math.isfinite(loss):
        yield Said(
            f"the loss of rank {c.rank} is finite at step {c.step:,} ({loss:.4g}), and a gradient is not ({c.text}): "
            "it was made in the backward pass",
            (known.series("probes", c.step, c.rank),),
        )


@family.rule("loss-scale", "for", "timing", sources.SCALER)
def loss_scale(known: Known) -> Iterable[Said]:
    """The loss scale fell by a factor of 16 or more, or updates were skipped often, in the steps before."""
    scales = [(s, v) for s, v in known.course("loss_scale") if known.step - s <= LATELY and v > 0]
    if len(scales) > 1 and scales[-1][1] * 16 <= max(v for _, v in scales):
        top = max(scales, key=lambda p: p[1])
        yield Said(
            f"the loss scale fell from {top[1]:,.6g} (step {top[0]:,}) to {scales[-1][1]:,.6g} (step "
            f"{scales[-1][0]:,})",
            (known.series("probes"),),
        )
    skipped = [s for s, v in known.course("update_skipped") if v > 0 and known.step - s <= LATELY]
    if len(skipped) >= 3:
        yield Said(
            f"{len(skipped)} of the last {LATELY} updates were skipped for overflowing gradients, the last at step "
            f"{skipped[-1]:,}",
            (known.series("probes", skipped[-1]),),
        )


@family.rule("precision-changed", "for", "timing", sources.NUMERICAL)
def precision_changed(known: Known) -> Iterable[Said]:
    """Numeric precision or loss scaling changed in the updates before."""
    for b, c in known.changes(*CONCEPTS):
        yield Said(f"since step {b.step:,}: {c.text}; the bad step is {known.after(b)}", (b.record,))


@family.rule("growth", "for", "shape", sources.WORTSMAN)
def growth(known: Known) -> Iterable[Said]:
    """Magnitudes of the tensor where it began grew by a factor of four or more over the steps before."""
    c = known.broken
    if c is None or c.signal not in ("activation", "gradient", "loss", "grad_norm_local"):
        return
    name = c.tensor or c.layer
    course: dict[str, list[ProbeRow]] = {}
    for r in known.rows:
        if r.kind in ("activation", "gradient") and not r.broken and name in (None, r.tensor):
            course.setdefault(f"{r.kind} of {r.tensor}", []).append(r)
    for what, found in course.items():
        found.sort(key=lambda r: r.step)
        if len(found) < 8 or found[0].norm <= 0:
            continue
        first = max(3, len(found) // 4)
        early, late = (sorted(r.norm / r.scale for r in part) for part in (found[:first], found[-3:]))
        if late[0] > 4 * early[len(early) // 2]:
            yield Said(
                f"the norm of the {what} grew from {early[len(early) // 2]:.4g} to {late[0]:.4g} between step "
                f"{found[0].step:,} and {found[-1].step:,}",
                (known.series("tensors", found[-1].step),),
            )
            return


@family.rule("made-by-updates", "against", "exact", sources.WORTSMAN)
def made_by_updates(known: Known) -> Iterable[Said]:
    """In the updates before, one was a tenth or more of the weights' norm: what became too large was made so by it."""
    if known.broken is None:
        return
    weights = dict(known.course("weight_norm", known.until))
    sizes = [
        (u / weights[s], s)
        for s, u in known.course("update_norm", known.until)
        if weights.get(s, 0.0) > 0
        and known.broken.step - LATELY <= s < known.broken.step
        and math.isfinite(u)
    ]
    share, step = max(sizes, default=(0.0, 0))
    if share >= LARGE:
        yield Said(
            f"the update of step {step:,} had {share:.2g} of the norm of all weights: what is not finite at step "
            f"{known.broken.step:,} may have been made too large by the updates",
            (known.series("probes", step),),
        )


@family.rule("nothing-non-finite", "against", "shape", sources.DEEP)
def nothing_non_finite(known: Known) -> Iterable[Said]:
    """What is abnormal at the bad step is finite: there is no overflow and no NaN in it."""
    if known.broken is None and known.cell.abnormal == "out_of_range":
        yield Said(
            f"all that is abnormal at step {known.step:,} is finite: neither an overflow nor a NaN is in it; lost "
            "precision is not excluded by that",
            (known.series("probes"),),
        )


@family.rule("far-from-the-limit", "against", "shape", sources.MIXED)
def far_from_the_limit(known: Known) -> Iterable[Said]:
    """The magnitudes of the steps before lie far below the largest number of their type."""
    row = _first_row(known)
    if known.broken is None or row is None or list(overflow(known)) or row.dtype in NARROW:
        return
    limit = LIMITS.get(row.dtype)
    same = [r for r in known.rows if r.kind == row.kind and r.dtype == row.dtype]
    if limit is None or not same:
        return
    top = max(same, key=lambda r: r.largest)
    if top.largest * 1e6 < limit:
        yield Said(
            f"the largest {row.kind} on record up to step {row.step:,} is {top.largest:,.4g} ({top.tensor}), far "
            f"below the {limit:,.4g} of {row.dtype}: no overflow; a division by zero or a logarithm needs none",
            (known.series("tensors", top.step),),
        )


@family.rule("replicas-differ", "against", "shape", sources.DDP)
def replicas_differ(known: Known) -> Iterable[Said]:
    """Copies differ between ranks that made the same update: arithmetic that is the same on all ranks leaves them
    equal.
    """
    if known.replicas_differ:
        yield Said(
            f"copies of {known.cell.tensor} differ between ranks; the same operations on the same values, where "
            "they are deterministic, leave them equal",
            (known.series("states"),),
        )


def _first_row(known: Known) -> ProbeRow | None:
    """The row of the first cell that is not finite, else the first such row of its step."""
    c = known.broken
    here = [r for r in known.rows if c is not None and r.step == c.step and r.broken]
    mine = [r for r in here if c is not None and r.kind == c.signal and r.tensor in (c.tensor, c.layer)]
    order = {"activation": 0, "gradient": 1}
    here.sort(key=lambda r: (order.get(r.kind, 2), r.order is None, r.order or 0))
    return next(iter([*mine, *here]), None)


def _state(known: Known) -> str:
    """That the weights were finite when they were last read, in words; empty where they were not, or never read."""
    step = known.broken.step if known.broken is not None else known.step
    held = [r for r in known.rows if r.kind == "weight" and r.step < step]
    last = max((r.step for r in held), default=None)
    if last is None or any(r.broken for r in held if r.step == last):
        return ""
    return f", and its weights were finite when they were last read (step {last:,})"


@family.check
def _fp32(known: Known) -> Next | None:
    if known.tried("fp32"):
        return None
    return Next(
        "the step again in FP32, with nothing else changed: clean, and the precision has a part in it; the same "
        "again speaks against it",
        sources.GUIDE,
        known.replay("fp32"),
    )


@family.check
def _hooks(known: Known) -> Next | None:
    if known.tried("anomaly-mode", "eager-hooks"):
        return None
    return Next(
        "the step again with every module's output read: the largest finite magnitude before the first bad one "
        "tells an overflow from a NaN that was made there",
        sources.DEEP,
        known.replay("eager-hooks"),
    )


@family.check
def _sdpa(known: Known) -> Next | None:
    return Next(
        "the step again with fused attention off: which kernel it needs",
        sources.GUIDE,
        known.replay("math-sdpa"),
    )


@family.gap
def _no_outputs(known: Known) -> Iterable[str]:
    if known.broken is not None and not any(r.kind == "activation" for r in known.rows):
        yield (
            "which block's output it began in, and how large values were before: "
            "`lineage.attach(..., activations=True)` reads outputs, a replay reads every module"
        )


@family.gap
def _no_rows(known: Known) -> Iterable[str]:
    if not known.rows:
        yield f"magnitudes and types of rank {known.rank}'s tensors: `lineage.attach(..., model=model)` reads gradients"
