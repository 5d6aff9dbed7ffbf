"""Activations by block, opt-in: a forward hook calls an operator of ours that writes one row and returns nothing.

To the compiler that operator is opaque and changes one buffer, so no graph breaks, under `fullgraph` too. It is not
free of effect all the same: a compiled bfloat16 graph fuses less around it, and rounds where it would not have
(float32 stays equal). So it is off by default, and turning it on is a change of kernels to record.

Hooks must be there before the first compiled call; later ones never fire, and a graph that was compiled for another
instance of the same class without hooks may serve this one: its rows are then absent. Recomputation under activation
checkpointing is not read a second time: the operator looks whether a backward pass runs. A block's last forward in
the step stands, so with accumulation the last micro-batch. Not for CUDA graphs, whose replays move no table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch

from ..capture.hook import Hook
from ..capture.names import clean
from .read import Reader, why
from .sheet import Sheets

KIND = "activation"
_reader = Reader()


@torch.library.custom_op("lineage::read_activation", mutates_args=("sheet",))
def read_activation(x: torch.Tensor, sheet: torch.Tensor, row: int) -> None:
    """Read a tensor into a row of a sheet. What cannot be read leaves the row at zero: not read."""
    if torch._C._current_graph_task_id() == -1:  # else: recomputation within a backward pass
        _reader.read([x], sheet, [row])


@read_activation.register_fake
def _(x: torch.Tensor, sheet: torch.Tensor, row: int) -> None:
    return None


def blocks(model: Any) -> list[tuple[str, Any]]:
    """(clean name, module) of a model's blocks: members of a list of two or more modules of one class.

    Without such a list, the model's direct children.
    """
    found = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList | torch.nn.Sequential | torch.nn.ModuleDict):
            kinds = Counter(type(m) for m in module.children())
            if kinds and max(kinds.values()) >= 2:
                found += [(f"{name}.{n}".lstrip("."), m) for n, m in module.named_children()]
    outermost = [(n, m) for n, m in found if not any(n.startswith(other + ".") for other, _ in found)]
    return [(clean(n), m) for n, m in (outermost or list(model.named_children()))]


class Activations:
    """Forward hooks on modules; rows of kind `activation` on a sheet of their own."""

    def __init__(self, modules: Iterable[tuple[str, Any]], device: Any, sheets: Sheets) -> None:
        self.not_read: dict[str, str] = {}
        self.dtypes: dict[str, str] = {}
        """block -> type of its output, of the blocks that ran outside of a compiled graph"""
        self._handles: list[Any] = []
        modules = list(modules)
        sheet = sheets.apart(device)
        rows = sheet.rows(KIND, [name for name, _ in modules])
        for (name, module), row in zip(modules, rows, strict=True):
            try:
                self._handles.append(
                    module.register_forward_hook(Hook(_hook(sheet.buffer, row, name, self.dtypes)))
                )
            except Exception as e:
                self.not_read[name] = why(e)

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _hook(buffer: Any, row: int, name: str, dtypes: dict[str, str]) -> Any:
    def hook(module: Any, inputs: Any, output: Any) -> None:
        x = output
        if isinstance(output, (tuple, list)) and len(output):
            x = output[0]
        if isinstance(x, torch.Tensor) and x.is_floating_point():
            torch.ops.lineage.read_activation(x.detach(), buffer, row)
            if not torch.compiler.is_compiling():
                dtypes[name] = str(x.dtype).removeprefix("torch.")

    return hook
