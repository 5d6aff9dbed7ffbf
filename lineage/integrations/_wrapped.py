"""Methods of the user's own objects, with something of ours before or after them; and files that others write."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


class Wrapped:
    """Methods of an object that are replaced on that one object by others which call them, until `undo`.

    What others put in place later is left: then ours stays beneath it, and passes everything through.
    """

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []

    def wrap(self, holder: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> bool:
        """Replace `holder.name` by `make(original)`. False where there is no such method."""
        original = getattr(holder, name, None)
        if not callable(original):
            return False
        ours = make(original)
        self._done.append((holder, name, ours, vars(holder).get(name)))
        setattr(holder, name, ours)
        return True

    def undo(self) -> None:
        """Put everything back."""
        while self._done:
            holder, name, ours, before = self._done.pop()
            if vars(holder).get(name) is not ours:
                continue
            if before is None:  # the method of its class
                delattr(holder, name)
            else:
                setattr(holder, name, before)


def wait_for(paths: Sequence[Path], seconds: float) -> bool:
    """Wait until files are there and no longer grow. On a thread of the layer only, never the training's."""
    until, sizes = time.monotonic() + seconds, [-1] * len(paths)
    while True:
        now = [p.stat().st_size if p.exists() else -1 for p in paths]
        if now == sizes and -1 not in now:
            return True
        if time.monotonic() > until:
            return False
        sizes = now
        time.sleep(0.05)
