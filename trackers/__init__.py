"""Adapters to W&B, MLflow and the local store, behind one small protocol."""

from .base import PREFIX, Page, Shown, Tracker, TrackerRefused, TrackerUnavailable
from .held import About, Asked, FolderHeld, Held, HeldFile, HeldRoot, Logged, open_held
from .outbox import Outbox
from .registry import ADAPTERS, adapter, kind_of
from .text import headline, markdown

__all__ = [
    "ADAPTERS",
    "PREFIX",
    "About",
    "Asked",
    "FolderHeld",
    "Held",
    "HeldFile",
    "HeldRoot",
    "Logged",
    "Outbox",
    "Page",
    "Shown",
    "Tracker",
    "TrackerRefused",
    "TrackerUnavailable",
    "adapter",
    "headline",
    "kind_of",
    "markdown",
    "open_held",
]
