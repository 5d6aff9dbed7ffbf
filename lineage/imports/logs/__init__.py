"""Training logs of a run that had no layer, read as a stream: told by content, cut into segments, written as series.

`is_log` tells whether a file is one of the known formats; `import_logs` makes a ledger of the logs of one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from . import refused, registry
from .importing import Import
from .rows import ImportTrouble

__all__ = ["Import", "ImportTrouble", "import_logs", "is_log", "what_else"]


def is_log(path: Path) -> bool:
    """Whether a file is a training log of a known format. Raises `ImportTrouble` where it cannot be read."""
    return registry.detect(path) is not None


def what_else(path: Path) -> str | None:
    """What a file is that is no log, in words, where that is known."""
    return refused.why(path)


def import_logs(paths: Sequence[Path], run: str, root: Path) -> Import:
    """Read the logs of one run into the ledger `root/<run id>`, and return what was read.

    Raises `ImportTrouble` where a file cannot be read or the ledger is there already; nothing is left behind then.
    """
    done = Import(paths, run, root)
    done.write()
    return done
