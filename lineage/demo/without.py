"""What stands in the layer's place where the script runs without it."""

from __future__ import annotations

from typing import Any


class NoLayer:
    """The verbs that the script calls, doing nothing."""

    should_stop = False

    def step(self, step: int, batch: Any = None) -> NoLayer:
        """Nothing."""
        return self

    def __enter__(self) -> NoLayer:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def loss(self, loss: Any) -> None:
        """Nothing."""

    def checkpoint(self, path: Any, *, step: int | None = None) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""
