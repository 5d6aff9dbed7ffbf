"""Imported code that git does not hold: modules outside repository, standard library and site-packages."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path

from .. import __file__ as _own_file
from .._rooms import schemas, trackers
from . import canonical, secrets
from .files import Reader

MOST = 2000


def digests(reader: Reader, repository: Path | None, base: Path) -> dict[str, str]:
    """Return path -> digest of the masked source for every such module file.

    Paths below `base` are relative to it, others absolute; secrets in them are masked. Modules of this
    package are left out: their version stands among the packages.
    """
    found: dict[str, str] = {}
    for path in sorted(set(_files(repository)))[:MOST]:
        digest = reader.digest(path)
        if digest:
            shown = path.relative_to(base) if path.is_relative_to(base) else path
            found[secrets.mask(canonical.text(str(shown)))[0]] = digest
    return found


def is_installed(path: Path) -> bool:
    """Say whether a file belongs to Python, a distribution or this package, not to the user's code."""
    if any(part in ("site-packages", "dist-packages") for part in path.parts):
        return True
    return any(path.is_relative_to(folder) for folder in _known_folders())


def inside(repository: Path) -> set[Path]:
    """The loaded module files in a repository, apart from what is installed below it."""
    return set(_files(repository, inside=True))


def of_the_user() -> set[Path]:
    """Every loaded module file of the user's code, wherever it lies."""
    return set(_files(Path("/"), inside=True))


def _files(repository: Path | None, *, inside: bool = False) -> Iterator[Path]:
    """Module files outside the repository, or those `inside` it."""
    folders: dict[str, Path | None] = {}  # looked into once: thousands of modules lie in hundreds of folders
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if not isinstance(name, str) or not name:
            continue
        folder, file = os.path.split(os.path.realpath(name) if os.path.islink(name) else name)
        if folder not in folders:
            real, installed = _looked_into(folder)
            in_repository = not installed and repository is not None and real.is_relative_to(repository)
            folders[folder] = None if installed or in_repository != inside else real
        where = folders[folder]
        if where is not None and (where / file).is_file():
            yield where / file


@lru_cache(maxsize=4096)
def _looked_into(folder: str) -> tuple[Path, bool]:
    """Where a folder really lies, and whether what is in it is installed. Once per process: each save asks for it."""
    real = Path(os.path.realpath(folder))
    return real, is_installed(real)


@cache
def _known_folders() -> list[Path]:
    paths = sysconfig.get_paths()
    names = [paths[k] for k in ("stdlib", "platstdlib", "purelib", "platlib") if k in paths]
    names += [str(Path(p) / "bin") for p in {sys.prefix, sys.base_prefix}]
    names += site.getsitepackages() if hasattr(site, "getsitepackages") else []
    own = [_own_file, schemas.__file__, trackers.__file__]
    folders = [Path(n) for n in names] + [Path(f).parent for f in own if f]
    return [folder.resolve() for folder in folders]
