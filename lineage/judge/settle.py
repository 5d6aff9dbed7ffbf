"""Classes that depend on something: what a change of one setting means is decided by what others say.

A micro-batch is only the order of sums while the global batch is kept and the loss is normalised by tokens; a
horizon is operational where the learning rate does not depend on it. `Concept.condition` says so in words.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._rooms import schemas
from . import division
from .asked import Asked
from .requested import Requested
from .sides import Side
from .values import close, same


def leave_open(asked: Requested, concept: str, why: str) -> None:
    """Note that a concept is not shown; reasons are joined."""
    said = asked.not_shown.get(concept)
    asked.not_shown[concept] = f"{said}; {why}" if said else why


def batch(asked: Requested, before: Side, after: Side) -> None:
    """Settle the global batch: what its parts make of it, in samples or tokens."""
    a, b = asked.sides
    if a is None or b is None:
        return
    one, two = (division.batch(x, _world(side)) for x, side in ((a, before), (b, after)))
    kept = division.kept(one, two)
    _drop_same_sizes(asked, a, b)
    if kept == "kept":
        for changes in (asked.changes, asked.one_sided):
            if "global_batch" in changes and set(changes["global_batch"].keys) <= _keys(a, b, "global_batch"):
                del changes["global_batch"]
    elif kept == "changed" and "global_batch" not in asked.changes and not (one.stated and two.stated):
        concept = schemas.catalogue().concept("global_batch")
        asked.one_sided.pop(concept.id, None)
        asked.changes[concept.id] = schemas.Change(
            concept=concept.id,
            cls=concept.cls,
            title=concept.title,
            keys=sorted({k for c in (concept.id, *division.PARTS) for k in _keys(a, b, c)}),
            requested_before=schemas.Scalar.of(one.text),
            requested_after=schemas.Scalar.of(two.text),
            text=f"global batch requested {one.text} -> {two.text}",
        )
    elif kept == "unknown" and any(p in asked.changes for p in division.PARTS):
        why = "the parts of a step changed, and the configs do not tell the global batch on both sides"
        leave_open(asked, "global_batch", why)


def _drop_same_sizes(asked: Requested, a: Asked, b: Asked) -> None:
    """A micro-batch of 8 samples of 2,048 tokens and one of 16,384 tokens are one size."""
    change = asked.changes.get("micro_batch")
    if change is None or not set(change.keys) <= _keys(a, b, "micro_batch"):
        return
    sizes = [_tokens(x) for x in (a, b)]
    if sizes[0] is not None and close(*sizes):
        del asked.changes["micro_batch"]


def _tokens(asked: Asked) -> float | None:
    size, entries = asked.number("micro_batch"), asked.entries("micro_batch")
    if size is None or not entries:
        return None
    length = 1.0 if entries[0].unit == "tokens" else asked.number("seq_len")
    return size * length if length else None


def _keys(a: Asked, b: Asked, concept: str) -> set[str]:
    return {e.key for side in (a, b) for e in side.entries(concept)}


def _world(side: Side) -> float | None:
    held = side.value("world_size")
    if held is not None and isinstance(held.value.plain(), int):
        return float(held.value.plain())
    # an environment without devices does not tell how many ranks there are
    return (
        float(side.environment.world_size) if side.environment and side.environment.world_size > 1 else None
    )


def classes(
    changes: Sequence[schemas.Change], asked: Requested, before: Side, after: Side
) -> list[schemas.Change]:
    """Give each change the class that its condition leads to; what decides it and is not known is not shown."""
    present = {c.concept for c in changes}
    out = []
    for change in changes:
        if change.concept in division.PARTS and change.cls == "B":
            out.append(_part(change, present, asked, before, after))
        elif change.concept == "horizon" and change.cls == "R" and _fixed_rate(asked):
            out.append(_otherwise(change, "the learning rate does not depend on it"))
        else:
            out.append(change)
    return out


def _part(
    change: schemas.Change, present: set[str], asked: Requested, before: Side, after: Side
) -> schemas.Change:
    if "global_batch" in present:
        return change  # that change says what it does
    if change.effective_before is not None and same(change.effective_before, change.effective_after):
        return change  # asked for, not in effect
    norms = [_norm(x, side, change.concept) for x, side in zip(asked.sides, (before, after), strict=True)]
    if "means" in norms:
        return _otherwise(change, "the loss averages the means of micro-batches")
    if None in norms:
        why = "whether the loss of a step is normalised by its tokens is not known, and the step is divided otherwise"
        asked.not_shown.setdefault("loss_norm", why)
    return change


def _norm(asked: Asked | None, side: Side, concept: str) -> division.Norm | None:
    found = division.loss_norm(asked or Asked(), side.effective)
    across = asked.stated("loss_norm", "across_devices") if asked is not None else None
    return "means" if concept == "world_size" and found == "tokens" and across is False else found


def _otherwise(change: schemas.Change, why: str) -> schemas.Change:
    other = schemas.catalogue().concept(change.concept).otherwise
    if other is None:
        return change
    return change.model_copy(update={"cls": other.cls, "text": f"{change.text}; {why}"})


def _fixed_rate(asked: Requested) -> bool:
    """Whether the learning rate of every step is fixed without the horizon: constant, or decaying to a step of its
    own that stands on both sides."""
    a, b = asked.sides
    if a is None or b is None or "lr_schedule" in asked.changes or "decay_horizon" in asked.changes:
        return False
    for side in (a, b):
        style = side.stated("lr_schedule")
        constant = isinstance(style, str) and style.startswith("constant")
        own = [s for (c, s) in side.settings if c == "decay_horizon" and side.number(c, s) is not None]
        if not constant and not own:
            return False
    return True
