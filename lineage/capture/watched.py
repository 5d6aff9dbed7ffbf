"""The live objects that the layer was given, whatever was given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .names import clean


@dataclass
class Watched:
    """The training loop's own objects. Each is optional; more of them means that more can be known."""

    model: Any = None
    optimizer: Any = None
    scheduler: Any = None
    scaler: Any = None
    loader: Any = None
    ema: Any = None
    """an averaged copy of the weights: a module, an object with a state_dict, or tensors in a dict or a list"""
    generators: dict[str, str] = field(default_factory=dict)
    """random-number generators as they stood at attach"""
    batches_seen: int = field(default=0)
    """batches counted since attach, for loaders that keep no position"""

    def parameters(self) -> Iterator[tuple[str, Any]]:
        """(clean name, parameter) of the model, each parameter once."""
        if self.model is None:
            return
        for name, p in self.model.named_parameters():
            yield clean(name), p

    def buffers(self) -> Iterator[tuple[str, Any]]:
        """(clean name, buffer) of the model."""
        if self.model is None:
            return
        for name, b in self.model.named_buffers():
            yield clean(name), b

    def epoch(self) -> int | None:
        """Batches of an epoch, where the loader tells its length."""
        try:
            return len(self.loader) or None
        except Exception:
            return None

    def parameter_names(self) -> dict[int, str]:
        """id of a parameter -> its clean name."""
        return {id(p): name for name, p in self.parameters()}


LINES = {
    "model": "lineage.attach(run, model=model)",
    "optimizer": "lineage.attach(run, optimizer=optimizer)",
    "scheduler": "lineage.attach(run, scheduler=scheduler)",
    "scaler": "lineage.attach(run, scaler=scaler)",
    "loader": "lineage.attach(run, loader=loader)",
    "ema": "lineage.attach(run, ema=ema)",
    "config": "lineage.attach(run, config=config)",
}
"""What is not given -> the line of code that would give it."""


def readable(name: str, value: Any) -> None:
    """Raise where nothing of an object can be read: every attribute of it raises, or it is several in a list.

    One is followed of each; a loader, or averaged weights, may be a list.
    """
    hasattr(value, "state_dict")
    if name not in ("loader", "ema") and isinstance(value, list | tuple | dict):
        raise TypeError(f"a {type(value).__name__} where one {name} is followed: give the one that counts")
