"""Gradients of this rank as autograd leaves them: before any reduction, before clipping and unscaling.

A post-accumulate hook on each parameter sees the local gradient, under DistributedDataParallel too, whose own
hook on the same gradient runs later. Where nothing reduces the gradients during the backward pass, all of them are
read at its end in one launch; under DDP, and on a CPU, where the gradient still lies in the cache, each is read
in its hook. A DDP communication hook is never registered: only one is allowed per model, and with one DDP divides
where it otherwise multiplies. FSDP2 has its own way, see `fsdp`.

With accumulation the hook sees the accumulated gradient, and the last micro-batch's row stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import small
from .host import Row
from .read import Reader, put, why
from .sheet import Sheets

Named = Sequence[tuple[str, Any]]
"""(clean name, parameter)"""
KIND = "gradient"
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
        self.dtypes: dict[str, str] = {}
        self.not_read: dict[str, str] = {}
        self._waiting: list[tuple[str, Any]] = []
        self._rows: dict[str, Row] = {}
        self._hooked: dict[str, tuple[Any, Any]] = {}
        self.follow(parameters)

    def follow(self, parameters: Named) -> list[str]:
        """Hook what is new among these parameters and unhook what is gone; returns the names that changed."""
        now = {name: p for name, p in parameters if p.requires_grad and p.is_leaf}
        changed = [n for n, (p, _) in self._hooked.items() if now.get(n) is not p]
        for name in changed:
            self._hooked.pop(name)[1].remove()
        added = [n for n in now if n not in self._hooked]
        for name in added:
            p = now[name]
            try:
                self._hooked[name] = p, p.register_post_accumulate_grad_hook(self.hook(name))
            except Exception as e:
                self.not_read[name] = why(e)
        return list(dict.fromkeys(changed + added))

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
        if g is None or (self._ddp is not None and not self._ddp.require_backward_grad_sync):
            return  # within no_sync the gradient is not whole yet
        self.order.append(name)
        self.dtypes[name] = str(g.dtype).removeprefix("torch.")
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

    def _at_end(self) -> None:
        """Call back when the backward pass is over, once."""
        if not self._waiting and not self._rows:
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

    def read(self, named: Sequence[tuple[str, Any]]) -> None:
        """Read (name, gradient) pairs into their rows; a list of pieces may stand for a gradient."""
        by_device: dict[Any, list[tuple[str, Any]]] = {}
        for name, g in named:
            by_device.setdefault((g[0] if isinstance(g, list) else g).device, []).append((name, g))
        for device, found in by_device.items():
            sheet = self._sheets.on(device)
            rows = sheet.rows(KIND, [n for n, _ in found])
            refused = self._reader.read([g for _, g in found], sheet.buffer, rows, digest=self.digest)
            for i, reason in refused.items():
                self.not_read[found[i][0]] = reason
            for name in {n for n, _ in found} - {found[i][0] for i in refused}:
                self.not_read.pop(name, None)

    def start(self) -> None:
        """Begin the next step."""
        self.order.clear()
        self._waiting.clear()  # a backward pass that raised leaves some
        self._rows.clear()

    def remove(self) -> None:
        """Take the hooks off."""
        for _, handle in self._hooked.values():
            handle.remove()
        self._hooked.clear()


def ddp_of(model: Any) -> Any:
    """The DistributedDataParallel module in a model, itself included; None without one."""
    if model is None or not hasattr(model, "modules"):
        return None
    found = (m for m in model.modules() if isinstance(m, torch.nn.parallel.DistributedDataParallel))
    return next(found, None)
