"""After the first step of a resume: the state of all ranks against the save, tensor by tensor.

It is compared on rank 0's worker thread.
Each rank has written its own digests down by then. Where another rank's are not in this folder yet, they are waited
for a while; `lineage resume` compares again at any later time.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from .._rooms import schemas
from ..judge import restored_whole
from ..ledger import layout, whole_states
from ..ledger.reader import Ledger
from .writer import Writer

if TYPE_CHECKING:
    from .parent import Parent

MOST_RANKS = 256
"""Ranks whose digests are read while the run goes on; of more, afterwards."""
PATIENCE = 10.0
"""Seconds for which the digests of other ranks are waited for."""


def judge(w: Writer, parent: Parent, restore: schemas.Restore) -> schemas.Restore:
    """Compare all ranks' state with the save, write down what it shows, and return it together with `restore`."""
    if w.world.world_size > MOST_RANKS:
        return restore
    w._lines.drain(w.settings.exit_timeout)
    _wait_for_ranks(w)
    found = whole_states.of_resume(Ledger(w.ledger), w.ids.segment, _saved_in(w, parent))
    told = restored_whole.whole(restore, found) if found is not None else None
    if told is not None:
        w.write(told)
    return restored_whole.merged(restore, told)


def _wait_for_ranks(w: Writer) -> None:
    """Wait until every rank has written its digests of this resume, or for `PATIENCE` seconds.

    A file that is there may have no rows yet: they are looked for once all files are there.
    """
    at = whole_states.Moment(w.ledger, w.ids.segment, "resume")
    folder = layout.series_folder(w.ledger) / w.ids.segment
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        writers = (layout.writer_of(p.name) for p in folder.glob("*.states.*"))
        world = w.world.world_size
        if len({found[1] for found in writers if found}) >= world and len(whole_states.ranks_at(at)) >= world:
            return
        time.sleep(0.2)


def _saved_in(w: Writer, parent: Parent) -> Path | None:
    """The ledger that has the save, where it is another one than this run's and is at hand."""
    told = parent.sidecar.ledger if parent.sidecar is not None else None
    if not told or Path(told) == w.ledger or not layout.is_ledger(Path(told)):
        return None
    return Path(told) if parent.run != w.ids.run else None
