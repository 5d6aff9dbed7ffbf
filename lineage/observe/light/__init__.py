"""What of the observer lives in every hooked process: the standard library and nothing else.

Loaded by file location under the one name `_lineage_light`, by the start-up hook (which must not import `lineage`,
whose records need pydantic) and by `lineage.observe`, so that both share one queue. Wrapped calls leave copies in
that queue; `lineage.observe` empties it on a thread of its own.
"""

from __future__ import annotations

import os
import sys

from . import events, imports, place

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` takes longer to import than all of this
    from typing import Any

    from . import importlib_bootstrap_frames, mlflow_copies, targets, wandb_copies

FOLDER = "LINEAGE_OBSERVE_TO"
"""The environment variable that names the folder in which `lineage run` and the processes under it meet."""


def begin() -> None:
    """In a process that `lineage run` started: leave a sign of life, and wait for imports. Never raises."""
    try:
        folder = os.environ.get(FOLDER)
        if folder:
            place.sign(folder)
        install()
    except Exception as error:
        events.failed(error)


def install() -> None:
    """Wrap the calls of what is imported already, and of the rest when it is imported. Idempotent."""
    events.SWITCH.on = True
    imports.watch((*imports.WATCHED, imports.TESTS), _imported)
    for name in imports.WATCHED:
        module = sys.modules.get(name)
        if module is not None and imports.is_complete(module):
            _imported(name, module)


def uninstall() -> None:
    """Put every original back, and leave the import system as it was. Idempotent."""
    events.SWITCH.on = False
    imports.unwatch()
    from . import targets

    targets.restore()
    events.EVENTS.clear()


def _imported(name: str, module: Any) -> None:
    """A watched module has been imported: wrap its calls; a tracker brings the recording part with it."""
    try:
        if name == imports.TESTS:
            if place.is_test_session() and not place.is_child():
                recording()  # now: a test that counts threads before and after shall not see ours come
            return
        from . import targets

        targets.wrap(name, module)
        if name in imports.TRACKERS and not place.is_child() and recording():
            sys.modules[place.PACKAGE].prepare(name)
    except Exception as error:
        events.failed(error)


def recording() -> bool:
    """Bring in the part that records, `lineage.observe`, once. Says in the meeting folder where it cannot."""
    if events.SWITCH.recording or events.SWITCH.refused:
        return events.SWITCH.recording
    try:
        problem = place.not_ours()
        if problem is None:
            import importlib

            package = importlib.import_module(place.PACKAGE)
            package.record()
            events.SWITCH.recording = True
            for name in imports.TRACKERS:
                if name in sys.modules and imports.is_complete(sys.modules[name]):
                    package.prepare(name)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    if problem is not None:
        events.SWITCH.refused = True
        place.trouble(os.environ.get(FOLDER), problem)
    return events.SWITCH.recording


__all__ = [
    "FOLDER",
    "begin",
    "events",
    "importlib_bootstrap_frames",
    "imports",
    "install",
    "mlflow_copies",
    "place",
    "recording",
    "targets",
    "uninstall",
    "wandb_copies",
]
