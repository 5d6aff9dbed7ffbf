"""Containment: what fails inside the layer is said once, recorded once, and training goes on."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

log = logging.getLogger("lineage")

P = ParamSpec("P")
R = TypeVar("R")


class Contained(Protocol):
    """Something that can say that a part of it failed."""

    def trouble(self, part: str, error: BaseException, consequence: str) -> None:
        """Say it once in the log and in the ledger."""
        ...


def contained(
    part: str, consequence: str, default: Any = None
) -> Callable[[Callable[Concatenate[Any, P], R]], Callable[Concatenate[Any, P], R]]:
    """Make a method swallow every exception of its own: it then returns `default`.

    `KeyboardInterrupt` and `SystemExit` are the user's and pass through.
    """

    def decorate(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
        @functools.wraps(method)
        def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return method(self, *args, **kwargs)
            except Exception as e:
                self.trouble(part, e, consequence)
                return default() if callable(default) else default  # type: ignore[no-any-return]

        return call  # type: ignore[return-value]

    return decorate


def describe(error: BaseException) -> str:
    """Type and message of an exception, with secrets masked and shortened to 500 characters."""
    from ..capture.secrets import mask

    return mask(f"{type(error).__name__}: {_message(error)}")[0][:500]


def _message(error: BaseException) -> str:
    """The message; pydantic's without the input, which it shortens: half a secret has no shape to be masked by."""
    details = getattr(error, "errors", None)
    if type(error).__name__ != "ValidationError" or not callable(details):
        return str(error)
    found = details(include_input=False, include_context=False, include_url=False)
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['type']}" for e in found)
