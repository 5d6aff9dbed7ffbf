"""`pytest -p lineage.observe.pytest_plugin`: a test session under observation, to show that it changes nothing.

Named with `-p` it is there before any test imports a tracker. Python processes that the tests start are observed as
under `lineage run`: the hook stands in front of PYTHONPATH. Records go to `LINEAGE_DIR` where that is set, else to
a temporary folder. Nothing is printed but one line at the end, nothing reaches the log, and the observer's one thread
is there from the beginning, so that no test sees it come.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from uuid6 import uuid7

from ..ledger import layout
from . import Options, install, observer, uninstall
from ._light import light

HOOK = Path(__file__).parent / "hook"


def _for_children(root: Path) -> dict[str, str]:
    """The variables by which the processes that tests start are observed, and say nothing of it."""
    folder = root / ".observe" / str(uuid7())
    layout.make_folder(folder)
    others = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != str(HOOK)]
    return {
        "PYTHONPATH": os.pathsep.join([str(HOOK), *others]),
        light.FOLDER: str(folder),
        "LINEAGE_QUIET": "1",
    }


_SCRATCH = None if os.environ.get("LINEAGE_DIR") else tempfile.mkdtemp(prefix="lineage-observed-")
_FOLDER = os.path.abspath(os.path.expanduser(_SCRATCH or os.environ["LINEAGE_DIR"]))
_BEFORE: dict[str, str | None] = {}

if light.FOLDER not in os.environ:  # else the session itself runs under `lineage run`, and so do its children
    _SET = _for_children(Path(_FOLDER))
    _BEFORE = {name: os.environ.get(name) for name in _SET}
    os.environ.update(_SET)

install(Options(dir=_FOLDER, quiet=True, capture=False, inline=True))


def further() -> int:
    """How many processes that the tests started have come under observation."""
    signs = Path(os.environ.get(light.FOLDER, os.devnull)).glob("*.seen")  # <pid>-<start>-<image>.seen
    return sum(s.name.partition("-")[0] != str(os.getpid()) for s in signs)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what was observed, so that a session that saw nothing is not taken for a proof."""
    found, switch = observer(), light.events.SWITCH
    if found is None:
        return
    found.flush(5.0)
    words = f"{found.handled} calls observed, {found.shared.begun} runs, {switch.failures} failures of the observer"
    words += f", {further()} further processes"
    if switch.failures:
        words += f" (first: {switch.first_failure})"
    if switch.dropped:
        words += f", {switch.dropped} calls not kept"
    terminalreporter.write_line(f"lineage: {words}")


def pytest_unconfigure(config: Any) -> None:
    """Put the originals back, and the variables of the environment."""
    uninstall()
    for name, value in _BEFORE.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if _SCRATCH is not None:
        shutil.rmtree(_SCRATCH, ignore_errors=True)
