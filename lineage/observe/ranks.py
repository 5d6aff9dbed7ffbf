"""How the processes of one launch come to one run and one segment: rank 0 says it in the meeting folder.

Nobody waits for anybody: a further rank keeps what it has seen until rank 0 has spoken.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from uuid6 import uuid7

from ..ledger import layout
from ..recorder.identity import Ids, Source, World, agree, new_run


def meeting() -> Path | None:
    """The folder in which the processes under one `lineage run` meet; None outside of one."""
    folder = os.environ.get("LINEAGE_OBSERVE_TO")
    return Path(folder) if folder else None


def _file(folder: Path, nth: int) -> Path:
    return folder / f"segment-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}-{nth}.json"


def ids(run: str | None, source: Source, me: World) -> Ids:
    """The run and segment of this process: new ones where no run is known.

    In a launch that has a meeting folder rank 0 makes them, and the others read them there. `agree` would do
    it by counting how often each rank attaches, which a rank that only observes must not disturb.
    """
    if meeting() is not None and me.world_size > 1 and me.rank == 0:
        return Ids(run or new_run(), str(uuid7()), "new" if run is None else source, "launcher")
    return agree(run, "new" if run is None else source, me)


def announce(nth: int, ids: Ids, me: World) -> None:
    """On rank 0 of several: tell the others the run and the segment of this process's nth run."""
    folder = meeting()
    if folder is None or me.world_size <= 1 or me.rank != 0:
        return
    told = {"run": ids.run, "segment": ids.segment, "source": ids.source}
    layout.write_durably(_file(folder, nth), json.dumps(told).encode())


def told(nth: int, patience: float = 0.0) -> Ids | None:
    """On a further rank: what rank 0 has said, within `patience` seconds; None so far."""
    folder = meeting()
    end = time.monotonic() + patience
    while folder is not None:
        try:
            found = json.loads(_file(folder, nth).read_bytes())
            return Ids(found["run"], found["segment"], found["source"], "launcher")
        except (OSError, ValueError):
            if time.monotonic() >= end:
                return None
        time.sleep(0.05)
    return None


def unreached() -> list[str]:
    """What `lineage run` has found to have escaped so far, one line each."""
    folder = meeting()
    try:
        return list(json.loads((folder / "escaped.json").read_bytes())) if folder else []
    except (OSError, ValueError):
        return []
