"""What can be read of a tensor, and why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


class NotRead(Exception):
    """A tensor that a probe leaves alone; the text says why."""


def local(tensor: Any) -> Any:
    """The plain tensor of floats that this process holds of a tensor, without a collective and without a copy.

    Raises `NotRead` for what has no such thing.
    """
    if hasattr(tensor, "placements"):
        if any(p.is_partial() for p in tensor.placements):
            raise NotRead("a partial sum of a distributed tensor: its values exist only after a reduction")
        tensor = tensor.to_local()
    if not isinstance(tensor, torch.Tensor):
        raise NotRead(f"{type(tensor).__name__} is no tensor")
    _strided(tensor)
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise NotRead(f"{type(tensor).__name__} is a tensor class of its own")
    _floats(tensor)
    if tensor.untyped_storage().nbytes() == 0:
        raise NotRead("its storage was freed")
    return tensor.detach()


def _strided(tensor: Any) -> None:
    if tensor.is_meta:
        raise NotRead("a meta tensor holds no values")
    if tensor.is_nested:
        raise NotRead("a nested tensor has no values of its own")
    if tensor.layout is not torch.strided:
        raise NotRead(f"its layout is {str(tensor.layout).removeprefix('torch.')}")
    if tensor.is_quantized:
        raise NotRead("quantised: the stored integers are not the values")


def _floats(tensor: Any) -> None:
    if tensor.is_complex():
        raise NotRead("complex")
    if not tensor.is_floating_point():
        raise NotRead(f"{str(tensor.dtype).removeprefix('torch.')} has neither NaN nor infinity")
    if tensor.numel() == 0:
        raise NotRead("empty")
    if tensor.is_neg():
        raise NotRead("a lazily negated view")


def in_memory_order(tensor: Any) -> Any:
    """The tensor's elements as one flat view in the order of memory; a copy where they lie apart or overlap.

    Statistics do not depend on the order; digests do, see `in_logical_order`.
    """
    if tensor.is_contiguous():
        return tensor.view(-1)
    strides, expected = tensor.stride(), 1
    for dim in sorted((d for d in range(tensor.dim()) if tensor.shape[d] > 1), key=lambda d: strides[d]):
        if strides[dim] != expected:
            return tensor.contiguous().view(-1)
        expected *= tensor.shape[dim]
    return tensor.as_strided((tensor.numel(),), (1,))


def in_logical_order(tensor: Any) -> Any:
    """The tensor's elements flat and row-major; a copy where memory has another order."""
    return tensor.contiguous().view(-1)


def slices(flat: Any, places: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """Views into one flat buffer, name -> (offset, number of elements): nothing is copied, padding stays out.

    For FSDP's FlatParameter, DDP's buckets and Megatron's gradient buffers. Raises `ValueError` for a place
    outside the buffer.
    """
    found = {}
    for name, (offset, count) in places.items():
        if offset < 0 or count < 0 or offset + count > flat.numel():
            raise ValueError(
                f"{name}: elements {offset} to {offset + count} lie outside the buffer of {flat.numel()}"
            )
        found[name] = flat.view(-1)[offset : offset + count]
    return found
