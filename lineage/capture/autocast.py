"""Seeing autocast: it is on inside the forward pass only, so the first one is looked at."""

from __future__ import annotations

import contextlib
from typing import Any

from .effective import Seen, compiled
from .hook import Hook

COMPILED = "not looked at: a hook would break the compiled graph"


def look_once(model: Any, seen: Seen) -> None:
    """Note the autocast type of the model's next forward pass. The hook takes itself off after that one call.

    A compiled model is left alone, and says so.
    """
    if compiled(model) or not hasattr(model, "register_forward_pre_hook"):
        seen.autocast = COMPILED
        return
    import torch

    def hook(module: Any, inputs: Any) -> None:
        with contextlib.suppress(Exception):
            handle.remove()
            kind = next(module.parameters()).device.type
            on = torch.is_autocast_enabled(kind)
            seen.autocast = str(torch.get_autocast_dtype(kind)).removeprefix("torch.") if on else None

    handle = model.register_forward_pre_hook(Hook(hook))
