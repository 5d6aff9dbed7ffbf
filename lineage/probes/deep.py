"""Every module's output and the gradient that comes back to it, in order of execution. For replays only.

Each value is read when it appears, which waits for the device each time, and hooks break compiled graphs: never for
a run that trains. The first value that is not finite tells where it began: what was computed before it is whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import torch

from ..capture.names import clean
from .columns import WIDTH, Stats, stats
from .read import Reader, why

Phase = Literal["input", "forward", "backward", "gradient"]


@dataclass(frozen=True)
class Seen:
    """One value: what a module was given, what it returned, the gradient of that, or a parameter's gradient."""

    order: int
    phase: Phase
    name: str
    """clean name of the module (the model itself is `model`) or of the parameter"""
    module: str
    """class of the module, or `Parameter`"""
    place: int
    """which of several inputs or outputs"""
    stats: Stats


class Deep:
    """`with Deep(model) as deep: loss = ...; loss.backward()`; then `deep.first` and `deep.seen`."""

    def __init__(self, model: Any, *, keep: int = 100_000) -> None:
        """`keep`: values kept, beyond which only the first non-finite one is looked for."""
        self.seen: list[Seen] = []
        self.first: Seen | None = None
        """the first value, in order of execution, with a NaN or an infinity"""
        self.not_read: dict[str, str] = {}
        self._model, self._keep, self._order = model, keep, 0
        self._reader = Reader()
        self._handles: list[Any] = []

    def __enter__(self) -> Deep:
        for name, module in self._model.named_modules():
            label = clean(name) or "model"
            hook = module.register_forward_hook(self._forward(label, type(module).__name__))
            self._handles.append(hook)
            if module is self._model:
                self._handles.append(module.register_forward_pre_hook(self._input(type(module).__name__)))
        for name, p in self._model.named_parameters():
            if p.requires_grad:
                hook = p.register_hook(self._gradient("gradient", clean(name), "Parameter", 0))
                self._handles.append(hook)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _input(self, module: str) -> Any:
        def hook(_: Any, inputs: Any) -> None:
            for i, x in enumerate(tensors(inputs)):
                self._look("input", "model", module, i, x)

        return hook

    def _forward(self, name: str, module: str) -> Any:
        def hook(_: Any, inputs: Any, output: Any) -> None:
            # within a backward pass it is made again under checkpointing: it was seen in the forward pass, and only
            # the reentrant way has its gradients here
            again = torch._C._current_graph_task_id() != -1
            for i, x in enumerate(tensors(output)):
                if not again:
                    self._look("forward", name, module, i, x)
                if x.requires_grad:
                    x.register_hook(self._gradient("backward", name, module, i))

        return hook

    def _gradient(self, phase: Phase, name: str, module: str, place: int) -> Any:
        def hook(grad: Any) -> None:
            self._look(phase, name, module, place, grad)

        return hook

    def _look(self, phase: Phase, name: str, module: str, place: int, x: Any) -> None:
        out = torch.zeros(1, WIDTH, dtype=torch.float64, device=x.device)
        refused = self._reader.read([x], out, [0])
        found = stats(out[0].tolist())
        if refused or found is None:
            if x.is_floating_point():
                self.not_read[f"{phase} {name}"] = refused.get(0, why(ValueError("nothing was read")))
            return
        self._order += 1
        seen = Seen(self._order, phase, name, module, place, found)
        if len(self.seen) < self._keep:
            self.seen.append(seen)
        if self.first is None and not found.finite:
            self.first = seen


def tensors(value: Any) -> Iterator[Any]:
    """The tensors in a module's input or output, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors(item)
