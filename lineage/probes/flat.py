"""FSDP's flat parameters (the first FSDP): what lies where in them, and their gradients before the reduction.

A flat parameter holds several parameters end to end, with padding between and after them. Its gradient arrives whole
and local at a post-accumulate hook; FSDP's own hook, which reduces and shards it, runs later. Other flat buffers,
such as Megatron's (`param_index_map`: parameter -> begin, end), are read by `readable.slices` alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..capture.names import clean
from .gradients import Gradients
from .read import why
from .readable import slices


def places(flat_parameter: Any) -> dict[str, tuple[int, int]]:
    """Of a whole flat parameter: name within its module -> (offset, elements), padding left out."""
    names = iter(flat_parameter._fqns)
    found, at = {}, 0
    masks = flat_parameter._is_padding_mask
    for size, padding in zip(flat_parameter._numels_with_padding, masks, strict=True):
        if not padding:
            found[next(names)] = at, int(size)
        at += size
    return found


def places_in_shard(flat_parameter: Any) -> tuple[dict[str, tuple[int, int]], Mapping[str, int]]:
    """Of this rank's shard: (name -> (offset, elements), name -> index of its first element in the parameter).

    The second is what a digest takes as `start`, so that digests of shards add up.
    """
    found, starts = {}, {}
    for name, info in zip(flat_parameter._fqns, flat_parameter._shard_param_infos, strict=True):
        if info.in_shard:
            found[name] = info.offset_in_shard, info.numel_in_shard
            starts[name] = info.intra_param_start_idx
    return found, starts


class Fsdp1:
    """Hooks on the flat parameters of every FSDP module in a model; they write rows of kind `gradient`."""

    def __init__(self, model: Any, gradients: Gradients) -> None:
        self.gradients = gradients
        self.managed: set[str] = set()
        """names of the parameters that are read here, and of the flat parameters themselves"""
        self.not_read: dict[str, str] = {}
        self._handles: list[Any] = []
        for prefix, module in model.named_modules() if hasattr(model, "named_modules") else ():
            flat = getattr(getattr(module, "_handle", None), "flat_param", None)
            if flat is None or not hasattr(flat, "_is_padding_mask"):
                continue
            try:
                self._module(f"{prefix}." if prefix else "", flat)
            except Exception as e:
                self.not_read[clean(f"{prefix}._flat_param")] = why(e)

    def _module(self, prefix: str, flat: Any) -> None:
        names = {name: clean(prefix + name) for name in flat._fqns}
        self.managed.update(names.values())
        self.managed.add(clean(f"{prefix}_flat_param"))

        def hook(p: Any) -> None:
            try:
                found = slices(p.grad, places(flat))
                for name in found:
                    self.gradients.order.append(names[name])
                    self.gradients.dtypes[names[name]] = str(p.grad.dtype).removeprefix("torch.")
                self.gradients.read([(names[name], view) for name, view in found.items()])
            except Exception as e:  # a backward pass must not fail for a probe
                self.not_read.update(dict.fromkeys(names.values(), why(e)))

        self._handles.append(flat.register_post_accumulate_grad_hook(hook))

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
