"""The start-up hook of `lineage run`: Python imports a module of this name when it starts.

The folder of this file is put in front of PYTHONPATH. It starts the observer's part that costs next to nothing,
then gives way to the `sitecustomize` that would have been imported without it. Where there is none, it raises the
`ImportError` that Python expects then, so that no such module is left behind.

It may be run by any interpreter, also by old ones and by those without this distribution: so it is written in what
all of them read, and nothing that fails here stops the program.
"""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
_there = None

try:
    _off = os.environ.get("LINEAGE_OBSERVE", "").strip().lower() in ("0", "false", "no", "off")
    if sys.hexversion >= 0x03090000 and not _off and "_lineage_light" not in sys.modules:
        from importlib.machinery import ModuleSpec, SourceFileLoader

        _folder = os.path.join(os.path.dirname(_here), "light")
        _loader = SourceFileLoader("_lineage_light", os.path.join(_folder, "__init__.py"))
        _light = type(sys)("_lineage_light")
        _light.__file__ = _loader.path
        _light.__path__ = [_folder]
        _light.__package__ = "_lineage_light"
        _light.__spec__ = ModuleSpec("_lineage_light", _loader, origin=_loader.path, is_package=True)
        sys.modules["_lineage_light"] = _light
        _loader.exec_module(_light)
        _light.begin()
except Exception:  # whatever it is, the program does not need the observer
    pass

if sys.hexversion >= 0x03040000:
    _path = sys.path[:]
    sys.path[:] = [p for p in _path if os.path.abspath(p or os.curdir) != _here]
    try:
        for _finder in list(sys.meta_path):
            _there = _finder.find_spec("sitecustomize", None) if hasattr(_finder, "find_spec") else None
            if _there is not None and _there.loader is not None:
                break
            _there = None
    finally:
        sys.path[:] = _path
    if _there is None or _there.loader is None:
        raise ImportError("there is no other sitecustomize", name="sitecustomize")
    from importlib.util import module_from_spec

    _module = module_from_spec(_there)
    sys.modules["sitecustomize"] = _module
    _there.loader.exec_module(_module)
