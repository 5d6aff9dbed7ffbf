"""The wrapper that stands around an observed call: the original first, then a copy of what went in and came out.

The name of this file is part of how it works. `warnings.warn(..., stacklevel=2)` in a wrapped function shall point
at the user's line, not at the wrapper's; Python skips frames whose file name holds both `importlib` and
`_bootstrap` when it counts (`warnings._is_internal_frame`).
"""

from __future__ import annotations

import functools

from .events import SWITCH, failed

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` takes longer to import than all of this
    from collections.abc import Callable
    from typing import Any

    Copy = Callable[[tuple[Any, ...], dict[str, Any], Any], None]
    """(positional arguments, keyword arguments, result): leaves a copy in the queue."""
    Refused = Callable[[tuple[Any, ...], dict[str, Any], Exception], None]
    """(positional arguments, keyword arguments, exception): the original raised."""
    Before = Callable[[tuple[Any, ...], dict[str, Any]], None]


def around(
    original: Callable[..., Any], copy: Copy, refused: Refused | None = None, before: Before | None = None
) -> Callable[..., Any]:
    """Return a function that does what `original` does, and leaves a copy.

    Its result and its exceptions are the original's own objects; its name, documentation, signature and pickled
    form are the original's.
    """

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if SWITCH.on:
            try:
                copy(args, kwargs, result)
            except Exception as error:
                failed(error)
        return result

    @functools.wraps(original)
    def full(*args: Any, **kwargs: Any) -> Any:
        if before is not None and SWITCH.on:
            try:
                before(args, kwargs)
            except Exception as error:
                failed(error)
        try:
            result = original(*args, **kwargs)
        except Exception as error:
            if refused is not None and SWITCH.on:
                _tell(refused, args, kwargs, error)
            raise
        if SWITCH.on:
            try:
                copy(args, kwargs, result)
            except Exception as error:
                failed(error)
        return result

    made = call if refused is None and before is None else full
    made.__lineage_original__ = original  # type: ignore[attr-defined]
    if not hasattr(original, "__wrapped__"):
        _sign(made, original)
    return made


def _tell(refused: Refused, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> None:
    try:
        refused(args, kwargs, error)
    except Exception as ours:
        failed(ours)


def _sign(made: Any, original: Any) -> None:
    """Some readers of signatures do not follow `__wrapped__` (`inspect.getfullargspec`)."""
    import contextlib
    import inspect

    with contextlib.suppress(TypeError, ValueError):
        made.__signature__ = inspect.signature(original)
