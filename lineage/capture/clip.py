"""Seeing the clip threshold: no object holds it, so the call that clips is watched.

`torch.nn.utils.clip_grad_norm_` looks its inner function up in its own module at each call, so watching that
one sees every caller, also those that imported the outer function by name. The original runs first, its
result is returned untouched, and what fails in watching is swallowed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

Sink = Callable[[float, Any], None]
"""Called with (threshold, total norm before clipping as a 0-d tensor)."""

_INNER = "_clip_grads_with_norm_"
_lock = threading.Lock()
_sinks: list[Sink] = []


def watch(sink: Sink) -> Callable[[], None]:
    """Call `sink` at each clipping in this process; returns the function that ends it.

    Raises `AttributeError` where this torch has no such inner function.
    """
    from torch.nn.utils import clip_grad

    with _lock:
        inner = getattr(clip_grad, _INNER)
        if not hasattr(inner, "_lineage_original"):
            setattr(clip_grad, _INNER, _watched(inner))
        _sinks.append(sink)
    return lambda: _unwatch(sink)


def _watched(original: Callable[..., Any]) -> Callable[..., Any]:
    def clip_grads_with_norm_(
        parameters: Any, max_norm: Any, total_norm: Any, *args: Any, **kwargs: Any
    ) -> Any:
        result = original(parameters, max_norm, total_norm, *args, **kwargs)
        for sink in tuple(_sinks):
            with contextlib.suppress(Exception):
                sink(float(max_norm), total_norm)
        return result

    clip_grads_with_norm_._lineage_original = original  # type: ignore[attr-defined]
    return clip_grads_with_norm_


def _unwatch(sink: Sink) -> None:
    from torch.nn.utils import clip_grad

    with _lock:
        if sink in _sinks:
            _sinks.remove(sink)
        inner = getattr(clip_grad, _INNER)
        if not _sinks and hasattr(inner, "_lineage_original"):
            setattr(clip_grad, _INNER, inner._lineage_original)
