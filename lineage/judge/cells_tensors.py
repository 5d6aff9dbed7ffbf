"""Abnormal cells by layer and tensor, from the rows of tensors of one rank of a segment."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from .._rooms import schemas
from . import execution
from .detect_family import LAYERS, Family, FamilyFinding
from .execution import STATE
from .layers import TensorRow, layer_of

JUDGED = ("activation", "gradient", "weight", "moment1", "moment2")
"""Kinds of rows whose norms are judged by layer; of the others only what is not finite counts."""
EACH, WHOLE = 32, 8
"""At most so many cells of one kind at one step, and after so many bad steps one for each kind and step: a broken run
stays so, and its millionth NaN says nothing."""


@dataclass(frozen=True)
class LayerNorms:
    """One kind of row at one step: the norm of each layer, in the order in which the rows came."""

    step: int
    kind: str
    norms: Mapping[str, float]
    order: Mapping[str, int]
    """layer -> place of its first tensor in the order of execution"""
    largest: Callable[[str], str | None] = lambda layer: None
    """layer -> the tensor of it with the largest norm, asked for where a layer is named"""


def broken(
    segment: str,
    rank: int,
    rows: Iterable[TensorRow],
    before: Mapping[tuple[str, str], Collection[int]] | None = None,
    searching: Collection[int] = (),
) -> list[schemas.Cell]:
    """Cells of the rows that are not finite.

    `before`: (kind, tensor) -> steps at which it was read. `searching`: steps at which gradients are put down to a
    search for the loss scale.
    """
    by_step: dict[tuple[int, str], list[TensorRow]] = {}
    for r in rows:
        if r.broken and not (r.step in searching and r.kind == "gradient"):
            by_step.setdefault((r.step, r.kind), []).append(r)
    steps: dict[str, int] = {}
    bad: dict[tuple[str, str], set[int]] = {}
    for (step, kind), found in by_step.items():
        for r in found:
            bad.setdefault((kind, r.tensor), set()).add(step)
    out: list[schemas.Cell] = []
    for (step, kind), found in sorted(by_step.items()):
        steps[kind] = steps.get(kind, 0) + 1
        found.sort(key=lambda r: (r.order is None, r.order or 0))
        out += [
            schemas.Cell(
                segment=segment,
                rank=rank,
                step=step,
                signal=kind,
                abnormal="non_finite",
                value=math.inf if r.broken == r.infinite else math.nan,
                text=_broken(r),
                layer=layer_of(r.tensor),
                tensor=r.tensor,
                order=r.order,
                last_good=_good(step, kind, r.tensor, before, bad),
            )
            for r in found[: EACH if steps[kind] <= WHOLE else 1]
        ]
    return out


def _broken(r: TensorRow) -> str:
    if r.broken == r.elements:
        return f"{execution.name(r.kind)} of {r.tensor} is not finite: all {r.elements:,} elements"
    return (
        f"{execution.name(r.kind)} of {r.tensor} is not finite: {r.broken:,} of {r.elements:,} elements, the largest "
        f"finite one {r.largest:.4g}"
    )


def _good(
    step: int,
    kind: str,
    tensor: str,
    before: Mapping[tuple[str, str], Collection[int]] | None,
    bad: Mapping[tuple[str, str], Collection[int]],
) -> int | None:
    """The last step at which what stands after the update was read and was finite."""
    if kind not in STATE or before is None:
        return None
    earlier = [s for s in before.get((kind, tensor), ()) if s < step and s not in bad.get((kind, tensor), ())]
    return max(earlier, default=0)


def out_of_range(segment: str, rank: int, steps: Iterable[LayerNorms]) -> list[schemas.Cell]:
    """Cells of layers whose norm left its range, by the rule for families. The steps must come in order."""
    families: dict[str, Family] = {}
    out = []
    read: dict[str, int] = {}
    for at in steps:
        if at.kind not in JUDGED:
            continue
        found = families.setdefault(at.kind, Family(LAYERS)).update(at.norms)
        members: dict[str, FamilyFinding] = {}
        for f in found:
            if f.abnormal == "out_of_range":
                for m in f.members:
                    members.setdefault(m, f)
        for layer, f in list(members.items())[:EACH]:
            out.append(
                schemas.Cell(
                    segment=segment,
                    rank=rank,
                    step=at.step,
                    signal=at.kind,
                    abnormal="out_of_range",
                    value=at.norms[layer],
                    text=_high(at, layer, f),
                    layer=layer,
                    tensor=at.largest(layer),
                    order=at.order.get(layer),
                    last_good=read.get(at.kind, 0) if at.kind in STATE else None,
                )
            )
        read[at.kind] = at.step
    return out


def _high(at: LayerNorms, layer: str, f: FamilyFinding) -> str:
    text = f"{execution.name(at.kind)} of layer {layer} is {at.norms[layer]:.4g}"
    if f.baseline and f.members[0] == layer:
        text += f", {f.baseline:.4g} was usual ({f.value / f.baseline:.1f} times)"
    others = len(f.members) - 1
    if f.by == "vote":
        text += f"; {others:,} of {f.of:,} layers rose with it"
    tensor = at.largest(layer)
    return text + (f"; most of it in {tensor}" if tensor and tensor != layer else "") + f" ({LAYERS.name})"
