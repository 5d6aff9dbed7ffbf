"""Adapters of third parties: found through the entry-point group `lineage.trackers`, and loaded when one is needed.

An entry point's name is the top-level module of the run objects that its adapter takes, and at the same time the
tracker's kind. So no adapter is imported to ask whether a run is its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from .base import Tracker, TrackerRefused

GROUP = "lineage.trackers"
"""The entry-point group."""

_METHODS = ("alias", "requested", "show", "publish", "close")


def installed() -> Mapping[str, EntryPoint]:
    """The adapters that other distributions bring, by kind; of two with one name, the first that is found."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, point)
    return found


def is_tracker(run: object) -> bool:
    """Whether an object is itself an adapter: its class has the protocol's methods.

    The class is asked, not the object: an object that answers to any name is no adapter.
    """
    return isinstance(getattr(run, "kind", None), str) and all(
        callable(getattr(type(run), name, None)) for name in _METHODS
    )


def load(kind: str) -> Any:
    """Load the adapter class of a kind.

    Raises `KeyError` where nobody brings that kind, `ImportError` that names the distribution where it cannot be
    loaded.
    """
    point = installed().get(kind)
    if point is None:
        raise KeyError(kind)
    try:
        return point.load()
    except Exception as e:  # somebody else's code: whatever it raises while it is imported
        raise ImportError(
            f"the {kind} adapter {point.value} of {_of(point)} cannot be loaded: {type(e).__name__}: {e}"
        ) from e


def built(kind: str, run: Any, **options: Any) -> Tracker:
    """Build a third party's adapter around a run object. Raises what `load` does, and `TypeError` for no adapter."""
    tracker: Tracker = load(kind)(run, **options)
    if not is_tracker(tracker):
        missing = [m for m in ("kind", *_METHODS) if not hasattr(tracker, m)]
        raise TypeError(f"the {kind} adapter lacks {', '.join(missing)}; see docs/sinks.md")
    return tracker


def reopened(kind: str, alias: Any) -> Tracker:
    """Open a page once more from its alias, after the training process has gone: for `lineage sync`.

    Raises what `load` does, and `NotImplementedError` where the adapter has no class method `reopen(alias)`.
    """
    reopen = getattr(load(kind), "reopen", None)
    if reopen is None:
        raise NotImplementedError(
            f"the {kind} adapter has no reopen(alias), so its page cannot be opened again"
        )
    tracker: Tracker = reopen(alias)
    return tracker


def held(kind: str, where: str) -> Any:
    """Open a page for reading, as `lineage pull KIND://WHERE` asks.

    Raises what `load` does, and `TrackerRefused` where the adapter has no class method `held(where)`.
    """
    method = getattr(load(kind), "held", None)
    if method is None:
        raise TrackerRefused(f"the {kind} adapter has no held(where), so its pages cannot be read back")
    return method(where)


def _of(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown distribution"
