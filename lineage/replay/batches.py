"""Batches that a replay changes: those of another rank, or one without a sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..bundle.reading import Bundle, within
from ..capture.batch import Fingerprint, fingerprint
from ..capture.batch_containers import is_tensor
from .conditions import Change, ConditionError, Evidence


def other_rank(bundle: Bundle, change: Change) -> Bundle:
    """The bundle of another rank at the same step. Raises `ConditionError`."""
    mine = bundle.manifest.rank
    others = [
        b for b in within(Path(bundle.path).parent) if b.step == bundle.step and b.manifest.rank != mine
    ]
    found = [b for b in others if b.step in b.steps()]
    found.sort(key=lambda b: (b.manifest.rank < mine, b.manifest.rank))
    if change.argument is not None:
        found = [b for b in found if b.manifest.rank == int(change.argument)]
    if not found:
        which = f"rank {change.argument}" if change.argument is not None else "another rank"
        raise ConditionError(
            f"other-rank-batch: there is no bundle of {which} at step {bundle.step:,} beside {bundle.path}. A rank "
            "writes one where it has an alarm itself, as all have once a NaN is reduced"
        )
    return found[0]


def without(batches: list[Any], change: Change, samples: int | None = None) -> tuple[list[Any], Evidence]:
    """The micro-batches without one sample. Raises `ConditionError` where the batch is not divided by sample."""
    micro, _, place = str(change.argument).rpartition(".")
    at, which = int(micro or 0), int(place)
    if at >= len(batches):
        raise ConditionError(f"without-sample: there is no micro-batch {at}; the step has {len(batches)}")
    count = samples or rows(batches[at])
    if count is None:
        raise ConditionError(
            "without-sample: nothing in this batch is one row per sample, such as a packed sequence"
        )
    if which >= count:
        raise ConditionError(
            f"without-sample: there is no sample {which}; the micro-batch has {count}, from 0"
        )
    if count == 1:
        raise ConditionError("without-sample: the micro-batch has one sample, and none would be left")
    taken: list[str] = []
    cut = _cut("", batches[at], count, which, taken)
    out = [*batches[:at], cut, *batches[at + 1 :]]
    if not taken:
        return out, ("no", "nothing in the batch is one row per sample")
    where = f"sample {which} of micro-batch {at} was taken out of {', '.join(taken[:4])}"
    return out, ("yes", f"{where}; {count - 1} are left")


def rows(batch: Any) -> int | None:
    """How many samples a batch has, by the first dimension that most of its tensors share."""
    counts: Counter[int] = Counter()
    _count(batch, counts)
    return counts.most_common(1)[0][0] if counts else None


def _count(value: Any, counts: Counter[int]) -> None:
    if is_tensor(value):
        if value.dim() > 0:
            counts[int(value.size(0))] += 1
    elif isinstance(value, Mapping):
        for v in value.values():
            _count(v, counts)
    elif isinstance(value, list | tuple):
        for v in value:
            _count(v, counts)
    elif hasattr(value, "__dict__"):
        for v in vars(value).values():
            _count(v, counts)


def _cut(path: str, value: Any, count: int, which: int, taken: list[str]) -> Any:
    if is_tensor(value):
        if getattr(value, "is_nested", False):
            import torch

            parts = list(value.unbind())
            if len(parts) != count:
                return value
            taken.append(path or "the batch")
            return torch.nested.nested_tensor(parts[:which] + parts[which + 1 :], layout=value.layout)
        if value.dim() == 0 or value.size(0) != count:
            return value
        import torch

        taken.append(path or "the batch")
        return torch.cat([value[:which], value[which + 1 :]])
    if isinstance(value, Mapping):
        made = {k: _cut(f"{path}.{k}".lstrip("."), v, count, which, taken) for k, v in value.items()}
        return made if type(value) is dict else type(value)(made)  # type: ignore[call-arg]
    if isinstance(value, list | tuple):
        if len(value) == count and not any(is_tensor(v) and v.dim() > 1 for v in value):
            taken.append(path or "the batch")
            return type(value)([*value[:which], *value[which + 1 :]])
        parts = [_cut(f"{path}.{i}".lstrip("."), v, count, which, taken) for i, v in enumerate(value)]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def prints(batches: list[Any]) -> list[str]:
    """The fingerprints of micro-batches, as the series has them."""
    found: list[Fingerprint] = [fingerprint(b) for b in batches]
    return [f.digest() for f in found]


def fed(bundle: Bundle, batches: list[Any]) -> list[str]:
    """What keeps the kept batches of the bad step from being those that were fed, in words."""
    kept = next(s for s in bundle.manifest.steps if s.step == bundle.step)
    out = []
    for b, found in zip(kept.batches, prints(batches), strict=False):
        if b.same is False:
            out.append(
                f"micro-batch {b.micro} is not what was fed: the loop wrote into it before it was kept"
            )
        elif b.fingerprint is not None and b.same and found != b.fingerprint:
            out.append(f"micro-batch {b.micro} is not put together as it was fed")
    return out


def to_float32(value: Any) -> Any:
    """A batch whose floats of 16 bits are float32."""
    if is_tensor(value):
        return value.float() if value.is_floating_point() and value.element_size() == 2 else value
    if isinstance(value, Mapping):
        made = {k: to_float32(v) for k, v in value.items()}
        return made if type(value) is dict else type(value)(made)  # type: ignore[call-arg]
    if isinstance(value, list | tuple):
        parts = [to_float32(v) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
