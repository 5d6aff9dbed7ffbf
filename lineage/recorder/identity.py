"""Who this process is: rank, world, device, and the run and segment ids that all ranks share.

The ids travel through the store that `init_process_group` made, else they follow from the launcher's
identity, else they are provisional for this writer. No collective is issued.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import time
import uuid
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from uuid6 import uuid7

from .._rooms import schemas
from ..capture.pseudonym import node as pseudonym
from .contain import log

LAUNCHERS = (
    ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
    ("SLURM_JOB_ID", "SLURM_RESTART_COUNT"),
)


@dataclass(frozen=True)
class World:
    """This process among the others."""

    rank: int
    world_size: int
    local_rank: int
    store: Any = None


def world() -> World:
    """Read rank and world size from the process group, else from the launcher's variables, else 0 of 1."""
    dist = getattr(sys.modules.get("torch"), "distributed", None)
    local = _int("LOCAL_RANK")
    if dist is not None and dist.is_available() and dist.is_initialized():
        store = sys.modules["torch.distributed.distributed_c10d"]._get_default_store()
        return World(dist.get_rank(), dist.get_world_size(), local, store)
    return World(_int("RANK"), _int("WORLD_SIZE", 1), local)


def _int(name: str, default: int = 0) -> int:
    try:
        return int(os.environ.get(name, default))
    except ValueError:
        return default


def place(run: str, local_rank: int) -> schemas.Place:
    """Node (a pseudonym within the run), local rank, device and pid."""
    device = "cpu"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        device = str(getattr(properties, "uuid", properties.name))
    return schemas.Place(
        node=pseudonym(run, socket.gethostname()), local_rank=local_rank, device=device, pid=os.getpid()
    )


Source: TypeAlias = Literal["argument", "environment", "sidecar", "tracker", "loaded", "new"]
"""What said which run this is: see `schemas.Run`."""


@dataclass(frozen=True)
class Ids:
    """The shared ids and how they were agreed on."""

    run: str
    segment: str
    source: Source
    identity: Literal["store", "launcher", "provisional"]


@dataclass(frozen=True)
class TakenOver:
    """What the observer had begun before `lineage.attach` took over: the same run and segment go on."""

    ids: Ids
    segment: str | None
    """the record of the segment, which the recorder's own supersedes"""


_NO_TIME = "00000000-0000-7000-8000-000000000000"
"""For ids that every rank must derive alone: ranks read no common clock."""

_attached = 0
"""How often this process attached: each time is a segment of its own."""


def agree(run: str | None, source: Source, me: World) -> Ids:
    """Agree with the other ranks on run and segment ids, without waiting for any of them.

    The first rank that comes puts its proposal in the store, atomically; all others find it there. Where
    there is no store the launcher's identity decides, else the ids are provisional for this writer.
    """
    global _attached
    _attached += 1
    own = str(uuid7())
    if me.world_size <= 1:
        return Ids(run or new_run(), own, source, "provisional")
    if me.store is not None:
        try:
            found = me.store.compare_set(f"lineage/segment/{_attached}", "", f"{own} {run or new_run()}")
            segment, _, name = found.decode().partition(" ")
            return Ids(run or name, segment, source, "store")
        except Exception as e:
            log.warning("lineage: the process group's store gave no segment id (%s); it is provisional", e)
    launcher = _launcher_identity()
    if launcher:
        sha = hashlib.sha256(f"{launcher}/{_attached}".encode()).digest()
        return Ids(run or f"run-{sha.hex()[:12]}", _shaped(sha, _NO_TIME), source, "launcher")
    return Ids(run or new_run(), own, source, "provisional")


def _shaped(sha: bytes, time_from: str) -> str:
    """A UUIDv7 from a digest, with the time of another uid."""
    raw = bytearray(uuid.UUID(time_from).bytes[:6] + sha[:10])
    raw[6] = 0x70 | (raw[6] & 0x0F)
    raw[8] = 0x80 | (raw[8] & 0x3F)
    return str(uuid.UUID(bytes=bytes(raw)))


def _launcher_identity() -> str | None:
    for name, count in LAUNCHERS:
        if os.environ.get(name) and os.environ[name] != "none":
            return f"{name}={os.environ[name]}/{os.environ.get(count, '0')}"
    return None


def new_run() -> str:
    """A run id that nobody else has."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + uuid.uuid4().hex[:6]


def checkpoint_uid(segment: str, step: int, path: str, nth: int) -> str:
    """The uid of a save, the same on every rank without a word between them.

    Shaped as a UUIDv7: the time of the segment's, the rest from (segment, step, path, number of the save).
    """
    sha = hashlib.sha256(f"lineage-checkpoint-v1\n{segment}\n{step}\n{path}\n{nth}".encode()).digest()
    return _shaped(sha, segment)
