"""What the rows of tensors show at a first bad cell: which gradients are not finite, which layers left their range."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .detect_family import LAYERS, WORST, Family, FamilyFinding

BEFORE = 80
"""Steps before the bad one from which a layer's usual norm is taken: the rule's window, and its warm-up."""
NEEDED = LAYERS.warmup + WORST.warmup
"""Steps before the bad one without which the rule is silent: a layer's own, then those of the worst of them."""


@dataclass(frozen=True)
class TensorRow:
    """One tensor at one step, as a probe read it."""

    step: int
    kind: str
    tensor: str
    order: int | None
    norm: float
    """of the finite elements, without the loss scale"""
    largest: float
    """largest finite magnitude"""
    broken: int
    """elements that are not finite"""
    elements: int
    infinite: int = 0
    """of the elements that are not finite, those that are infinities"""


def layer_of(name: str) -> str:
    """The layer of a parameter: its name up to the first number, else without its last part.

    `blocks.3.attn.qkv.weight` is of `blocks.3`, `head.weight` of `head`, `scale` of `scale`.
    """
    parts = name.split(".")
    numbered = next((i for i, part in enumerate(parts) if part.isdigit()), None)
    if numbered is not None:
        return ".".join(parts[: numbered + 1])
    return ".".join(parts[:-1]) or name


def norms_by_layer(rows: Iterable[TensorRow]) -> dict[str, float]:
    """L2 norm of the gradient of each layer at one step; NaN where any of it is not finite."""
    sums: dict[str, float] = {}
    for r in rows:
        layer = layer_of(r.tensor)
        sums[layer] = sums.get(layer, 0.0) + (math.nan if r.broken else r.norm * r.norm)
    return {layer: math.sqrt(total) for layer, total in sums.items()}


def at_step(rows: Sequence[TensorRow], step: int) -> list[str]:
    """What the rows of one rank show of a step, in words; the steps before it give what was usual.

    Empty where nothing was read at that step. The order in which gradients arrive is that of the backward pass: it
    tells no cause, since one broken loss breaks all of them.
    """
    out: list[str] = []
    for kind, what in (("activation", "outputs of blocks"), ("gradient", "gradients"), ("weight", "weights")):
        here = [r for r in rows if (r.kind, r.step) == (kind, step)]
        broken = sorted((r for r in here if r.broken), key=lambda r: (r.order is None, r.order or 0))
        if broken:
            out.append(_broken(what, broken, len(here)))
    gradients = [r for r in rows if r.kind == "gradient"]
    if any(r.step == step for r in gradients) and not out:
        out += [_said(f, step) for f in _judged(gradients, step)] or [_nothing(gradients, step)]
    return out


def _nothing(gradients: Sequence[TensorRow], step: int) -> str:
    """That no layer stands out, where there were steps enough to tell; else that there were not."""
    before = len({r.step for r in gradients if r.step < step})
    if before < NEEDED:
        return (
            f"step {step:,}: {before} steps before it are too few to say what is usual for a layer "
            f"({NEEDED} are needed)"
        )
    return f"step {step:,}: no layer stands out from the others and from its own past ({LAYERS.name})"


def _broken(what: str, broken: Sequence[TensorRow], of: int) -> str:
    first = broken[0]
    part = (
        "all elements"
        if first.broken == first.elements
        else f"{first.broken:,} of {first.elements:,} elements"
    )
    rest = "" if first.broken == first.elements else f", the largest finite one {first.largest:.4g}"
    names = ", ".join(r.tensor for r in broken[:3]) + (
        f" and {len(broken) - 3} more" if len(broken) > 3 else ""
    )
    order = "in order " if first.order is not None else ""  # gradients alone tell when they arrived
    return f"{what}: {len(broken)} of {of} not finite, {order}{names}; {first.tensor}: {part}{rest}"


def _judged(gradients: Sequence[TensorRow], step: int) -> list[FamilyFinding]:
    """Run the detector of families over the steps up to this one; what it finds at this one."""
    by_step: dict[int, list[TensorRow]] = {}
    for r in gradients:
        if r.step <= step:
            by_step.setdefault(r.step, []).append(r)
    family, found = Family(LAYERS), []
    for at in sorted(by_step):
        found = family.update(norms_by_layer(by_step[at]))
    together = {m for f in found if f.by == "vote" for m in f.members}
    return [f for f in found if f.by == "vote" or not together.issuperset(f.members)]


def _said(f: FamilyFinding, step: int) -> str:
    names = ", ".join(f.members[:4]) + (f" and {len(f.members) - 4} more" if len(f.members) > 4 else "")
    together = " rose together" if f.by == "vote" else ""
    usual = ""
    if f.baseline:
        usual = f", {f.baseline:.4g} was usual ({f.value / f.baseline:.1f} times)"
    return (
        f"step {step:,}: {len(f.members)} of {f.of} layers{together}: {names}; "
        f"gradient norm of {f.members[0]} {f.value:.4g}{usual} ({LAYERS.name})"
    )
