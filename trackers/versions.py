"""Which versions of wandb and mlflow the adapters are tested on, and what is said outside that range.

Nothing is refused for its version: an adapter does what the client that is there can do, and training goes on
whatever that is. docs/versions.md has the table of what was run, `python -m tests.matrix` runs it.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from importlib import metadata
from types import MappingProxyType

CODE = "LIN-T005"


@dataclass(frozen=True)
class Range:
    """Both ends were run, and are inside."""

    oldest: str
    """the floor of the extra in pyproject.toml"""
    newest: str


TESTED = MappingProxyType({"wandb": Range("0.28.2", "0.31.0"), "mlflow": Range("3.2.0", "3.17.2")})
"""Module of the client -> the versions on which the whole test suite was run."""


def installed(kind: str) -> str | None:
    """The version of a tracker's client in this process; None where it cannot be told."""
    said = getattr(sys.modules.get(kind), "__version__", None)
    if isinstance(said, str):
        return said
    try:
        return metadata.version(kind)
    except metadata.PackageNotFoundError:
        return None


def said(kind: str) -> str | None:
    """What is to be said of the client of this process; None where nothing is."""
    return beyond(kind, installed(kind)) if kind in TESTED else None


def beyond(kind: str, version: str | None) -> str | None:
    """What a reader must know of a client outside the tested range; None inside it, and of other trackers.

    A later patch of the newest minor version is inside.
    """
    tested = TESTED.get(kind)
    if tested is None:
        return None
    span = f"The adapter is tested on {kind} {tested.oldest} to {tested.newest}"
    found = _parts(version)
    if found is None:
        return f"{span}; which version this is, {version!r}, cannot be told. {_REST}"
    if found < (_parts(tested.oldest) or ()):
        return f"{span}; {version} is older. {_REST} To be inside: pip install '{kind}>={tested.oldest}'"
    if found[:2] > (_parts(tested.newest) or ())[:2]:
        return f"{span}; {version} is newer. {_REST} See whether a newer runlineage knows it"
    return None


_REST = (
    "Training and the ledger do not depend on it; what the page cannot show is named in the ledger, and "
    "`lineage sync` shows it later."
)


def _parts(version: str | None) -> tuple[int, ...] | None:
    """A release as numbers: of `0.32.0.dev1` (0, 32, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version or "")
    return tuple(int(p) for p in found[0].split(".")) if found else None
