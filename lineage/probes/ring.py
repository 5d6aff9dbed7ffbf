"""Results on their way to the host: preallocated slots in pinned memory, filled without waiting, read when there.

A slot is in use from its copy until it was read. Where none is free, the newest results are dropped and counted:
waiting is not an option, and a slot under way must not be overwritten.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from .columns import WIDTH
from .read import on
from .sheet import Key, Sheet

DEPTH = 8
"""Steps that may be on their way. One or two are, where the host keeps up."""


@dataclass
class Slot:
    """One preallocated place on the host, and the event that says when it is filled."""

    host: Any
    event: Any = None
    busy: bool = False
    keys: list[Key] = field(default_factory=list)

    def ready(self) -> bool:
        """Whether the copy is done. Polls; never waits."""
        return self.event is None or bool(self.event.query())

    def take(self) -> list[tuple[Key, list[float]]]:
        """The rows, and the slot is free again. Call it only when `ready`."""
        found = list(zip(self.keys, self.host[: len(self.keys)].tolist(), strict=True))
        self.busy = False
        return found


class Ring:
    """The slots for one sheet."""

    def __init__(self, sheet: Sheet, depth: int = DEPTH) -> None:
        self.sheet = sheet
        self.dropped = 0
        self._cuda = sheet.device.type == "cuda"
        self._slots = [Slot(self._room(len(sheet.buffer)), self._event()) for _ in range(depth)]

    def _room(self, rows: int) -> Any:
        return torch.empty(rows, WIDTH, dtype=torch.float64, pin_memory=self._cuda)

    def _event(self) -> Any:
        return torch.cuda.Event() if self._cuda else None

    def push(self) -> Slot | None:
        """Send the sheet on its way and clear it for the next step; None where no slot is free.

        Copy and clearing are queued on the current stream, so what reads the step's tensors must have been
        queued there, or on a stream that it waits for.
        """
        slot = next((s for s in self._slots if not s.busy), None)
        used = self.sheet.used()
        if slot is None:
            self.dropped += 1
        else:
            if len(slot.host) < len(used):
                slot.host = self._room(len(self.sheet.buffer))
            slot.host[: len(used)].copy_(used, non_blocking=True)
            slot.keys = list(self.sheet.keys)
            slot.busy = True
            if slot.event is not None:
                with on(self.sheet.device):
                    slot.event.record(torch.cuda.current_stream(self.sheet.device))
        used.zero_()
        return slot
