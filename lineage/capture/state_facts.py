"""Readable facts about weights and buffers that say, at a resume, in what way they are not as they were.

A digest says that something differs. These say what: another type, a tie that is gone, a buffer that no file holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .names import clean

MOST = 8
"""Names that one fact lists; the number of the others follows."""


def dtypes(tensors: Iterable[Any]) -> str:
    """The types of tensors, such as `float32`, or `bfloat16, float32` where there are several."""
    return ", ".join(sorted({str(t.dtype).removeprefix("torch.") for t in tensors}))


def ties(model: Any) -> str:
    """Names that stand for one parameter: `lm_head.weight = wte.weight`; "" where each has its own."""
    names: dict[int, list[str]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(p), []).append(clean(name))
    # one module may be reached by two paths of a wrapper, which clean to one name
    groups = [sorted(set(same)) for same in names.values() if len(set(same)) > 1]
    return some([" = ".join(same) for same in sorted(groups)], "; ")


def kinds_of_buffers(model: Any, named: Iterable[str]) -> dict[str, list[str]]:
    """Buffers that are lost in ways of their own: kind -> names, in name order; a kind that has none is left out.

    `not_saved`: no state_dict holds them (`persistent=False`). `statistics`: what batch normalisation has seen, which
    each rank has for itself. A buffer that is both stands under the first.
    """
    kinds: dict[str, set[str]] = {"not_saved": set(), "statistics": set()}
    for prefix, module in model.named_modules():
        lead = f"{prefix}." if prefix else ""
        unsaved = {clean(lead + name) for name in getattr(module, "_non_persistent_buffers_set", ())}
        kinds["not_saved"] |= unsaved
        if getattr(module, "track_running_stats", False):
            kinds["statistics"] |= {clean(lead + name) for name in STATISTICS} - unsaved
    return {kind: sorted(found) for kind, names in kinds.items() if (found := names & set(named))}


STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def some(found: list[str], between: str) -> str:
    """The first of a list in words, and how many more there are."""
    more = f"{between}and {len(found) - MOST} more" if len(found) > MOST else ""
    return between.join(found[:MOST]) + more


def averaged(ema: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What an averaged copy of the weights holds: (name -> tensor, name -> number).

    Takes a module (torch's AveragedModel, a copy of the model), an object with a `state_dict` (diffusers' EMAModel),
    a dict or a list of tensors. Raises `TypeError` where none of these fits.
    """
    if hasattr(ema, "named_parameters"):  # of a module what it saves: other buffers are made by its code
        held: Any = {clean(n): t for n, t in ema.state_dict().items()}
    elif isinstance(ema, Mapping | list | tuple):
        held = ema
    elif hasattr(ema, "state_dict"):
        held = ema.state_dict()
    else:
        raise TypeError(f"a {type(ema).__name__} has neither parameters nor a state_dict")
    leaves = dict(_leaves("", held))
    tensors = {k: v for k, v in leaves.items() if hasattr(v, "element_size")}
    numbers = {k: v for k, v in leaves.items() if isinstance(v, int | float)}
    return tensors, numbers


def _leaves(name: str, held: Any) -> Iterator[tuple[str, Any]]:
    """Every value of nested dicts and lists, by its dotted name."""
    pairs: Iterable[tuple[Any, Any]]
    if isinstance(held, Mapping):
        pairs = held.items()
    elif isinstance(held, list | tuple):
        pairs = enumerate(held)
    else:
        yield name, held
        return
    for key, value in pairs:
        yield from _leaves(f"{name}.{key}" if name else str(key), value)
