"""Reading pickles of plain data, and of nothing else: nothing that a file names is looked up or called."""

from __future__ import annotations

from typing import Any

from ...checkpoints import pickles
from ...checkpoints.errors import CheckpointError, CutOff, NotPlain


class Refused(ValueError):
    """The pickle is damaged, or asks for something that plain data does not need; `operation` names what."""

    def __init__(self, text: str, operation: str | None = None) -> None:
        super().__init__(text)
        self.operation = operation


def loads(data: bytes) -> Any:
    """The plain data that a pickle holds: None, bool, int, float, str, bytes, list, tuple, dict.

    Keys of dicts are plain too, so that no nest of tuples has to be hashed. Raises `Refused`.
    """
    try:
        return pickles.read_plain(data)
    except NotPlain as e:
        raise Refused(
            f"it asks for {e}, which plain data does not need; nothing was run", operation=str(e)
        ) from None
    except CutOff:
        raise Refused("it is cut off: its end is missing") from None
    except CheckpointError as e:
        raise Refused(f"it is damaged ({e})") from None
