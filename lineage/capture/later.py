"""Values that come off the device later: copied without waiting, read when they have arrived."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class Later:
    """A small tensor on its way to the host.

    On the CPU it is there at once. On CUDA it is copied to pinned memory without blocking, and an event says
    when it may be read: `ready()` polls, nothing ever waits.
    """

    __slots__ = ("_event", "_host", "_list")

    def __init__(self, tensor: Any) -> None:
        self._list: list[Any] | None = None
        self._event = None
        t = tensor.detach()
        if t.device.type == "cuda":
            import torch

            self._host = torch.empty(t.shape, dtype=t.dtype, pin_memory=True)
            self._host.copy_(t, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()
        else:
            self._host = t
            self._list = t.reshape(-1).tolist()

    def ready(self) -> bool:
        """Whether the value has arrived."""
        return self._event is None or bool(self._event.query())

    def values(self) -> list[Any]:
        """The values as a flat list. Call it only when `ready()`."""
        if self._list is None:
            self._list = self._host.reshape(-1).tolist()
        return self._list


def wait(ready: Callable[[], bool], timeout: float, pause: float = 0.005) -> bool:
    """Poll until something is ready, for at most `timeout` seconds; tells whether it is.

    For the layer's own threads and the end of a run, never for the training thread between two steps.
    """
    end = time.monotonic() + timeout
    while not ready():
        if time.monotonic() >= end:
            return False
        time.sleep(pause)
    return True
