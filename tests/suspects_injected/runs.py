"""The runs: what each fault is, of which family, and which first bad cell is the right one."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch.distributed as dist

from tests.probes import ranks

from .loop import AFTER_RESUME, RUN, SAVED, STEPS, Fault, Loop, Settings, draw

WORLD = 3
Cell = dict[str, Any]
Seen = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """One fault."""

    name: str
    family: str
    words: str
    """for the table"""
    right: Callable[[Fault, Cell, Seen], bool]
    """whether a first bad cell is the right one: (fault, cell, what the loop itself saw)"""
    base: Settings = field(default_factory=Settings)
    second: Settings | None = None
    """the settings of the second segment, where they are other ones"""


@dataclass(frozen=True)
class Less:
    """The same fault with less on record, so that it cannot be told apart; and what must then be said to be missing."""

    kind: str
    words: str
    less: Mapping[str, Any]
    missing: str
    """of what must be named as missing"""


def _replica(f: Fault, cell: Cell, seen: Seen) -> bool:
    """The rank and tensor that the fault struck, at the first digest after it."""
    return (cell["rank"], cell["step"], cell["tensor"]) == (f.rank, f.digest_after, f.tensor)


def _bucket(f: Fault, cell: Cell, seen: Seen) -> bool:
    """All ranks hold a thing of their own, of a parameter of the bucket that was not reduced."""
    return bool(cell["step"] == f.digest_after and cell["signal"].startswith("replica:"))


def _after_resume(f: Fault, cell: Cell, seen: Seen) -> bool:
    """In the resumed segment, and no later than the loop saw it break, where it saw that."""
    return bool(SAVED < cell["step"] <= (seen["first_bad"] or STEPS))


KINDS = (
    Kind(
        "corrupt_tokens",
        "data",
        "ids of padded rows in one rank's batch",
        lambda f, c, seen: (c["rank"], c["step"], c["signal"]) == (f.rank, f.step, "loss"),
    ),
    Kind(
        "duplicated_shard",
        "data",
        "one batch read over and over by each rank, then new data",
        lambda f, c, seen: (c["step"], c["signal"]) == (f.step, "loss"),
    ),
    Kind(
        "overflow",
        "numerics",
        "a float16 output that grows past 65,504",
        lambda f, c, seen: f.step - 12 < c["step"] <= seen["first_bad"] and c["layer"] in ("blocks.1", None),
    ),
    Kind(
        "log_of_zero",
        "numerics",
        "a kernel of its own that takes the logarithm of a probability that is 0",
        lambda f, c, seen: (c["step"], c["signal"]) == (f.step, "loss"),
    ),
    Kind(
        "moments_lost",
        "optimizer",
        "a resume without the optimizer's state, at a rate that leaves little room",
        _after_resume,
        base=Settings(learning_rate=0.25, warmup=20, betas=(0.9, 0.999)),
    ),
    Kind(
        "second_moment",
        "optimizer",
        "second moments that become a millionth of what they were",
        lambda f, c, seen: c["step"] in (f.step, f.step + 1),
    ),
    Kind("stale_parameter", "distributed", "one rank's copy of a weight is of ten steps before", _replica),
    Kind("skipped_reduction", "distributed", "a bucket that is not reduced in one step", _bucket),
    Kind("bit_flip", "hardware", "a bit of one weight flips on one rank, in memory", _replica),
    Kind(
        "changed_kernel",
        "hardware",
        "one rank resumes with another kernel for the update, whose results differ slightly",
        lambda f, c, seen: (
            c["rank"] == f.rank and SAVED < c["step"] <= SAVED + 4 and c["signal"].startswith("replica:")
        ),
    ),
    Kind(
        "learning_rate",
        "code",
        "a resume with a learning rate thirty times as high",
        _after_resume,
        second=Settings(learning_rate=0.3),
    ),
    Kind(
        "clip_dropped",
        "code",
        "a resume without clipping, and a gradient that needs it",
        lambda f, c, seen: c["step"] in (f.step, f.step + 1),
        second=Settings(max_grad_norm=None),
    ),
)
LESS = (
    Less("corrupt_tokens", "no fingerprints of batches", {"fingerprints": False}, "fingerprint"),
    Less("moments_lost", "no digests of the state", {"digests": False}, "optimizer's state was restored"),
    Less("second_moment", "weights and moments never read", {"state_every": 0}, "moments"),
)
BY_NAME = {k.name: k for k in KINDS}


def names(kinds: Sequence[str] = (), less: bool = True) -> list[str]:
    """The runs of one seed: a name each."""
    chosen = [k.name for k in KINDS if not kinds or k.name in kinds]
    return [*chosen, *(f"{x.kind}-less" for x in LESS if less and (not kinds or x.kind in kinds)), "healthy"]


def ledger(folder: Path, name: str, seed: int) -> Path:
    """Where the ledger of a run lies."""
    return folder / "runs" / f"{name}-{seed}" / RUN


def run_all(folder: Path, seeds: Sequence[int], chosen: Sequence[str]) -> dict[str, Seen]:
    """Make every run in one process group; returns `<name>-<seed>` -> what its loop on rank 0 saw."""
    folder.mkdir(parents=True, exist_ok=True)
    body = functools.partial(_body, root=str(folder / "runs"), seeds=list(seeds), chosen=list(chosen))
    found: list[dict[str, Seen]] = ranks.run(body, WORLD, folder)
    return found[0]


def _body(rank: int, world: int, root: str, seeds: Sequence[int], chosen: Sequence[str]) -> dict[str, Seen]:
    seen = {}
    for seed in seeds:
        for name in chosen:
            seen[f"{name}-{seed}"] = _one(Path(root), name, seed, world)
    return seen


def _one(root: Path, name: str, seed: int, world: int) -> Seen:
    what = name.removesuffix("-less")
    kind = BY_NAME.get(what)
    less = next((x.less for x in LESS if x.kind == what), {}) if name.endswith("-less") else {}
    fault = None if kind is None else draw(what, seed, world)
    base = kind.base if kind else Settings()
    place = root / f"{name}-{seed}"
    if kind is not None and what not in AFTER_RESUME:
        loop = Loop(place, seed, fault, base, less)
        loop.go(last=STEPS)
    else:
        _first_segment(root, place, seed, base, less)
        loop = Loop(place, seed, fault, (kind and kind.second) or base, less)
        loop.load(SAVED)
        loop.go(first=SAVED + 1)
    dist.barrier()
    return {"first_bad": loop.first_bad}


def _first_segment(root: Path, place: Path, seed: int, base: Settings, less: Mapping[str, Any]) -> None:
    """The healthy segment before: made once for the same settings, and copied for the next run that resumes it."""
    key = "-".join(map(str, (base.learning_rate, *less)))
    made = root / "first" / f"{seed}-{key}"
    if not (made / RUN).is_dir():
        Loop(made, seed, None, base, less).go(last=SAVED, save_at=SAVED)
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.copytree(made, place)
    dist.barrier()
