"""Reading a run's page back: what a tracker holds of a run, whether the layer was there or not."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from . import plugins
from .base import TrackerRefused

MOST_FILES = 200_000
"""Files of a page that are taken."""
MOST_BYTES = 4 * 1024**3
"""Bytes of them together: a page that claims more is not read onto this disk."""


@dataclass(frozen=True)
class HeldFile:
    """A file under `lineage/` on the page."""

    name: str
    """without `lineage/`"""
    size: int


@dataclass(frozen=True)
class HeldRoot:
    """A root that stands on the page as an anchor."""

    root: str
    place: str


@dataclass(frozen=True)
class Logged:
    """What the training code logged together."""

    step: int
    """as the training code counts"""
    axis: str
    """what says so"""
    values: Mapping[str, float]
    at: datetime | None
    number: int
    """place in the source, from 1"""


@dataclass(frozen=True)
class Asked:
    """The config as it stood from some moment on."""

    values: Mapping[str, Any]
    before_row: int
    """number of the first row that was logged after it"""
    changed: Sequence[str] = ()
    """keys that were set then"""
    number: int = 0
    """place in the source"""
    at: datetime | None = None


@dataclass
class About:
    """What the tracker says of the run beside its values: told on, never judged."""

    name: str = ""
    status: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    commit: str = ""
    began: datetime | None = None
    """when the run began, or the tracker first heard of it"""
    axes: list[tuple[str, str]] = field(default_factory=list)
    """key or pattern of keys -> the column that their step is read from"""
    gaps: list[str] = field(default_factory=list)
    """what a reader must know of this page: a torn log, config values of the last moment only"""


@runtime_checkable
class Held(Protocol):
    """One page, read only. Every call may raise `TrackerUnavailable` or `TrackerRefused`."""

    tracker: str
    id: str
    place: str
    """the server, store or folder that has the page"""
    source: str
    """what `lineage pull` takes to read it again"""

    def run(self) -> str | None:
        """The lineage run id that stands on the page; None where the layer was not there, or did not say it."""
        ...

    def about(self) -> About:
        """What the tracker says of the run."""
        ...

    def anchors(self) -> list[HeldRoot]:
        """The roots that stand on the page."""
        ...

    def files(self) -> list[HeldFile]:
        """The journal's chunks on the page."""
        ...

    def fetch(self, folder: Path) -> None:
        """Put these files into a folder, under their names."""
        ...

    def rows(self) -> Iterator[Logged]:
        """What the training code logged, in order; nothing of ours."""
        ...

    def configs(self) -> list[Asked]:
        """The config, and what became of it, as far as the tracker keeps that."""
        ...

    def others(self) -> list[Held]:
        """Further pages of the same lineage run that can be seen from here."""
        ...


HELD = MappingProxyType(
    {
        "mlflow": ("mlflow_.held:MlflowHeld", "pip install 'runlineage[mlflow]'"),
        "wandb": ("wandb_.held_server:WandbServerHeld", "pip install 'runlineage[wandb]'"),
        "wandb-folder": ("wandb_.held:WandbFolderHeld", "pip install 'runlineage[wandb]'"),
        "folder": ("held:FolderHeld", ""),
    }
)
"""kind of source -> (module:class relative to this package, what installs it)"""


def open_held(kind: str, *arguments: Any) -> Held:
    """Open a page for reading. Raises `ImportError` that names what installs the tracker, or `KeyError`."""
    if kind not in HELD:
        theirs: Held = plugins.held(kind, *arguments)
        return theirs
    path, hint = HELD[kind]
    module, _, name = path.partition(":")
    try:
        cls = getattr(importlib.import_module(f".{module}", __package__), name)
        page: Held = cls(*arguments)
    except ImportError as e:
        raise ImportError(f"reading a {kind.partition('-')[0]} page needs {e.name}: {hint}") from e
    return page


def bounded(files: Sequence[HeldFile], place: str) -> list[HeldFile]:
    """The files, where they are as many and as large as a ledger's may be. Raises `TrackerRefused`."""
    size = sum(max(0, f.size) for f in files)
    if len(files) > MOST_FILES or size > MOST_BYTES:
        raise TrackerRefused(
            f"{place} has {len(files):,} files of {size:,} bytes under lineage/; at most {MOST_FILES:,} of "
            f"{MOST_BYTES:,} bytes are taken. Nothing was written."
        )
    return list(files)


def in_folder(folder: Path) -> list[HeldFile]:
    """The files under a folder, by relative name. Links, and what lies behind them, are left out."""
    out = []
    for base, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(f for f in folders if not (Path(base) / f).is_symlink())
        for name in sorted(names):
            path = Path(base) / name
            if path.is_file() and not path.is_symlink():
                out.append(HeldFile(path.relative_to(folder).as_posix(), path.stat().st_size))
    return out


def copy_into(source: Path, files: Sequence[HeldFile], folder: Path) -> None:
    """Copy files of a folder; no more of each than it had when it was listed."""
    for f in files:
        target = folder / f.name
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (source / f.name).open("rb") as read:
            target.write_bytes(read.read(f.size))


class FolderHeld:
    """A folder into which somebody downloaded what a page has: the folder `lineage`, or one that holds it.

    It has no anchor: that stands on the page, in a tag or a config key, not in a file.
    """

    tracker = "folder"

    def __init__(self, folder: Path) -> None:
        self.id, self.place, self.source = folder.name, str(folder), str(folder)
        self._home = next(
            (
                p
                for p in (folder, folder / "lineage", folder / "files" / "lineage")
                if (p / "journal").is_dir()
            ),
            folder,
        )

    def run(self) -> str | None:
        """The journal alone says it."""
        return None

    def about(self) -> About:
        """A folder says nothing beside its files."""
        return About(gaps=["what was logged, and the anchor, stand on the page, and not in these files"])

    def anchors(self) -> list[HeldRoot]:
        """None: see above."""
        return []

    def files(self) -> list[HeldFile]:
        """The chunks of the journal."""
        return bounded([f for f in in_folder(self._home) if f.name.startswith("journal/")], self.place)

    def fetch(self, folder: Path) -> None:
        """Copy them."""
        copy_into(self._home, self.files(), folder)

    def rows(self) -> Iterator[Logged]:
        """None: they are not in files."""
        yield from ()

    def configs(self) -> list[Asked]:
        """None: it is not in files."""
        return []

    def others(self) -> list[Held]:
        """None: a download is of one page."""
        return []
