"""What the gradients and one update of each parameter show: none at all, shrinking by depth, too large, too small."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from .._rooms import schemas
from .layers import layer_of
from .rung_answers import answer, some

SHRINKS = 1e3
"""Times by which the first third of a stack of layers may differ from its last third, by root mean square."""
LARGE, SMALL = 0.1, 1e-7
"""Update over weight, by norm, of one step."""
_STACKED = re.compile(r"^(?P<stack>.*?)\.?(?P<place>\d+)$")
SOURCE = {
    "none": "requires_grad without a gradient after the backward pass of this batch",
    "depth": "geometric mean of the root mean square per layer, first third against last third of a stack; the bound "
    "of a thousand is a convention of this check",
    "ratio": "about 1e-3 is usual: A. Karpathy, nn-zero-to-hero (2022), lecture 4; the bounds are a convention of this "
    "check",
    "decay": "norms, biases and other vectors are left out of weight decay by most recipes; embeddings by some",
}


@dataclass(frozen=True)
class Row:
    """One parameter."""

    name: str
    elements: int
    weight: float
    """L2 norm before the update"""
    gradient: float | None
    """L2 norm; None where there was none"""
    broken: int = 0
    """elements of the gradient that are not finite"""
    update: float | None = None
    """L2 norm of what the update changed; None where no update was made, or none of it"""
    way: str | None = None
    """how the update is known: `measured`, or `proxy: lr x gradient norm`"""
    decay: float | None = None
    """weight decay of its group"""
    trainable: bool = True
    kind: str = "matrix"
    """matrix, vector or embedding"""

    @property
    def ratio(self) -> float | None:
        """Update over weight."""
        return None if self.update is None or not self.weight else self.update / self.weight


def answers(rows: Sequence[Row]) -> list[schemas.Answer]:
    """Each question over all parameters."""
    return [_none(rows), _finite(rows), _depth(rows), _ratio(rows), _decay(rows)]


def by_layer(rows: Sequence[Row]) -> dict[str, float]:
    """Layer -> root mean square of its gradient's elements; layers without one are left out."""
    sums: dict[str, tuple[float, int]] = {}
    for r in rows:
        if r.gradient is not None:
            total, n = sums.get(layer_of(r.name), (0.0, 0))
            sums[layer_of(r.name)] = total + r.gradient**2, n + r.elements
    return {layer: math.sqrt(total / n) for layer, (total, n) in sums.items() if n}


def _none(rows: Sequence[Row]) -> schemas.Answer:
    trainable = [r for r in rows if r.trainable]
    never = [r.name for r in trainable if r.gradient is None]
    zero = [r.name for r in trainable if r.gradient == 0 and not r.broken]
    if not never and not zero:
        return _made(
            "gradient_arrives", "pass", f"all {len(trainable):,} trainable parameters have a gradient", "none"
        )
    said = [
        f"{len(found):,} {words}: {some(found)}"
        for found, words in ((never, "have no gradient"), (zero, "have none but zeros"))
        if found
    ]
    look = [
        "parts that this batch does not use",
        "a detach, no_grad or .data on the way",
        "frozen by mistake",
    ]
    return _made("gradient_arrives", "fail", "; ".join(said), "none", never + zero, look)


def _finite(rows: Sequence[Row]) -> schemas.Answer:
    broken = [r.name for r in rows if r.broken]
    if not broken:
        return _made("gradient_is_finite", "pass", "every gradient is finite", "none")
    text = f"{len(broken):,} gradients have elements that are not finite: {some(broken)}"
    return _made("gradient_is_finite", "fail", text, "none", broken)


