"""Every operator of a step, forward and backward, in the order of execution: where the first non-finite value is made.

For replays only: each result is looked at when it is made, which waits for the device. An operator *makes* a value
that is not finite where nothing that went into it was so. What is put there on purpose, as the minus infinity of an
attention mask, is not counted; a NaN that comes of such masks is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .._rooms import schemas
from ..capture.names import clean
from ..probes.deep import tensors

MOST = 8
"""Operators of each pass that are kept: the first is named, the others tell whether there were more."""
_FUSED_ATTENTION = (
    "_scaled_dot_product_flash",
    "_scaled_dot_product_efficient",
    "_scaled_dot_product_cudnn",
    "_scaled_dot_product_fused",
    "flash_attn",
    "_flash_attention",
    "_efficient_attention",
)
_SIXTEEN = (torch.float16, torch.bfloat16)
_ON_PURPOSE = (
    "full",
    "fill",
    "masked_fill",
    "where",
    "scalar_tensor",
    "lift_fresh",
    "constant_pad",
    "new_full",
    "masked_scatter",
)


@dataclass
class Census:
    """What ran: operators by name, and those whose result is of a 16-bit type."""

    operators: Counter[str] = field(default_factory=Counter)
    lower: Counter[str] = field(default_factory=Counter)

    @property
    def fused_attention(self) -> list[str]:
        """Fused attention kernels that ran."""
        return [n for n in self.operators if any(f in n for f in _FUSED_ATTENTION)]


class Counting(TorchDispatchMode):  # type: ignore[misc]
    """Counts operators and looks at no value."""

    def __init__(self) -> None:
        super().__init__()
        self.census = Census()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = str(func)
        self.census.operators[name] += 1
        if any(t.dtype in _SIXTEEN for t in tensors(out)):
            self.census.lower[name] += 1
        return out


class Operations(Counting):
    """`with Operations(model) as ops: loss.backward()`; then `ops.forward` and `ops.backward`."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.forward: list[schemas.FirstNonFinite] = []
        self.backward: list[schemas.FirstNonFinite] = []
        self.put: set[float] = set()
        """infinities that were put somewhere on purpose so far, by sign: 1.0 and -1.0"""
        self._model = model
        self._stack: list[tuple[str, str]] = []
        self._spans: list[tuple[int, int, str, str]] = []
        """(first, last sequence number of the nodes that a module made, its name, its class)"""
        self._open: list[int] = []
        self._handles: list[Any] = []
        self._entered = self._paused = False

    def __enter__(self) -> Operations:
        for name, module in self._model.named_modules():
            label = clean(name) or "model"
            self._handles.append(module.register_forward_pre_hook(self._enters(label, type(module).__name__)))
            self._handles.append(module.register_forward_hook(self._leaves, always_call=True))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Operators within are not the step's: nothing of them is counted or looked at."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def _enters(self, name: str, cls: str) -> Any:
        def hook(module: Any, inputs: Any) -> None:
            self._entered = True
            self._stack.append((name, cls))
            self._open.append(torch.autograd._get_sequence_nr())

        return hook

    def _leaves(self, module: Any, inputs: Any, output: Any) -> None:
        name, cls = self._stack.pop()
        self._spans.append((self._open.pop(), torch.autograd._get_sequence_nr(), name, cls))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._paused:
            return func(*args, **(kwargs or {}))
        going_in = list(_floats((args, kwargs or {})))
        changes = func._schema.is_mutable
        before = [_state(t) for t in going_in] if changes else None
        out = super().__torch_dispatch__(func, types, args, kwargs)
        name = str(func)
        if "empty" in name or (changes and func._schema.name.endswith(("copy_", "set_"))):
            return out  # what is in it is nobody's yet, or another's
        for place, made in enumerate(_floats(out)):
            state = _state(made)
            if state.clean:
                continue
            was = before if before is not None else [_state(t) for t in going_in]
            if _makes(name, state, was, args, kwargs or {}):
                self._note(name, place, made, state, was)
            elif state.infinities and _deliberate(name, args, kwargs or {}, math.inf):
                self.put |= {sign for sign in (1.0, -1.0) if bool((made == sign * math.inf).any())}
        return out

    def _note(self, name: str, place: int, made: Any, state: _State, was: list[_State]) -> None:
        in_backward = torch._C._current_graph_task_id() != -1
        if in_backward and torch.is_grad_enabled():
            return  # made again under checkpointing: it was seen in the forward pass
        kept = self.backward if in_backward else self.forward
        if len(kept) >= MOST:
            return
        module, cls, node = None, None, None
        if in_backward:
            current = torch._C._current_autograd_node()
            if current is not None:
                node = current.name()
                module, cls = self._of(current._sequence_nr())
        elif self._stack:
            module, cls = self._stack[-1]
        largest = float(made.detach().abs().nan_to_num(0.0, 0.0, 0.0).max()) if made.numel() else None
        into = max((s.largest for s in was if s.largest is not None), default=None)
        kept.append(
            schemas.FirstNonFinite(
                phase="backward"
                if in_backward
                else "forward"
                if module is not None or not self._entered
                else "loss",
                module=module,
                **{"class": cls},
                operation=name,
                node=node,
                place=place,
                largest=largest,
                largest_before=into,
                broken=state.broken,
                elements=made.numel(),
                text=_text(name, node, module, cls, state, made.numel(), into),
            )
        )

    def _of(self, number: int) -> tuple[str | None, str | None]:
        """The innermost module whose forward pass made a node; the smallest span that holds its number."""
        found = [s for s in self._spans if s[0] <= number < s[1]]
        if not found:
            return None, None
        best = min(found, key=lambda s: s[1] - s[0])
        return best[2], best[3]


