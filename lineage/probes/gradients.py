"""Gradients of this rank as autograd leaves them: before any reduction, before clipping and unscaling.

A post-accumulate hook on each parameter sees the local gradient, under DistributedDataParallel too, whose own
hook on the same gradient runs later. Where nothing reduces the gradients during the backward pass, all of them are
read at its end in one launch; under DDP, and on a CPU, where the gradient still lies in the cache, each is read
in its hook. A DDP communication hook is never registered: only one is allowed per model, and with one DDP divides
where it otherwise multiplies. FSDP2 has its own way, see `fsdp`.

With accumulation the hook sees the accumulated gradient, and the last micro-batch's row stands. Where each micro-batch
is reduced on its own (DDP without `no_sync`, FSDP2), what has accumulated is no longer this rank's, so the last
micro-batch's own gradient is read, and the NaN and infinities of the earlier ones are added to its counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import small, table
from .columns import N_NAN, N_NEGINF
from .host import Row
from .read import Reader, put, why
from .sheet import Sheets

Named = Sequence[tuple[str, Any]]
"""(clean name, parameter)"""
KIND = "gradient"
MIXED = "DDP reduces each micro-batch: those after the first are read from the next step on"
GONE = "it was taken away within the backward pass, and is read at once from the next one on"


class Gradients:
    """Hooks on parameters. They write rows of kind `gradient`; `order` tells in which order gradients arrived."""

    def __init__(
        self,
        parameters: Named,
        sheets: Sheets,
        reader: Reader,
        *,
        model: Any = None,
        together: bool | None = None,
    ) -> None:
        """`model`: where a DDP wrapper is looked for. `together`: read all at the end of the backward pass; by
        default so on a device, unless DDP reduces them before that."""
        self._sheets, self._reader, self.digest = sheets, reader, False
        self._ddp = ddp_of(model)
        self._together = together
        self._fleeting: set[str] = set()
        """names of gradients that do not outlive the backward pass"""
        self.order: list[str] = []
        """names in the order in which their gradients arrived since `start`"""
        self.first_at: float | None = None
        """when the first of them arrived, by the process's monotonic clock"""
        self.dtypes: dict[str, str] = {}
        self.not_read: dict[str, str] = {}
        self._seen: set[str] = set()
        self._reduced: set[str] = set()
        """names whose gradient DDP has reduced since `start`: what accumulates on it is no longer this rank's"""
        self._incoming: dict[str, Any] = {}
        """hooks on the gradients of one backward pass alone, where each is reduced"""
        self._held_back: set[str] = set()
        """names that arrived within `no_sync` since `start`"""
        self._early: set[str] = set()
        """names that did so and not afterwards, as an expert may that got no token of the last micro-batch"""
        self._waiting: list[tuple[str, Any]] = []
        self._rows: dict[str, Row] = {}
        self._hooked: dict[str, tuple[Any, Any]] = {}
        self._unhooked: list[tuple[str, Any]] = []
        """frozen, or not yet initialised"""
        self._backward: int | None = None
        """the backward pass at whose end we are called back"""
        self.follow(parameters)

    def follow(self, parameters: Named) -> list[str]:
        """Hook what is new among these parameters and unhook what is gone; returns the names that changed."""
        now = {name: p for name, p in parameters if p.requires_grad and p.is_leaf}
        changed = [n for n, (p, _) in self._hooked.items() if now.get(n) is not p]
        for name in changed:
            self._hooked.pop(name)[1].remove()
            if name in self._incoming:
                self._incoming.pop(name).remove()
        added = [n for n in now if n not in self._hooked]
        for name in added:
            p = now[name]
            try:
                self._hooked[name] = p, p.register_post_accumulate_grad_hook(self.hook(name))
            except Exception as e:
                self.not_read[name] = why(e)
        self._unhooked = [(n, p) for n, p in parameters if n not in self._hooked]
        return list(dict.fromkeys(changed + added))

    def thaw(self) -> None:
        """Hook what is trainable by now and was not when it was last looked at."""
        if any(p.requires_grad and p.is_leaf for _, p in self._unhooked):
            self.follow([*((n, p) for n, (p, _) in self._hooked.items()), *self._unhooked])

    def hook(self, name: str, *, now: bool = False) -> Callable[[Any], None]:
        """A post-accumulate hook. `now`: the gradient does not outlive the backward pass, so it is read at once."""
        if now:
            self._fleeting.add(name)

        def hook(p: Any) -> None:
            try:
                self._arrived(name, p)
            except Exception as e:  # a backward pass must not fail for a probe
                self.not_read[name] = why(e)

        return hook

    def _arrived(self, name: str, p: Any) -> None:
        g = p.grad
        if g is None or (self._ddp is not None and self._elsewhere(name, p)):
            return
        self.comes(name, g)
        now = self._ddp is not None or name in self._fleeting or self._together is False
        little = not self._together and not self.digest and small.fits(g)
        row = small.read(g) if little else None
        if row is not None:
            self._at_end()
            self._rows[name] = row
        elif not now and (self._together or g.device.type != "cpu"):
            self._at_end()
            self._waiting.append((name, p))
        else:
            self.read([(name, g)])

    def comes(self, name: str, g: Any) -> bool:
        """Note the arrival of a gradient; returns whether it is another one since `start`."""
        if self.first_at is None:
            self.first_at = time.monotonic()
        again = name in self._seen
        self._seen.add(name)
        self.order.append(name)
        self.dtypes[name] = str(g.dtype).removeprefix("torch.")
        return again

    def _elsewhere(self, name: str, p: Any) -> bool:
        """Under DDP: whether what has accumulated at a parameter is not read, being not whole or not this rank's."""
        if not self._ddp.require_backward_grad_sync:
            self._held_back.add(name)
            return name not in self._early
        if name not in self._reduced:
            self._reduced.add(name)
            return False
        if name not in self._incoming:
            self._incoming[name] = p.register_hook(self._one_pass(name))
            self.not_read[name] = MIXED
        return True

    def _one_pass(self, name: str) -> Callable[[Any], None]:
        """A hook on the gradient of one backward pass, before it is added to what has accumulated."""

        def hook(g: Any) -> None:
            try:
                if name in self._reduced and self._ddp.require_backward_grad_sync:
                    self.read([(name, g)], again=self.comes(name, g))
            except Exception as e:  # a backward pass must not fail for a probe
                self.not_read[name] = why(e)

        return hook

    def _at_end(self) -> None:
        """Call back when the backward pass is over, once. One that raised never comes to its end."""
        backward = torch._C._current_graph_task_id()
        if backward != self._backward:
            self._backward = backward
            torch.autograd.Variable._execution_engine.queue_callback(self._over)

    def _over(self) -> None:
        waiting, self._waiting = self._waiting, []
        rows, self._rows = self._rows, {}
        try:
            self._put(rows)
            self.read([(name, p.grad) for name, p in waiting if p.grad is not None])
            gone = [name for name, p in waiting if p.grad is None]
            self._fleeting.update(gone)  # an optimizer that steps within the backward pass takes it away
            self.not_read.update(dict.fromkeys(gone, GONE))
        except Exception as e:
            self.not_read.update(dict.fromkeys([n for n, _ in waiting], why(e)))

    def _put(self, rows: dict[str, Row]) -> None:
        """Write rows that were read on the CPU."""
        if rows:
            sheet = self._sheets.on(torch.device("cpu"))
            places = sheet.rows(KIND, rows)
            put(sheet.buffer, places, list(rows.values()))
            for name in rows:
                self.not_read.pop(name, None)

    def read(self, named: Sequence[tuple[str, Any]], *, again: bool = False) -> None:
        """Read (name, gradient) pairs into their rows; a list of pieces may stand for a gradient.

        `again`: another micro-batch's own gradients; what is not finite in the earlier ones stays in the counts.
        """
        by_device: dict[Any, list[tuple[str, Any]]] = {}
        for name, g in named:
            by_device.setdefault((g[0] if isinstance(g, list) else g).device, []).append((name, g))
        for device, found in by_device.items():
            sheet = self._sheets.on(device)
            rows = sheet.rows(KIND, [n for n, _ in found])
            counts = sheet.buffer[:, N_NAN : N_NEGINF + 1]
            places = table.to_device(rows, torch.int64, sheet.device) if again else None
            before = counts.index_select(0, places) if again else None
            refused = self._reader.read([g for _, g in found], sheet.buffer, rows, digest=self.digest)
            if again:
                counts.index_add_(0, places, before)
            for i, reason in refused.items():
                self.not_read[found[i][0]] = reason
            for name in {n for n, _ in found} - {found[i][0] for i in refused}:
                self.not_read.pop(name, None)

    def start(self) -> None:
        """Begin the next step."""
        self.thaw()
        self._early |= self._held_back - self._seen
        self.order.clear()
        for names in (self._seen, self._reduced, self._held_back):
            names.clear()
        self.first_at = None
        self._waiting.clear()  # a backward pass that raised leaves some
        self._rows.clear()

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in [*(h for _, h in self._hooked.values()), *self._incoming.values()]:
            handle.remove()
        self._hooked.clear()
        self._incoming.clear()


def ddp_of(model: Any) -> Any:
    """The DistributedDataParallel module in a model, itself included; None without one."""
    if model is None or not hasattr(model, "modules"):
        return None
    found = (m for m in model.modules() if isinstance(m, torch.nn.parallel.DistributedDataParallel))
    return next(found, None)
