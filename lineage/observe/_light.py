"""The part of the observer that every hooked process has, under the one name by which all share it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import light
else:

    def _load() -> Any:
        """Return `_lineage_light`: the start-up hook's where there was one, else loaded from beside this file."""
        name = "_lineage_light"
        if name in sys.modules:
            importlib.import_module(f"{name}.targets")
            return sys.modules[name]
        folder = Path(__file__).parent / "light"
        spec = importlib.util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(name, None)
            raise
        importlib.import_module(f"{name}.targets")
        return module

    light = _load()
    for _name in [n for n in sys.modules if n.partition(".")[0] == "_lineage_light"]:
        # Whoever imports it by its place in this package gets the same modules, not a second queue.
        sys.modules[__package__ + ".light" + _name.removeprefix("_lineage_light")] = sys.modules[_name]

__all__ = ["light"]
