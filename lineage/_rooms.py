"""The one place where this room imports the others: schemas and trackers.

These are common words. A user's own `schemas/` beside train.py, or another distribution, may stand where
ours is looked for. So each package carries a build marker (`_build.py`), which is read as text and compared
with ours; nobody else's code is run to find out. If either name leads elsewhere, both siblings are loaded by
file location as `lineage.schemas` and `lineage.trackers`, and the other module is left alone.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ._build import DISTRIBUTION, VERSION

ROOMS = ("schemas", "trackers")


class DamagedInstallation(ImportError):
    """LIN-L005: the installed files of runlineage are mixed with another distribution's, or gone."""


def _marker(folder: Path) -> tuple[str, str] | None:
    """Read the build marker of a package folder as text."""
    try:
        text = (folder / "_build.py").read_text(encoding="utf-8")
    except OSError:
        return None
    name = re.search(r'^DISTRIBUTION = "([^"]+)"', text, re.M)
    version = re.search(r'^VERSION = "([^"]+)"', text, re.M)
    return (name.group(1), version.group(1)) if name and version else None


def _ours(folder: Path) -> bool:
    return _marker(folder) == (DISTRIBUTION, VERSION) and (folder / "__init__.py").is_file()


def _resolved(room: str) -> Path | None:
    """Return the folder to which `import <room>` would lead, without importing it."""
    loaded = sys.modules.get(room)
    try:
        places = list(loaded.__path__) if loaded is not None else None
        if places is None:
            spec = importlib.util.find_spec(room)
            places = list(spec.submodule_search_locations or ()) if spec else []
    except (ImportError, AttributeError, ValueError):
        return None
    return Path(places[0]) if places else None


def _load_beside(room: str) -> ModuleType:
    """Load the sibling package that lies beside this one as `lineage.<room>`."""
    folder = Path(__file__).parent.parent / room
    if not _ours(folder):
        found = _marker(folder)
        what = (
            f"holds {found[0]} {found[1]}, not {DISTRIBUTION} {VERSION}"
            if found
            else "is another distribution's, or gone"
        )
        raise DamagedInstallation(
            f"LIN-L005: {folder} {what}. Another distribution has overwritten or removed files of "
            f"{DISTRIBUTION}. Repair it with: pip install --force-reinstall {DISTRIBUTION}"
        )
    name = f"{__package__}.{room}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _load() -> tuple[ModuleType, ModuleType]:
    folders = [_resolved(room) for room in ROOMS]
    if all(f is not None and _ours(f) for f in folders):
        return importlib.import_module("schemas"), importlib.import_module("trackers")
    return _load_beside("schemas"), _load_beside("trackers")


if TYPE_CHECKING:
    import schemas
    import trackers
else:
    schemas, trackers = _load()

__all__ = ["DamagedInstallation", "schemas", "trackers"]
