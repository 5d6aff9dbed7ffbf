"""Gradients under FSDP2, before its reduce-scatter. A hook on the sharded parameter would see the reduced one.

From torch 2.9 on the reduce-scatter of each parameter group is overridden (`set_custom_reduce_scatter`) by one
that reads the flat buffer of local gradients and then does exactly what the one before did: a subclass of it, so
that checks of its class hold. Elsewhere (older torch, several groups in a module, a mesh of one) a post-accumulate
hook is put on the unsharded parameter after the first forward pass.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..capture.hook import Hook
from .gradients import Gradients
from .read import why

GROUP = "group:"
"""Prefix of a row for a whole group, where its buffer cannot be told apart by parameter."""


def is_fsdp2(model: Any) -> bool:
    """Whether a module within is under FSDP2, without importing it."""
    return any(_state(m) is not None for m in _modules(model))


def _modules(model: Any) -> list[Any]:
    return list(model.modules()) if hasattr(model, "modules") else []


def _state(module: Any) -> Any:
    if not hasattr(module, "reshard") or not hasattr(module, "_get_fsdp_state"):
        return None
    return module._get_fsdp_state()


def _groups(state: Any) -> list[Any]:
    several = getattr(state, "_fsdp_param_groups", None)
    return [g for g in (several if several is not None else [state._fsdp_param_group]) if g is not None]


@dataclass
class _Group:
    """The parameters of a reduce-scatter."""

    named: list[tuple[str, Any]]
    came: set[str] | None = None
    """those whose gradient arrived since the last one; None as long as nobody counts"""

    def in_buffer(self) -> list[tuple[str, Any]]:
        """Those whose gradients are in the buffer, as far as is known: none of the frozen ones is."""
        if self.came is not None:
            return [(n, p) for n, p in self.named if n in self.came]
        return [(n, p) for n, p in self.named if _whole(p).requires_grad]


def _whole(p: Any) -> Any:
    """The unsharded parameter, which gradients arrive at; the sharded one before there is one."""
    return getattr(p, "_unsharded_param", p.sharded_param)


class Fsdp:
    """Reads local gradients of every FSDP2 group in a model into the rows of `gradients`."""

    def __init__(self, model: Any, names: Mapping[int, str], gradients: Gradients) -> None:
        """`names`: id of a (sharded) parameter -> its clean name."""
        self.gradients = gradients
        self.ways: dict[str, int] = {"reduce-scatter": 0, "unsharded parameter": 0}
        """how many groups are read which way"""
        self.managed: set[str] = set()
        """names of the parameters that are read here"""
        self.not_read: dict[str, str] = {}
        self.divided_by = 1
        """what gradients were divided by before they were read"""
        self._undo: list[Any] = []
        for module in _modules(model):
            try:
                state = _state(module)
                if state is not None:
                    self._module(module, _groups(state), names)
            except Exception as e:
                self.not_read[type(module).__name__] = why(e)

    def _module(self, module: Any, groups: list[Any], names: Mapping[int, str]) -> None:
        for group in groups:
            named = [(names.get(id(p.sharded_param), p._param_fqn or "?"), p) for p in group.fsdp_params]
            self.managed.update(n for n, _ in named)
            world = getattr(group.mesh_info, "shard_mesh_size", 1)
            if hasattr(module, "set_custom_reduce_scatter") and len(groups) == 1 and world > 1:
                before = group._reduce_scatter_comm
                module.set_custom_reduce_scatter(_probed(before, self, _Group(named)))
                self._undo.append(lambda m=module, b=before: m.set_custom_reduce_scatter(b))
                self.ways["reduce-scatter"] += 1
            else:
                handle = module.register_forward_pre_hook(Hook(self._unsharded(named)))
                self._undo.append(handle.remove)
                self.ways["unsharded parameter"] += 1

    def _unsharded(self, named: list[tuple[str, Any]]) -> Any:
        """A forward pre-hook that hooks the unsharded parameters once they exist."""
        hooked: dict[str, Any] = {}

        def hook(module: Any, inputs: Any) -> None:
            try:
                for name, p in named:
                    whole = getattr(p, "_unsharded_param", None)
                    if whole is None or not whole.requires_grad or hooked.get(name) is whole:
                        continue
                    hooked[name] = whole
                    handle = whole.register_post_accumulate_grad_hook(self.gradients.hook(name, now=True))
                    self._undo.append(handle.remove)
            except Exception as e:
                self.not_read.update(dict.fromkeys([n for n, _ in named], why(e)))

        return hook

    def reads(self, flat: Any, world: int, group: _Group) -> None:
        """Read the flat input of a reduce-scatter: [world, columns], each parameter padded to a multiple."""
        try:
            named = group.in_buffer()
            found = places(flat, world, [(n, _cut(p, world)) for n, p in named], group.named[0][0])
            if group.came is not None:
                group.came.clear()
            elif found[0][0].startswith(GROUP):
                self._count(group)
            self.divided_by = predivided(flat.dtype, world)
            again = [self.gradients.comes(name, flat) for name, _ in found]
            self.gradients.read(found, again=any(again))
        except Exception as e:
            self.not_read.update(dict.fromkeys([n for n, _ in group.named], why(e)))

    def _count(self, group: _Group) -> None:
        """Some had no gradient, and the buffer does not say which: count from now on which arrive."""
        came = group.came = set()

        def arrival(name: str) -> Any:
            return lambda p: came.add(name)

        for name, p in group.named:
            if _whole(p).requires_grad:
                self._undo.append(_whole(p).register_post_accumulate_grad_hook(arrival(name)).remove)

    def remove(self) -> None:
        """Put everything back as it was."""
        for undo in self._undo:
            undo()
        self._undo.clear()


def _cut(p: Any, world: int) -> tuple[int, int]:
    """(rows, elements per row) of a parameter as FSDP2 cuts it: another dimension's chunks are stacked first."""
    shape = tuple(p._orig_size)
    rows = shape[0] if shape else 1
    if p.fsdp_placement.dim != 0:
        rows *= world
    elements = int(p._orig_size.numel())
    return rows, elements // rows if rows else 0