@dataclass(frozen=True)
class _State:
    """What of a tensor is not finite."""

    nans: int
    infinities: int
    largest: float | None

    @property
    def clean(self) -> bool:
        return self.nans + self.infinities == 0

    @property
    def broken(self) -> int:
        return self.nans + self.infinities


def _state(t: Any) -> _State:
    held = t.detach()
    if not held.numel():
        return _State(0, 0, None)
    wide = held.float() if held.element_size() < 4 else held
    finite = torch.isfinite(wide)
    if bool(finite.all()):
        return _State(0, 0, float(wide.abs().max()))
    nans = int(torch.isnan(wide).sum())
    rest = wide[finite]
    return _State(nans, int((~finite).sum()) - nans, float(rest.abs().max()) if rest.numel() else None)


def _floats(value: Any) -> Iterator[Any]:
    for t in tensors(value):
        if t.is_floating_point() and t.layout == torch.strided and t.device.type != "meta":
            yield t


def _makes(name: str, state: _State, was: list[_State], args: Any, kwargs: Any) -> bool:
    """Whether the operator itself made what is not finite."""
    if state.nans and any(s.nans for s in was):
        return False
    if state.nans:
        return not _deliberate(name, args, kwargs, math.nan)
    if any(not s.clean for s in was):
        return False
    return not _deliberate(name, args, kwargs, math.inf)


def _deliberate(name: str, args: Any, kwargs: Any, kind: float) -> bool:
    """Whether a value that is not finite was asked for by number, as in a mask."""
    plain = [v for v in (*args, *kwargs.values()) if isinstance(v, float)]
    asked = any(math.isnan(v) if math.isnan(kind) else math.isinf(v) for v in plain)
    word = name.removeprefix("aten.").partition(".")[0].strip("_")
    return asked and any(word.startswith(w) for w in _ON_PURPOSE)


def _text(
    name: str,
    node: str | None,
    module: str | None,
    cls: str | None,
    state: _State,
    elements: int,
    into: float | None,
) -> str:
    parts = [f"{state.nans:,} NaN"] if state.nans else []
    parts += [f"{state.infinities:,} infinite"] if state.infinities else []
    what = f"{node} ({name})" if node else name
    where = f" in {module} ({cls})" if module else ""
    went = f"; the largest magnitude that went in is {into:.4g}" if into is not None else ""
    return f"{what}{where}: {' and '.join(parts)} of {elements:,} elements{went}"
