"""Training mode: whether the modules that behave otherwise in eval mode were in training mode during an update."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

NORMS = ("BatchNorm", "SyncBatchNorm", "InstanceNorm")
"""Modules that normalise by running statistics in eval mode, by the beginning of their names."""

Read = tuple[Any, str]
"""(value, where it was read from)"""


class Modes:
    """The modules of a model whose mode matters, found once, so that each update can ask them."""

    def __init__(self, model: Any) -> None:
        modules = list(model.modules()) if hasattr(model, "modules") else []
        self.root = model
        self.dropouts = [m for m in modules if type(m).__name__.startswith("Dropout") and hasattr(m, "p")]
        self.norms = [m for m in modules if type(m).__name__.startswith(NORMS)]

        self._flags: tuple[Any, ...] | None = None
        self._said: dict[str, Read] = {}

    def read(self) -> dict[str, Read]:
        """Concept -> what is in effect now. Between updates a model may be in eval mode: call this within one.

        Words are made only when a mode has changed since the last call.
        """
        flags = (
            [(m.training, m.p) for m in self.dropouts],
            [m.training for m in self.norms],
            getattr(self.root, "training", None),
        )
        if flags != self._flags:
            self._flags, self._said = flags, dict(self._read())
        return self._said

    def _read(self) -> Iterator[tuple[str, Read]]:
        off = sum(not m.training for m in self.dropouts)
        source = "the Dropout modules of the model"
        if off:
            which = "which are" if off == len(self.dropouts) else f"{off} of {len(self.dropouts)} of them"
            source += f", {which} in eval mode, so off, during the step"
        yield "dropout", (sorted({float(m.p) if m.training else 0.0 for m in self.dropouts}), source)
        if self.norms:
            still = sum(not m.training for m in self.norms)
            held = "none in eval mode" if not still else f"{still} of {len(self.norms)} in eval mode"
            yield "model.training", (f"batch normalisation: {held}", "module.training during the step")
        elif not self.dropouts and hasattr(
            self.root, "training"
        ):  # functional dropout may ask the model itself
            mode = "training" if self.root.training else "eval"
            yield "training_mode", (mode, "model.training during the step")
