"""Batches of an alarm's step, written beside the ledger: safetensors and JSON only, never a pickle."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..capture.batch import leaves
from ..ledger import layout

KEPT = 3
"""Steps whose batches are kept in memory (references, no copies): alarms arrive up to two steps late."""


class Recent:
    """The batches of the last steps, as the training loop gave them."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, list[Any]]] = deque(maxlen=KEPT)

    def add(self, step: int, batch: Any) -> None:
        """Keep one more micro-batch of a step."""
        if self._steps and self._steps[-1][0] == step:
            self._steps[-1][1].append(batch)
        else:
            self._steps.append((step, [batch]))

    def of(self, step: int) -> list[Any]:
        """The micro-batches of a step, if they are still here."""
        return next((b for s, b in self._steps if s == step), [])


def save(ledger: Path, segment: str, rank: int, step: int, batches: Sequence[Any]) -> Path | None:
    """Write the micro-batches of one step. Returns the file, None where there is no batch.

    Raises `ImportError` where safetensors is not installed.
    """
    if not batches:
        return None
    from safetensors.torch import save as to_bytes  # the observer takes a `save_file` for the training code's

    tensors, other = {}, {}
    for micro, batch in enumerate(batches):
        for name, leaf in leaves(f"{micro}", batch):
            if hasattr(leaf, "element_size"):
                tensors[name] = leaf.detach().cpu().contiguous().clone()
            else:
                other[name] = repr(leaf)[:4096]
    folder = layout.make_folder(ledger / "captured" / segment)
    path = folder / f"rank{rank}-step{step}.safetensors"
    temporary = path.with_suffix(".tmp")
    metadata = {"step": str(step), "rank": str(rank), "other": json.dumps(other)}
    temporary.write_bytes(to_bytes(tensors, metadata=metadata))
    os.chmod(temporary, layout.FILE_MODE)
    os.replace(temporary, path)
    return path
