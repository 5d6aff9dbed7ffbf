"""Rungs on record: in the ledger of a run, or in the ladder's own ledger beside the runs."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from uuid6 import uuid7

from .._rooms import schemas
from ..capture.pseudonym import node
from ..ledger import layout
from ..ledger.journal import Journal
from ..ledger.reader import Ledger, open_ledger
from ..ledger.scan import heads
from ..ledger.seal import seal
from ..recorder.settings import resolve

OWN = "ladder"
"""Run id of the ledger of rungs that belong to no run yet."""


def record(rung: schemas.Rung, ledger: Path | str | None = None, *, segment: str | None = None) -> Path:
    """Write a rung down, in a journal file of this process's own, and give the ledger.

    Args:
        ledger: a run's ledger folder; by default the run `ladder` in the folder of all ledgers (`LINEAGE_DIR`), which
            is begun where it is not there.
        segment: the segment that it is about; by default the newest one.

    Raises `LedgerNotFound` for a folder that holds none, and `OSError` where nothing can be written.
    """
    place = Path(ledger) if ledger is not None else _own()
    there: Ledger = open_ledger(place)
    told = segment or there.segments[-1].uid
    journal = Journal(place, there.run, told, 0, _place(there.run))
    journal.append(rung)
    journal.append(seal(heads(place)[0], "close"))
    journal.close()
    return place


def _own() -> Path:
    """The ladder's own ledger, begun where it is not there."""
    place = Path(str(resolve().dir)).expanduser().absolute() / OWN
    if not layout.is_ledger(place):
        segment = str(uuid7())
        where = _place(OWN)
        journal = Journal(place, OWN, segment, 0, where)
        journal.append(schemas.Run(uid=OWN, name="rungs of the debugging ladder", source="new"))
        journal.append(
            schemas.Segment(uid=segment, place=where, settings={"ladder": schemas.Scalar.of(True)})
        )
        journal.close()
    return place


def _place(run: str) -> schemas.Place:
    return schemas.Place(node=node(run, socket.gethostname()), pid=os.getpid())
