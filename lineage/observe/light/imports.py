"""Calls back right after a watched module has been imported, and costs one look-up for any other."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` takes longer to import than all of this
    from collections.abc import Callable, Iterable
    from typing import Any

    Imported = Callable[[str, Any], None]

TRACKERS = ("wandb", "mlflow")
DCP = "torch.distributed.checkpoint"
WATCHED = (*TRACKERS, "torch", DCP, "safetensors.torch", "safetensors.numpy")
TESTS = "pytest"
"""With it a test session begins: nothing in it is wrapped."""


class Finder:
    """Stands first on `sys.meta_path`. It finds nothing itself: it asks the others, and wraps their loader."""

    def __init__(self) -> None:
        self.watched: frozenset[str] = frozenset()
        self.imported: Imported = lambda name, module: None
        self._busy: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find a watched module as the other finders do; None for every other module."""
        if name not in self.watched or name in self._busy:
            return None
        self._busy.add(name)
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None) if finder is not self else None
                spec = find(name, path, target) if find else None
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):
                        spec.loader = Loader(spec.loader, self.imported)
                    return spec
            return None
        finally:
            self._busy.discard(name)


class Loader:
    """Loads a module by its own loader, which the module then names as its own; and says when it is there."""

    def __init__(self, own: Any, imported: Imported) -> None:
        self._own, self._imported = own, imported

    def create_module(self, spec: Any) -> Any:
        """As its own loader does."""
        return self._own.create_module(spec) if hasattr(self._own, "create_module") else None

    def exec_module(self, module: Any) -> None:
        """Run the module, which knows of its own loader alone; then call back."""
        module.__loader__ = module.__spec__.loader = self._own
        self._own.exec_module(module)
        self._imported(module.__name__, sys.modules.get(module.__name__, module))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


_FINDER = Finder()


def watch(names: Iterable[str], imported: Imported) -> None:
    """Call `imported(name, module)` after each import of one of the names from now on."""
    _FINDER.watched, _FINDER.imported = frozenset(names), imported
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def unwatch() -> None:
    """Leave the import system as it was."""
    _FINDER.watched = frozenset()
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)


def is_complete(module: Any) -> bool:
    """Whether a module has been executed to its end."""
    return not getattr(getattr(module, "__spec__", None), "_initializing", False)
