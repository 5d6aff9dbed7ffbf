"""Which threads open connections: a training thread must not, whatever becomes of the tracker's server."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_open: list[list[int]] = []
_heard = False


def _hear(event: str, _: object) -> None:
    if event == "socket.connect":
        for threads in _open:
            threads.append(threading.get_ident())


@contextmanager
def connecting() -> Iterator[list[int]]:
    """The threads that try to connect from here to the end of the block, one entry for each try."""
    global _heard
    if not _heard:
        sys.addaudithook(_hear)  # for the life of the process: there is no way to take one away
        _heard = True
    threads: list[int] = []
    _open.append(threads)
    try:
        yield threads
    finally:
        _open.remove(threads)


def mine(threads: list[int]) -> int:
    """How many of the tries were made by the thread that asks."""
    return threads.count(threading.get_ident())
