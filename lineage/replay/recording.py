"""Replays on record: written into the ledger that the bundle is from, in a journal file of this process's own."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path

from .._rooms import schemas
from ..bundle.reading import Bundle
from ..capture.pseudonym import node
from ..ledger.journal import Journal
from ..ledger.reader import Ledger
from ..ledger.scan import heads
from ..ledger.seal import seal


def record(ledger: Path, bundle: Bundle, found: Sequence[schemas.Replay], rank: int = 0) -> list[str]:
    """Write the replays, each caused by the bundle's own record where the ledger has it. Returns their record ids.

    The first rank seals them. Raises `OSError` where nothing can be written.
    """
    m = bundle.manifest
    there = Ledger(ledger)
    known = [r.id for r in there.of("bundle") if r.payload.root == bundle.root]
    place = schemas.Place(node=node(m.run, socket.gethostname()), pid=os.getpid())
    journal = Journal(ledger, m.run, m.segment, m.rank, place)
    controls = {replay.control for replay in found}
    ids: dict[str, str] = {r.payload.uid: r.id for r in there.of("replay") if r.payload.uid in controls}
    for replay in found:
        before = [ids[replay.control]] if replay.control in ids else []
        ids[replay.uid] = journal.append(replay, step=m.step, caused_by=[*known, *before]).id
    if rank == 0:
        journal.append(seal(heads(ledger)[0], "incident"))
    journal.close()
    return [ids[replay.uid] for replay in found]