def _depth(rows: Sequence[Row]) -> schemas.Answer:
    """The deepest stack of numbered layers: what arrives at its beginning beside what arrives at its end."""
    stacks: dict[str, list[tuple[int, str, float]]] = {}
    for layer, rms in by_layer(rows).items():
        match = _STACKED.match(layer)
        if match and rms > 0 and math.isfinite(rms):
            stacks.setdefault(match["stack"], []).append((int(match["place"]), layer, rms))
    name, stack = max(stacks.items(), key=lambda s: len(s[1]), default=("", []))
    if len(stack) < 3:
        return _made(
            "gradient_by_depth", "cannot_tell", "no stack of three numbered layers with gradients", "depth"
        )
    stack.sort()
    third = max(1, len(stack) // 3)
    first, last = _mean([s[2] for s in stack[:third]]), _mean([s[2] for s in stack[-third:]])
    values = {"layers": [s[1] for s in stack], "rms": [s[2] for s in stack], "first_over_last": first / last}
    ratio = f"{first / last:.3g} times as large at the beginning as at the end"
    text = f"along {len(stack)} layers of {name or 'the model'} the gradient is {ratio}"
    outcome: schemas.Outcome = "pass" if 1 / SHRINKS < first / last < SHRINKS else "fail"
    look = [
        "the scale of the initialisation by depth, and of residual branches",
        "a norm that is missing, or stands after the sum and not before the branch",
    ]
    return _made("gradient_by_depth", outcome, text, "depth", [], look if outcome == "fail" else [], values)


def _ratio(rows: Sequence[Row]) -> schemas.Answer:
    known = [(r, r.ratio) for r in rows if r.ratio is not None and r.kind != "vector"]
    if not known:
        return _made("update_over_weight", "cannot_tell", "no update was made", "ratio")
    ratios = sorted(float(x) for _, x in known if x is not None)
    large = [r.name for r, x in known if x is not None and x > LARGE]
    small = [r.name for r, x in known if x is not None and x < SMALL]
    ways = sorted({str(r.way) for r, _ in known})
    middle = ratios[len(ratios) // 2]
    values = {"median": middle, "lowest": ratios[0], "highest": ratios[-1], "way": ways}
    text = f"update over weight of {len(known):,} matrices: {ratios[0]:.2g} to {ratios[-1]:.2g}, median {middle:.2g}"
    text += f" ({', '.join(ways)})"
    if large or small:
        said = [
            f"{len(f):,} {w}: {some(f)}"
            for f, w in ((large, f"above {LARGE:g}"), (small, f"below {SMALL:g}"))
            if f
        ]
        look = [
            "the learning rate of their group, and where a warm-up stands",
            "clipping that shrinks every update",
        ]
        return _made(
            "update_over_weight", "fail", f"{text}; {'; '.join(said)}", "ratio", large + small, look, values
        )
    return _made("update_over_weight", "pass", text, "ratio", [], [], values)


def _decay(rows: Sequence[Row]) -> schemas.Answer:
    held = [r for r in rows if r.decay is not None]
    if not held:
        return _made("decay_on_vectors", "cannot_tell", "no optimizer was given", "decay")
    decayed = [r.name for r in held if r.decay and r.kind == "vector"]
    embeddings = [r.name for r in held if r.decay and r.kind == "embedding"]
    if not decayed and not embeddings:
        return _made("decay_on_vectors", "pass", "no norm, bias or embedding has weight decay", "decay")
    said = [
        f"{len(found):,} {words}: {some(found)}"
        for found, words in ((decayed, "norms, biases and vectors"), (embeddings, "embeddings"))
        if found
    ]
    text = f"weight decay on {'; '.join(said)}"
    outcome: schemas.Outcome = "fail" if decayed else "cannot_tell"
    if not decayed:
        text += ". Recipes differ on embeddings: whether it is meant, only the recipe tells"
    look = ["a group with weight_decay=0 for them; if it is meant, nothing"] if decayed else []
    return _made("decay_on_vectors", outcome, text, "decay", decayed + embeddings, look)


def _mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def _made(
    question: str,
    outcome: schemas.Outcome,
    text: str,
    source: str,
    names: Sequence[str] = (),
    look_at: Sequence[str] = (),
    values: dict[str, object] | None = None,
) -> schemas.Answer:
    return answer(question, outcome, text, names=names, values=values, source=SOURCE[source], look_at=look_at)
