"""Walking through a read pickle: named leaves, without recursion, each container once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .pickle_values import Made

MOST = 10_000_000
DEEPEST = 24


def walk(value: Any) -> Iterator[tuple[str, Any]]:
    """(path of keys joined by dots, leaf) in the order of the pickle. A container met again is passed over."""
    seen: set[int] = set()
    stack: list[tuple[str, Any, int]] = [("", value, 0)]
    left = MOST
    while stack:
        path, at, depth = stack.pop()
        left -= 1
        if left < 0:
            return
        inside: list[tuple[Any, Any]] = []
        if isinstance(at, dict):
            inside = list(at.items())
        elif isinstance(at, list | tuple):
            inside = list(enumerate(at))
        elif type(at) is Made:
            inside = [*enumerate(at.args), *enumerate(at.items), *at.pairs.items()]
            inside += list(at.state.items()) if isinstance(at.state, dict) else [("state", at.state)]
        if not inside:
            yield path, at
            continue
        if id(at) in seen or depth >= DEEPEST:
            continue
        seen.add(id(at))
        prefix = path + "." if path else ""
        stack.extend((prefix + _key(k), v, depth + 1) for k, v in reversed(inside))


def _key(key: Any) -> str:
    return str(key)[:300] if isinstance(key, str | int | float | bytes | None) else type(key).__name__
