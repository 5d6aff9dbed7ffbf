"""A ledger of two segments on known nodes and devices, whose clock the test holds; and files beside it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from uuid6 import uuid7

import schemas
from lineage.capture.pseudonym import node as pseudonym
from lineage.ledger.journal import Journal
from lineage.ledger.reader import Ledger
from lineage.ledger.series import SeriesWriter

RUN = "pretrain"
BEGAN = datetime(2026, 11, 29, 16, 0, 0, tzinfo=UTC)
LATER = BEGAN + timedelta(hours=2)
STEPS = 30
"""Steps of each segment, one every ten seconds, the first ten seconds after its begin."""
HOSTS = ("node001", "node002")
GPUS = tuple(f"{n:08x}-0000-4000-8000-{n:012x}" for n in range(1, 5))


def at(step: int, began: datetime = BEGAN) -> datetime:
    """When a step was recorded."""
    return began + timedelta(seconds=10 * step)


class Clock:
    """The time that records get: a millisecond goes by at each look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = BEGAN
        monkeypatch.setattr(schemas, "now", self)

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now


def _ranks(order: tuple[int, ...]) -> Iterator[tuple[int, str, int, str, int]]:
    """(rank, host, local rank, device, pid) of four ranks on two nodes of two GPUs each."""
    for rank, slot in enumerate(order):
        yield rank, HOSTS[slot // 2], slot % 2, GPUS[slot], 1000 + slot


def write(root: Path, clock: Clock, *, bad: tuple[int, int] | None = (1, 20), second: bool = True) -> Ledger:
    """Write the ledger. In the second segment the nodes are swapped, so ranks 0 and 1 run on node002.

    `bad`: (rank, step) of the newest segment at which the loss is not a number.
    """
    folder = root / RUN
    segments = [(BEGAN, (0, 1, 2, 3)), (LATER, (2, 3, 0, 1))][: 2 if second else 1]
    for number, (began, order) in enumerate(segments, 1):
        uid = str(uuid7())
        clock.now = began
        journals = []
        for rank, host, local, device, pid in _ranks(order):
            place = schemas.Place(node=pseudonym(RUN, host), local_rank=local, device=device, pid=pid)
            journal = Journal(folder, RUN, uid, rank, place, fsync=False)
            journal.append(schemas.Segment(uid=uid, world_size=4, place=place, start="fresh"))
            journals.append(journal)
            rows = [
                {
                    "segment": uid,
                    "rank": rank,
                    "step": step,
                    "signal": "loss",
                    "value": float("nan")
                    if number == len(segments) and (rank, step) == bad
                    else 2.0 + step % 3 / 10,
                    "n_nan": int(number == len(segments) and (rank, step) == bad),
                    "n_posinf": 0,
                    "n_neginf": 0,
                    "at": at(step, began),
                }
                for step in range(1, STEPS + 1)
            ]
            series = SeriesWriter(folder, uid, journal.path.stem, "probes")
            series.write(rows)
            series.close()
        clock.now = at(STEPS, began) + timedelta(seconds=5)
        for journal in journals:
            journal.append(schemas.SegmentEnd(last_step=STEPS))
            journal.close()
    clock.now = LATER + timedelta(days=1)
    return Ledger(folder)


def syslog(when: datetime, message: str, host: str = "node002") -> str:
    """A line of `journalctl -o short-iso-precise`."""
    return f"{when.strftime('%Y-%m-%dT%H:%M:%S.%f+0000')} {host} kernel: {message}"


XID = "NVRM: Xid (PCI:0000:07:00): 79, pid=1002, name=python, GPU has fallen off the bus."
