"""A hook on a module of the user's that its copies and its pickle do without."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


class Hook:
    """Calls `look` on the module that it was put on.

    A plain function would not be pickled where it is local to another, so `torch.save(model)` would fail; and a copy
    of the model (weight averaging, for one) would call it too, as if it were the model. What is copied or pickled in
    place of this takes any arguments, returns None, and needs nothing of ours to be loaded.
    """

    def __init__(self, look: Callable[..., Any]) -> None:
        self.look = look

    def __call__(self, *args: Any) -> None:
        """Look; what the module gives is left as it is."""
        self.look(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")