def predivided(dtype: Any, world: int) -> int:
    """By what FSDP2 has divided gradients before their reduction: float16 by about the root of the world size."""
    factor = 1
    if dtype == torch.float16:
        while world % factor == 0 and world / factor > factor:
            factor *= 2
    return factor


def places(
    flat: Any, world: int, named: list[tuple[str, tuple[int, int]]], group: str
) -> list[tuple[str, Any]]:
    """Where each parameter's local gradient lies in the flat input of a reduce-scatter, padding left out.

    Rank r's part of the buffer holds, for each parameter in turn, the r-th chunk of its rows, padded to equal
    size. `named`: (name, (rows, elements per row)). A parameter without a gradient is not in the buffer: where
    those named do not fill it, the whole buffer is one row under the name of the group.
    """
    columns, found = 0, []
    whole = flat.view(-1)
    width = whole.numel() // world
    for name, (total, size) in named:
        chunk = -(-total // world)
        pieces = []
        for rank in range(world):
            rows = min(chunk, max(0, total - rank * chunk))
            if rows * size:
                begin = rank * width + columns
                pieces.append(whole[begin : begin + rows * size])
        columns += chunk * size
        if pieces:
            found.append((name, pieces))
    if columns != width:
        return [(GROUP + group, whole)]
    return found


def _probed(before: Any, fsdp: Fsdp, parameters: _Group) -> Any:
    """A reduce-scatter that reads its input and then is the one before."""
    kind = type(before)

    def call(self: Any, output_tensor: Any, input_tensor: Any, group: Any, op: Any, *a: Any, **k: Any) -> Any:
        fsdp.reads(input_tensor, group.size(), parameters)
        return kind.__call__(self, output_tensor, input_tensor, group, op, *a, **k)

    made = copy.copy(before)
    made.__class__ = type(f"Read{kind.__name__}", (kind,), {"__call__": call})
    return made
