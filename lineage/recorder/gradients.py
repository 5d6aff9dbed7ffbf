"""Gradient norms of this rank, taken before the reduction.

A post-accumulate hook on each parameter sees the local gradient, under DistributedDataParallel too. It writes
one number per parameter into a preallocated buffer on the device; nothing is read back here. With gradient
accumulation the hook sees the accumulated gradient, and the last micro-batch's value stands.
"""

from __future__ import annotations

from typing import Any

from ..capture.later import Later
from ..capture.watched import Watched


class GradientProbe:
    """Hooks on the parameters of a model. `take()` gives the step's local norms and starts afresh."""

    def __init__(self, watched: Watched) -> None:
        import torch

        self._torch = torch
        self.names: list[str] = []
        self.order: list[int] = []
        """indices of parameters in the order in which their gradients arrived in this step"""
        self._handles: list[Any] = []
        self._buffers: dict[str, Any] = {}
        self._failed = False
        parameters = [(n, p) for n, p in watched.parameters() if p.requires_grad and p.is_leaf]
        self.names = [n for n, _ in parameters]
        for i, (_, p) in enumerate(parameters):
            buffer = self._buffer(p.device)
            self._handles.append(p.register_post_accumulate_grad_hook(self._hook(i, buffer)))

    def _buffer(self, device: Any) -> Any:
        key = str(device)
        if key not in self._buffers:
            self._buffers[key] = self._torch.zeros(len(self.names), dtype=self._torch.float32, device=device)
        return self._buffers[key]

    def _hook(self, index: int, buffer: Any) -> Any:
        norm = self._torch.linalg.vector_norm
        f32 = self._torch.float32

        def hook(p: Any) -> None:
            if self._failed or p.grad is None or p.grad.is_sparse:
                return
            try:
                g = p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad
                buffer[index].copy_(norm(g.detach(), dtype=f32))
                self.order.append(index)
            except Exception:
                self._failed = True  # the probe goes blind; the step must not fail

        return hook

    @property
    def failed(self) -> bool:
        """Whether the probe has gone blind."""
        return self._failed

    def take(self) -> tuple[Later, list[int]] | None:
        """The norms of this step by parameter (None without a backward pass), and the order of arrival."""
        if not self.order:
            return None
        order = list(dict.fromkeys(self.order))
        self.order.clear()
        n = len(self.names)
        parts = [b[:n].clone() for b in self._buffers.values()]
        for b in self._buffers.values():
            b.zero_()
        total = parts[0] if len(parts) == 1 else sum(p.to(parts[0].device) for p in parts)
        return Later(total), order

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
