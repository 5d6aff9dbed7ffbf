"""Other ways of watching tensors in training, re-stated from their documentation, for comparison."""

from __future__ import annotations

from typing import Any

import torch


class UnderflowDebugger:
    """What Hugging Face's debug_utils describes: smallest and largest magnitude of each module's weights, inputs and
    outputs, read back at each forward, with a check for NaN and infinity; the last frames are kept."""

    def __init__(self, model: Any, frames: int = 21) -> None:
        self.frames: list[tuple[str, list[tuple[float, float]]]] = []
        self._keep = frames
        self._handles = [m.register_forward_hook(self._hook(n)) for n, m in model.named_modules()]

    def _hook(self, name: str) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            found = [p.detach() for p in module.parameters(recurse=False)]
            found += [x.detach() for x in (*inputs, output) if isinstance(x, torch.Tensor)]
            sizes = []
            for x in (f for f in found if f.is_floating_point()):
                size = x.abs()
                sizes.append((size.min().item(), size.max().item()))
                if torch.isnan(x).any().item() or torch.isinf(x).any().item():
                    raise RuntimeError(f"{name} is not finite")
            self.frames = [*self.frames[1 - self._keep :], (name, sizes)]

        return hook

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


def item_norms(model: Any) -> list[float]:
    """The usual loop: each parameter's gradient norm, read back one by one."""
    return [p.grad.norm().item() for p in model.parameters() if p.grad is not None]
