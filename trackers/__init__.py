"""Adapters to W&B, MLflow and the local store, behind one small protocol."""

from . import plugins, versions
from .base import PREFIX, NotMine, Page, Shown, Tracker, TrackerRefused, TrackerUnavailable
from .held import About, Asked, FolderHeld, Held, HeldFile, HeldRoot, Logged, open_held
from .outbox import Outbox
from .plain import FREE_TEXT, plain
from .registry import ADAPTERS, adapter, kind_of
from .text import headline, markdown

__all__ = [
    "ADAPTERS",
    "FREE_TEXT",
    "PREFIX",
    "About",
    "Asked",
    "FolderHeld",
    "Held",
    "HeldFile",
    "HeldRoot",
    "Logged",
    "NotMine",
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
    "plain",
    "plugins",
    "versions",
]
