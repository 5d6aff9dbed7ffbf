"""How fast a checkpoint's files are digested, beside SHA-256 and the MD5 that trackers use."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lineage.ledger import hashing

from .table import SPREAD, Column, Table, Target
from .timing import Variant, summary, take_turns, timed

NAME = "files"
COLUMNS = (
    Column("what", "read by"),
    Column("where", "used"),
    *SPREAD,
    Column("rate", "GB/s", "number"),
    Column("ratio", "time, all cores = 1", "ratio"),
)
OURS = "BLAKE3, all cores, mapped"
IN_TRAINING = "BLAKE3, one thread, not mapped"
SHA256, MD5 = "hashlib.sha256, 1 MiB reads", "hashlib.md5, 1 MiB reads"


def _by_hashlib(name: str) -> Callable[[Path], Any]:
    def read(path: Path) -> str:
        hasher = hashlib.new(name, usedforsecurity=False)
        with path.open("rb") as f:
            while chunk := f.read(1 << 20):
                hasher.update(chunk)
        return hasher.hexdigest()

    return read


def readers() -> dict[str, tuple[str, Callable[[Path], Any]]]:
    """Name -> (who reads so, what reads a file)."""
    return {
        OURS: ("lineage checkpoint verify", lambda p: hashing.digest(p, mapped=True)),
        "BLAKE3, all cores, not mapped": (
            "lineage checkpoint verify, network disks",
            lambda p: hashing.digest(p, mapped=False),
        ),
        IN_TRAINING: (
            "in a training process, after a save",
            lambda p: hashing.digest(p, threads=1, mapped=False),
        ),
        SHA256: ("file manifests elsewhere", _by_hashlib("sha256")),
        MD5: ("artifacts of trackers", _by_hashlib("md5")),
    }


def _turn(read: Callable[[Path], Any], path: Path) -> Variant:
    return lambda: timed(lambda: read(path))


def run(*, rounds: int = 7, megabytes: int = 512) -> Table:
    """Digest one file of `megabytes` MB that the system holds in memory: the disk is not measured."""
    size = megabytes * 10**6
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    table = Table(NAME, f"one file of {megabytes} MB in the page cache, {cores} cores", COLUMNS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shard"
        with path.open("wb") as f:
            for _ in range(megabytes):
                f.write(os.urandom(10**6))
        found = readers()
        samples = take_turns({n: _turn(read, path) for n, (_, read) in found.items()}, rounds, budget=60)
    reference = summary(samples[OURS])["min"]
    for name, values in samples.items():
        s: dict[str, Any] = summary(values)
        table.add(
            what=name, where=found[name][0], **s, rate=size / s["min"] / 1e9, ratio=s["min"] / reference
        )
    least = {name: min(values) for name, values in samples.items()}
    for other in (SHA256, MD5):
        times = least[other] / least[OURS]
        table.targets.append(
            Target(f"all cores beat {other.partition(',')[0]}", f"{times:.2g} times as fast", times > 1)
        )
    table.notes.append(
        "rates and ratios are of the least times: neighbours on the machine take from all of them"
    )
    return table
