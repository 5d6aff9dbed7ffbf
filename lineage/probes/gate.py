"""The gate: a step with a non-finite gradient leaves weights, moments and step counters as they were. Off by default.

It judges the gradients that the optimizer is about to use, after the reduction. Fused Adam and AdamW take the verdict
as a device flag (`optimizer.found_inf`, the one that `torch.amp.GradScaler` uses, and it is combined with the
scaler's): no synchronisation. Every other optimizer finds its gradients taken away for the length of the step, which
takes one synchronisation per step.

Ranks that judge differently part for good. So the gate is on only where all of them must see the same gradients: one
process, or DistributedDataParallel. Elsewhere, with shards, a training loop passes a norm over all ranks, equal on
each, by `judge(norm)` before the optimizer's step; a step without one is let through and counted.
"""

from __future__ import annotations

from typing import Any

import torch

from .columns import N_NAN, N_NEGINF, READ
from .gradients import ddp_of
from .optimizer import inner
from .read import Reader, why
from .sheet import Sheet

FUSED = "fused: a flag on the device"
TAKEN = "gradients are taken away: one synchronisation per step"


class Gate:
    """Pre- and post-hooks on one optimizer."""

    def __init__(self, optimizer: Any, *, model: Any = None, reader: Reader | None = None) -> None:
        self.optimizer = inner(optimizer)
        self.trouble: dict[str, str] = {}
        self.held_back = 0
        """steps held back so far, where the host knows; with a flag on the device `flag` says it of the last step"""
        self.unjudged = 0
        """steps let through since nothing was known that all ranks share"""
        self.flag: Any = None
        """float32, 1.0 where the last step was held back, on the device of the gradients"""
        groups = self.optimizer.param_groups
        fused = getattr(self.optimizer, "_step_supports_amp_scaling", False) and all(
            g.get("fused") for g in groups
        )
        self.way = FUSED if fused else TAKEN
        self.shared = _shared(model)
        self._reader = reader or Reader()
        self._norm: Any = None
        self._ours: Any = None
        self._taken: list[tuple[Any, Any]] = []
        self._handles = [
            self.optimizer.register_step_pre_hook(self._before),
            self.optimizer.register_step_post_hook(self._after),
        ]

    def judge(self, norm: Any) -> None:
        """Judge the next step by this norm: a 0-d tensor, equal on all ranks."""
        self._norm = norm

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        try:
            self.flag = self._verdict()
            if self.flag is None:
                self.unjudged += 1
            elif self.way == FUSED:
                self._set(optimizer)
            elif float(self.flag) > 0:  # the one synchronisation
                self.held_back += 1
                self._taken = [(p, p.grad) for p in self._parameters() if p.grad is not None]
                for p, _ in self._taken:
                    p.grad = None
        except Exception as e:
            self.trouble["gate"] = why(e)

    def _set(self, optimizer: Any) -> None:
        """Combine with what a GradScaler has found; our own flag of a step that raised is none of it."""
        theirs = getattr(optimizer, "found_inf", None)
        if theirs is not None and theirs is self._ours:
            theirs = None
        combined = self.flag if theirs is None else torch.maximum(self.flag, theirs.to(self.flag))
        optimizer.found_inf = combined
        self._ours = combined if theirs is None else None

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        for p, grad in self._taken:
            p.grad = grad
        self._taken = []
        self._norm = None
        if self._ours is not None and getattr(optimizer, "found_inf", None) is self._ours:
            del optimizer.found_inf  # a scaler's own flag is the scaler's to delete
        self._ours = None

    def _parameters(self) -> list[Any]:
        return [p for g in self.optimizer.param_groups for p in g["params"]]

    def _verdict(self) -> Any:
        """1.0 to hold back, 0.0 to let through, as float32 on the device; None where ranks may differ."""
        if self._norm is not None:
            return (~torch.isfinite(self._norm.detach().reshape(()))).to(torch.float32)
        if not self.shared:
            return None
        grads = [p.grad for p in self._parameters() if p.grad is not None]
        if not grads or any(hasattr(g, "placements") for g in grads):
            return None
        sheet = Sheet(grads[0].device)
        rows = sheet.rows("gradient", [str(i) for i in range(len(grads))])
        refused = self._reader.read(grads, sheet.buffer, rows)
        self.trouble.update({f"gradient {i}": reason for i, reason in refused.items()})
        used = sheet.used()
        return (used[:, N_NAN : N_NEGINF + 1].sum() * (used[:, READ].sum() > 0)).clamp(max=1.0).float()

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _shared(model: Any) -> bool:
    """Whether all processes must see the same gradients."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return True
    return distributed.get_world_size() == 1 or ddp_of(model) is not None
