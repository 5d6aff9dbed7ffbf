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
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ._build import DISTRIBUTION, VERSION

SIGNS = {"schemas": "RECORD_SCHEMA", "trackers": "TrackerRefused"}
"""Room -> a word that stands in its `__init__.py` and hardly in another's.

A distribution that is installed over ours replaces `__init__.py` and leaves our `_build.py` where it was, so
the marker alone would not tell.
"""

REPAIR = f"pip install --force-reinstall {DISTRIBUTION}"


class DamagedInstallation(ImportError):
    """LIN-L005: the installed files of runlineage are mixed with another distribution's, or gone."""

    def __init__(self, folder: Path, found: str) -> None:
        super().__init__(
            f"LIN-L005: {folder} {found}. Its files were replaced or removed after {DISTRIBUTION} {VERSION} "
            f"was installed, most likely by another distribution. Repair it with: {REPAIR}"
        )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _fault(room: str, folder: Path) -> str | None:
    """Say why a package folder is not this version's room, None where it is. Runs nobody's code."""
    marker, init = _text(folder / "_build.py"), _text(folder / "__init__.py")
    if marker is None and init is None:
        return "is gone"
    found = re.search(r'^DISTRIBUTION = "([^"]+)"\nVERSION = "([^"]+)"', marker or "", re.M)
    if found is None:
        return f"is not {DISTRIBUTION}'s"
    if found.groups() != (DISTRIBUTION, VERSION):
        return f"holds {found[1]} {found[2]}, not {DISTRIBUTION} {VERSION}"
    if init is None:
        return "has lost its __init__.py"
    if SIGNS[room] not in init:
        return f"has an __init__.py that is not {DISTRIBUTION}'s"
    return None


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
    """Load the sibling package that lies beside this one as `lineage.<room>`.

    Raises `DamagedInstallation` where what lies there is not this version's.
    """
    folder = Path(__file__).parent.parent / room
    name = f"{__package__}.{room}"
    if name in sys.modules:
        return sys.modules[name]
    fault = _fault(room, folder)
    if fault:
        raise DamagedInstallation(folder, fault)
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
    # As the import system does for any submodule, so that `import lineage.schemas` works.
    setattr(sys.modules[__package__], room, module)
    return module


def _load_all(load: Callable[[str], ModuleType]) -> tuple[ModuleType, ModuleType]:
    """Load both rooms. A module of ours that is not there, or lacks a name, means damage."""
    try:
        return load("schemas"), load("trackers")
    except ImportError as e:
        room = next((r for r in SIGNS if re.match(rf"({__package__}\.)?{r}(\.|$)", e.name or "")), None)
        if isinstance(e, DamagedInstallation) or room is None:
            raise  # a dependency is missing: its own message says which
        raise DamagedInstallation(Path(__file__).parent.parent / room, f"is incomplete ({e})") from e


def _load() -> tuple[ModuleType, ModuleType]:
    folders = {room: _resolved(room) for room in SIGNS}
    if all(folder is not None and _fault(room, folder) is None for room, folder in folders.items()):
        return _load_all(importlib.import_module)
    return _load_all(_load_beside)


if TYPE_CHECKING:
    import schemas
    import trackers
else:
    schemas, trackers = _load()

__all__ = ["DamagedInstallation", "schemas", "trackers"]
