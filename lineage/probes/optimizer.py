"""What an optimizer holds after a step: weights, moments, step counters, and the update it has made.

Everything is read where it lies when the step is over: no hook on the optimizer, no copy of the weights. Rows are
of kind `weight`, `moment1`, `moment2` and `update`; under FSDP2 and other sharding they are of this rank's shard.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from . import host, table, update
from .read import KINDS, Reader, on, put, why
from .readable import NotRead, in_memory_order, local
from .sheet import Key, Sheet, Sheets

WEIGHT, MOMENT1, MOMENT2, UPDATE = KIND_NAMES = ("weight", "moment1", "moment2", "update")
UNTOUCHED = "not updated in this step"
Written = tuple[int, int | None] | None
FIRST, SECOND = ("exp_avg", "momentum_buffer"), ("exp_avg_sq",)


def inner(optimizer: Any) -> Any:
    """The torch optimizer inside a wrapper (Accelerate's, for one)."""
    while not isinstance(optimizer, torch.optim.Optimizer) and hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


@dataclass
class _Item:
    """One parameter: flat views of what is held for it, and how to compute its update."""

    name: str
    p: Any
    a: Any = None
    b: Any = None
    root: Any = None
    factors: update.Factors | None = None
    step: Any = None
    group: Mapping[str, Any] | None = None
    still: bool = False
    """the step did not touch it"""
    a_is_gradient: bool = False
    """SGD without momentum: what stands in `a` is read in its own hook already"""


class OptimizerProbe:
    """Reads one optimizer at the end of a step."""

    def __init__(
        self, optimizer: Any, name_of: Callable[[Any], str | None], sheets: Sheets, reader: Reader
    ) -> None:
        """`name_of`: clean name of a parameter, None for one that the model no longer has."""
        self.optimizer = inner(optimizer)
        self.way = update.way_of(self.optimizer)
        self.not_read: dict[Key, str] = {}
        self.counters: tuple[float, float] | None = None
        """least and greatest step counter, where they lie on the host; else they are scalar rows"""
        self._name_of, self._sheets, self._reader = name_of, sheets, reader
        self._steps: dict[str, float] = {}
        self._written: dict[int, Written] = {}
        """id of a parameter -> how often it had been written to before the step"""
        self._tables: dict[Any, tuple[table.Table, Any]] = {}

    def note(self) -> None:
        """Before a step that is read: how often each parameter was written to, to know after it what it left alone."""
        state = self.optimizer.state
        groups = self.optimizer.param_groups
        self._written = {id(p): _written(p, state.get(p) or {}, g) for g in groups for p in g["params"]}

    def read(self) -> None:
        """Read everything that the optimizer holds. Nothing is raised; `not_read` says what could not be read."""
        self.not_read, self.counters = {}, None
        by_device: dict[Any, list[_Item]] = defaultdict(list)
        host_steps: list[float] = []
        for g, group in enumerate(self.optimizer.param_groups):
            for i, p in enumerate(group["params"]):
                name = self._name_of(p) or f"stale: group {g}, place {i}"
                try:
                    item = self._item(name, p, group)
                    by_device[item.p.device].append(item)
                    if isinstance(item.step, float):
                        host_steps.append(item.step)
                except Exception as e:
                    self.not_read[Key(WEIGHT, name)] = why(e)
        if host_steps:
            self.counters = min(host_steps), max(host_steps)
        for device, items in by_device.items():
            sheet = self._sheets.on(device)
            try:
                self._counters(sheet, items)
                self._device(sheet, items)
            except Exception as e:
                self.not_read.update({Key(WEIGHT, item.name): why(e) for item in items})
        self._steps = {item.name: item.step for items in by_device.values() for item in items}

    def _item(self, name: str, p: Any, group: Mapping[str, Any]) -> _Item:
        item = _Item(name, in_memory_order(local(p)), group=group)
        state = self.optimizer.state.get(p) or {}
        item.step = _step(state.get("step", group.get("step")))  # Transformer Engine's counts by group
        for slot, keys in (("a", FIRST), ("b", SECOND)):
            held = next((state[k] for k in keys if state.get(k) is not None), None)
            if held is None:
                continue
            try:
                setattr(item, slot, _alike(p, held))
            except Exception as e:
                self.not_read[Key(MOMENT1 if slot == "a" else MOMENT2, name)] = why(e)
        try:
            self._factors(item, p, state, group)
        except Exception as e:
            self.not_read[Key(UPDATE, name)] = why(e)
        return item

    def _factors(self, item: _Item, p: Any, state: Mapping[str, Any], group: Mapping[str, Any]) -> None:
        """What the update takes. Raises `NotRead`."""
        if self.way == update.PROXY:
            raise NotRead(f"{type(self.optimizer).__name__}: {update.PROXY}")
        now = _written(p, state, group)
        item.still = now is not None and now == self._written.get(id(p))
        if item.still:
            raise NotRead(UNTOUCHED)
        if self.way == update.EXACT_SGD:
            self._of_sgd(item, p, group)
            return
        if item.a is None or item.b is None:
            raise NotRead("no moments are held")
        if group.get("amsgrad"):
            item.root = _alike(p, state["max_exp_avg_sq"])
        if isinstance(item.step, float):
            if self._steps.get(item.name) == item.step:
                item.still = True
                raise NotRead(UNTOUCHED)
            apart = update.decoupled(self.optimizer, group)
            item.factors = update.adam(group, item.step, decoupled=apart)

    def _of_sgd(self, item: _Item, p: Any, group: Mapping[str, Any]) -> None:
        if item.a is None:
            if p.grad is None:
                raise NotRead("no gradient is left after the step")
            if group["momentum"]:
                raise NotRead("no momentum is held")
            factors = update.sgd(group, momentum=False)
            item.a, item.a_is_gradient, item.factors = _alike(p, p.grad), True, factors
        else:
            item.factors = update.sgd(group, momentum=True)

    def _counters(self, sheet: Sheet, items: list[_Item]) -> None:
        """Step counters that lie on the device: their least and greatest as scalars."""
        steps = [item.step for item in items if item.step is not None and not isinstance(item.step, float)]
        if steps:
            stacked = torch.stack([s.reshape(()) for s in steps]).to(torch.float64)
            sheet.scalar("step_min", stacked.min())
            sheet.scalar("step_max", stacked.max())

    def _device(self, sheet: Sheet, items: list[_Item]) -> None:
        if sheet.device.type == "cpu" and not self._reader.kernel_on(sheet.device):
            self._on_host(sheet, items)
            return
        rest = []
        groups: dict[Any, list[_Item]] = defaultdict(list)
        for item in items:
            held = (item.p, item.a, item.b)
            fits = self.way == update.EXACT_ADAM and item.root is None and not item.still
            fits = fits and item.step is not None
            if fits and all(t is not None and t.dtype in KINDS for t in held):
                aligned = all(t.data_ptr() % 16 == 0 for t in held)
                groups[(tuple(KINDS[t.dtype] for t in held), aligned)].append(item)
            else:
                rest.append(item)
        for way, found in groups.items():
            if self._reader.kernel_on(sheet.device):
                self._kernel(sheet, way, found)
            else:
                rest += found
        self._apart(sheet, rest)

    def _on_host(self, sheet: Sheet, items: list[_Item]) -> None:
        rows: list[int] = []
        results: list[host.Row] = []
        for item in items:
            try:
                found = update.on_host(item.p, item.a, item.b, item.factors, item.root)
            except Exception as e:
                self.not_read[Key(WEIGHT, item.name)] = why(e)
                continue
            kinds = [WEIGHT]
            if item.a_is_gradient:
                found = [found[0], *found[2:]]
            else:
                kinds += [k for k, t in ((MOMENT1, item.a), (MOMENT2, item.b)) if t is not None]
            kinds += [UPDATE] if item.factors is not None else []
            results += found
            rows += [sheet.rows(kind, [item.name])[0] for kind in kinds]
        put(sheet.buffer, rows, results)

    def _kernel(self, sheet: Sheet, way: Any, items: list[_Item]) -> None:
        from . import kernel, kernel_update

        kinds, aligned = way
        names = [item.name for item in items]
        rows = [row for kind in KIND_NAMES for row in sheet.rows(kind, names)]
        key = (way, tuple(rows), tuple(item.p.numel() for item in items))
        if key not in self._tables:
            counts = [[item.p.numel()] for item in items]
            made = table.build(counts, [[0]] * len(items), [0] * len(items), sheet.device, kernel.RUN, 4096)
            self._tables[key] = made, table.to_device(rows, torch.int64, sheet.device)
        known, places = self._tables[key]
        known.point_at([t for slot in ("p", "a", "b") for t in (getattr(item, slot) for item in items)])
        factors = self._factors_on(sheet.device, items)
        with on(sheet.device):
            kernel_update.launch(known, factors, places, sheet.buffer, kinds, aligned)

    def _factors_on(self, device: Any, items: list[_Item]) -> Any:
        """float64[3, items]: k, e, decay. What lies on the device stays there."""
        columns: list[list[Any]] = []
        for item in items:
            group: Mapping[str, Any] = item.group or {}
            decay = group["weight_decay"] if update.decoupled(self.optimizer, group) else 0.0
            columns.append([group["lr"], *group["betas"], group["eps"], decay, item.step])
        rows = [_column(list(c), device) for c in zip(*columns, strict=True)]
        lr, beta1, beta2, eps, decay, step = rows
        root = torch.sqrt(1.0 - beta2**step)
        return torch.stack([lr * root / (1.0 - beta1**step), eps * root, lr * decay])

    def _apart(self, sheet: Sheet, items: list[_Item]) -> None:
        """Where no kernel fits: weights and moments by the plain read, no update."""
        for kind, slot in ((WEIGHT, "p"), (MOMENT1, "a"), (MOMENT2, "b")):
            found = [item for item in items if getattr(item, slot) is not None]
            rows = sheet.rows(kind, [item.name for item in found])
            refused = self._reader.read([getattr(item, slot) for item in found], sheet.buffer, rows)
            self.not_read.update({Key(kind, found[i].name): reason for i, reason in refused.items()})
        for item in items:
            self.not_read.setdefault(Key(UPDATE, item.name), f"no kernel fits: {update.PROXY}")


def _written(p: Any, state: Mapping[str, Any], group: Mapping[str, Any]) -> Written:
    """How often a parameter and its step counter were written to, by torch's own count; None where nobody counts.

    A fused step is counted at the step counter alone, and fused SGD has none.
    """
    held, step = p.to_local() if hasattr(p, "placements") else p, state.get("step")
    if held.is_inference() or (group.get("fused") and "exp_avg" not in state):
        return None
    return int(held._version), int(step._version) if isinstance(step, torch.Tensor) else step


def _step(held: Any) -> Any:
    """A step counter: a number where it lies on the host, the tensor on a device, None without one."""
    if held is None or (hasattr(held, "detach") and held.device.type != "cpu"):
        return held
    return update.number(held)


def _alike(p: Any, held: Any) -> Any:
    """What is held for a parameter, flat in the same order as the parameter. Raises `NotRead`."""
    mine, other = local(p), local(held)
    if mine.shape != other.shape:
        raise NotRead(f"its shape {list(other.shape)} is not the parameter's {list(mine.shape)}")
    if mine.stride() == other.stride():
        return in_memory_order(other)
    return in_memory_order(torch.empty_like(mine, dtype=other.dtype).copy_(other))


def _column(values: list[Any], device: Any) -> Any:
    """One float64 per item, on the device, whether it lies there already or on the host."""
    there = [isinstance(v, torch.Tensor) and v.device.type != "cpu" for v in values]
    if all(there):
        return torch.stack([v.detach().reshape(()) for v in values]).to(torch.float64)
    if any(there):
        each = [_column([v], device) for v in values]
        return torch.cat(each)
    return table.to_device([update.number(v) for v in values], torch.float64, device)
