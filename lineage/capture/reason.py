"""Why something could not be read, in words that may stand in any record."""

from __future__ import annotations

import logging
import os

from .secrets import mask

log = logging.getLogger("lineage")


def reason(error: BaseException) -> str:
    """The class of an exception; of one of the operating system's, what it said.

    These words go where records go, to trackers too, and a message may quote anything: it goes to the log of
    the process, masked.
    """
    log.info("lineage: %s", mask(f"{type(error).__name__}: {error}")[0][:500])
    number = getattr(error, "errno", None)
    said = f": {os.strerror(number)}" if isinstance(error, OSError) and isinstance(number, int) else ""
    return type(error).__name__ + said
