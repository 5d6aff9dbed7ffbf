"""Signs of life in the folder where `lineage run` and the processes under it meet, and where our package lies."""

from __future__ import annotations

import os
import sys
import zlib

PACKAGE = "lineage.observe"
HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder of the package `lineage` to which this file belongs."""


def image(pid: int) -> str | None:
    """Name what a process runs: pid, its start, and its command line. `exec` keeps the first two.

    None where the process is gone, its system has no /proc, or it has no command line: amid an `exec`, and
    when it has ended and nobody has asked for its exit code.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            start = f.read().rpartition(b")")[2].split()[19].decode()
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            line = f.read()
    except (OSError, IndexError):
        return None
    if not line:
        return None
    return f"{pid}-{start}-{zlib.crc32(line):08x}"


def sign(folder: str) -> None:
    """Leave a sign that the hook ran in this process. A folder that cannot be written is no reason to stop."""
    _write(folder, f"{image(os.getpid()) or os.getpid()}.seen", f"{sys.executable}\n{sys.version_info[:3]}\n")


def trouble(folder: str | None, text: str) -> None:
    """Say in the folder why this process is not recorded, though the hook ran in it."""
    if folder:
        _write(folder, f"{image(os.getpid()) or os.getpid()}.trouble", f"{sys.executable}\n{text}\n")


def is_child() -> bool:
    """Whether this process is a child that `multiprocessing` made, such as a data loader's worker.

    It may import a tracker only because its parent's script does, so it is recorded from its first run on.
    """
    module = sys.modules.get("multiprocessing.process")
    if module is None:
        return False
    starting = getattr(
        module.current_process(), "_inheriting", False
    )  # it imports its parent's script just now
    return starting or module.parent_process() is not None


def is_test_session() -> bool:
    """Whether this process was started as pytest, and not by a program that imports it among others."""
    words: list[str] = getattr(sys, "orig_argv", [])[1:6]
    return any(os.path.basename(word) in ("pytest", "py.test") for word in words)


def _write(folder: str, name: str, text: str) -> None:
    try:
        fd = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(fd, text.encode("utf-8", "replace"))
        finally:
            os.close(fd)
    except OSError:
        pass


def not_ours() -> str | None:
    """Say why `import lineage` would not bring our package here; None where it would. Imports nothing of it."""
    import importlib.util

    loaded = sys.modules.get("lineage")
    try:
        if loaded is not None:
            places = list(getattr(loaded, "__path__", ()))
        else:
            spec = importlib.util.find_spec("lineage")
            if spec is None:
                return "runlineage is not installed for this interpreter"
            places = list(spec.submodule_search_locations or ())
    except (ImportError, AttributeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    if not any(os.path.realpath(p) == os.path.realpath(HOME) for p in places):
        return f"the name `lineage` leads to {places[0] if places else 'another module'}, not to runlineage"
    return None
