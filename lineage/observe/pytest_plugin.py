"""`pytest -p lineage.observe.pytest_plugin`: a test session under observation, to show that it changes nothing.

Named with `-p` it is there before any test imports a tracker. Records go to `LINEAGE_DIR` where that is set, else to
a temporary folder. Nothing is printed but one line at the end, nothing reaches the log, and the observer's one thread
is there from the beginning, so that no test sees it come.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

from . import Options, install, observer, uninstall
from ._light import light

_SCRATCH = None if os.environ.get("LINEAGE_DIR") else tempfile.mkdtemp(prefix="lineage-observed-")

install(Options(dir=_SCRATCH, quiet=True, capture=False, inline=True))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what was observed, so that a session that saw nothing is not taken for a proof."""
    found, switch = observer(), light.events.SWITCH
    if found is None:
        return
    found.flush(5.0)
    words = f"{found.handled} calls observed, {found.shared.begun} runs, {switch.failures} failures of the observer"
    if switch.failures:
        words += f" (first: {switch.first_failure})"
    if switch.dropped:
        words += f", {switch.dropped} calls not kept"
    terminalreporter.write_line(f"lineage: {words}")


def pytest_unconfigure(config: Any) -> None:
    """Put the originals back."""
    uninstall()
    if _SCRATCH is not None:
        shutil.rmtree(_SCRATCH, ignore_errors=True)
