"""Seeing the clip threshold: no object holds it, so the calls that clip are watched.

Both of torch's functions are watched where every caller comes by, also those that imported the function by
name. `clip_grad_norm_` looks its inner function up in its own module at each call, so that one is replaced
there. `clip_grad_value_` has no inner function: what everybody holds is a wrapper that turns gradients off
around it, and the function in the wrapper's closure is replaced. The original runs first, its result is
returned untouched, and what fails in watching is swallowed.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

Sink = Callable[[float, Any], None]
"""Called with (threshold, total norm before clipping as a 0-d tensor)."""
ValueSink = Callable[[float], None]
"""Called with the largest magnitude that an element may have."""

_INNER = "_clip_grads_with_norm_"
_MARK = "_lineage_original"
_lock = threading.Lock()
_sinks: list[tuple[Sink, ValueSink | None]] = []


def watch(sink: Sink, by_value: ValueSink | None = None) -> Callable[[], None]:
    """Call `sink` at each clipping by norm in this process, and `by_value` at each clipping by value.

    Returns the function that ends it. Raises `AttributeError` where this torch has no such inner function.
    """
    from torch.nn.utils import clip_grad

    sinks = (sink, by_value)
    with _lock:
        inner = getattr(clip_grad, _INNER)
        if not hasattr(inner, _MARK):
            setattr(clip_grad, _INNER, _norm_watched(inner))
        cell = _value_cell(clip_grad)
        if cell is not None and not hasattr(cell.cell_contents, _MARK):
            cell.cell_contents = _value_watched(cell.cell_contents)
        _sinks.append(sinks)
    return lambda: _unwatch(sinks)


def sees_values() -> bool:
    """Whether clipping by value can be watched in this torch."""
    from torch.nn.utils import clip_grad

    return _value_cell(clip_grad) is not None


def _value_cell(clip_grad: Any) -> Any:
    """The cell of the wrapper around `clip_grad_value_` that holds the function itself; None where there is none."""
    outer = clip_grad.clip_grad_value_
    names = getattr(getattr(outer, "__code__", None), "co_freevars", ())
    cells = dict(zip(names, getattr(outer, "__closure__", None) or (), strict=False))
    return cells.get("func")


def _norm_watched(original: Callable[..., Any]) -> Callable[..., Any]:
    def clip_grads_with_norm_(
        parameters: Any, max_norm: Any, total_norm: Any, *args: Any, **kwargs: Any
    ) -> Any:
        result = original(parameters, max_norm, total_norm, *args, **kwargs)
        for sink, _ in tuple(_sinks):
            with contextlib.suppress(Exception):
                sink(float(max_norm), total_norm)
        return result

    setattr(clip_grads_with_norm_, _MARK, original)
    return clip_grads_with_norm_


def _value_watched(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def clip_grad_value_(parameters: Any, clip_value: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(parameters, clip_value, *args, **kwargs)
        for _, sink in tuple(_sinks):
            if sink is not None:
                with contextlib.suppress(Exception):
                    sink(float(clip_value))
        return result

    setattr(clip_grad_value_, _MARK, original)
    return clip_grad_value_


def _unwatch(sinks: tuple[Sink, ValueSink | None]) -> None:
    from torch.nn.utils import clip_grad

    with _lock:
        if sinks in _sinks:
            _sinks.remove(sinks)
        if _sinks:
            return
        inner = getattr(clip_grad, _INNER)
        setattr(clip_grad, _INNER, getattr(inner, _MARK, inner))
        cell = _value_cell(clip_grad)
        if cell is not None:
            cell.cell_contents = getattr(cell.cell_contents, _MARK, cell.cell_contents)
