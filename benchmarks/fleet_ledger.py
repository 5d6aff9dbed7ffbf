"""The ledger that a fleet would write, without a fleet: real journals, real sealed series, faults drawn from a seed.

Norms are log-normal, with a trend and with noise that all ranks share, each layer has and each rank has, so that
what a detector meets is not easier than training: see `Course`.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from uuid6 import uuid7

from lineage._rooms import schemas
from lineage.ledger import layout, series, tables
from lineage.ledger.journal import Journal

RUN = "fleet"
PER_NODE = 8
BEGAN = 1_767_225_600_000_000
"""2026-01-01, in microseconds: when the first step ended."""
STEP_TIME = 1_000_000
"""microseconds"""
SIGNALS = ("loss", "grad_norm_local", "grad_norm", "time_step", "time_to_gradient")
GROWS = (15.0, 300.0, 40.0)
"""By how much the layer that leaves its range is too large, step by step: at first the norm of all layers hides it."""


class NoRoom(RuntimeError):
    """The disk does not hold what would be written, and what must stay free."""


@dataclass(frozen=True)
class Size:
    """How large the fleet is."""

    ranks: int
    steps: int
    layers: int

    @property
    def cells(self) -> int:
        """Rows of the table `tensors`."""
        return self.ranks * self.steps * self.layers

    def __str__(self) -> str:
        return f"{self.ranks:,} ranks x {self.steps:,} steps x {self.layers:,} layers"


@dataclass(frozen=True)
class Faults:
    """What was hidden; ranks, steps and layers. A fault that is None was not hidden."""

    silent: tuple[int, int] | None = None
    """(rank, the last step that it wrote)"""
    slow: tuple[int, int] | None = None
    """(rank, the first step from which on its forward pass takes longer)"""
    layer: tuple[int, int, int] | None = None
    """(rank, step, layer) whose local gradient is too large from that step on, for as long as `GROWS` says"""
    nan: tuple[int, int, int] | None = None
    """(rank, step, layer) with a NaN before the reduction: at that step all ranks' reduced norm, from the next on
    all their values are NaN, and nobody ends the run"""
    late: float = 0.8
    """seconds by which the slow rank's forward pass is longer"""


def draw(seed: int, size: Size, kinds: Iterable[str] = ("silent", "slow", "layer", "nan")) -> Faults:
    """Draw faults of these kinds: different ranks, in that order of steps."""
    rng = np.random.default_rng([seed, 7])
    ranks = [int(r) for r in rng.permutation(size.ranks)[:4]]
    parts = {"silent": (0.2, 0.35), "slow": (0.4, 0.5), "layer": (0.6, 0.75), "nan": (0.9, 0.95)}
    wanted: dict[str, Any] = {}
    for rank, (kind, (low, high)) in zip(ranks, parts.items(), strict=False):
        step = int(
            rng.integers(int(low * size.steps), max(int(high * size.steps), int(low * size.steps) + 1))
        )
        step = max(step, 2)
        layer = int(rng.integers(size.layers))
        if kind in set(kinds):
            wanted[kind] = (rank, step) if kind in ("silent", "slow") else (rank, step, layer)
    return Faults(**wanted)


@dataclass
class Course:
    """What all ranks share: the trend, the noise of each step, and that of each layer at each step.

    Natural logarithms of gradient norms, shape (steps, layers); losses, shape (steps,).
    """

    size: Size
    seed: int
    norms: Any = field(init=False)
    losses: Any = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng([self.seed, 1])
        steps, layers = self.size.steps, self.size.layers
        t = np.arange(steps) / max(steps, 200)
        trend = -0.8 * (1.0 - np.exp(-6.0 * t))
        walk = np.zeros(steps)
        noise = rng.normal(0.0, 0.05, steps)
        for i in range(1, steps):
            walk[i] = 0.9 * walk[i - 1] + noise[i]
        depth = rng.normal(-2.0, 0.4, layers)
        self.norms = depth[None, :] + (trend + walk)[:, None] + rng.normal(0.0, 0.06, (steps, layers))
        self.losses = 2.2 + 8.6 * np.exp(-9.0 * t) + 0.15 * walk


def tables_of(rank: int, segment: str, course: Course, faults: Faults) -> dict[str, pa.Table]:
    """What one rank writes: its rows of `tensors` and of `probes`."""
    size = course.size
    steps = size.steps
    rng = np.random.default_rng([course.seed, 2, rank])
    x = course.norms[:steps] + rng.normal(0.0, 0.12, (steps, 1)) + rng.normal(0.0, 0.1, (steps, size.layers))
    loss = course.losses[:steps] + rng.normal(0.0, 0.04, steps)
    reduced = np.sqrt(np.exp(2.0 * course.norms[:steps]).sum(axis=1)) * 0.4
    if faults.layer is not None and faults.layer[0] == rank:
        _, step, layer = faults.layer
        for i, times in enumerate(GROWS):
            x[step - 1 + i, layer] += math.log(times)
    sumsq = np.exp(2.0 * x)
    broken: Any = np.zeros((steps, size.layers), dtype=np.int64)
    elements = 1 << 20
    if faults.nan is not None:
        bad_rank, step, layer = faults.nan
        reduced[step - 1 :] = np.nan
        if rank == bad_rank:
            broken[step - 1, layer] = 17
        broken[step:] = elements
        sumsq[step:] = 0.0
        loss[step:] = np.nan
    local = np.sqrt(sumsq.sum(axis=1))
    local[broken.any(axis=1)] = np.nan
    if faults.silent is not None and faults.silent[0] == rank:
        steps = min(steps, faults.silent[1])
    at = BEGAN + STEP_TIME * np.arange(steps, dtype=np.int64) + rng.integers(0, 3000, steps)
    forward = 0.3 * np.exp(rng.normal(0.0, 0.02, steps))
    whole = np.full(steps, 1.0)
    if faults.slow is not None:  # all wait for it, so the whole step tells nothing of it
        whole[faults.slow[1] - 1 :] += faults.late
        if faults.slow[0] == rank:
            forward[faults.slow[1] - 1 :] += faults.late
    return {
        "tensors": _tensors(rank, segment, sumsq[:steps], broken[:steps], elements),
        "probes": _probes(rank, segment, (loss[:steps], local[:steps], reduced[:steps], whole, forward), at),
    }


def _tensors(rank: int, segment: str, sumsq: Any, broken: Any, elements: int) -> pa.Table:
    """Layers arrive from the last to the first, as a backward pass gives them."""
    steps, layers = sumsq.shape
    n = steps * layers
    order = np.tile(np.arange(layers, dtype=np.int32), steps)
    names = pa.array([f"blocks.{i}.weight" for i in reversed(range(layers))])
    flat = sumsq[:, ::-1].reshape(n)
    largest = (np.sqrt(flat) * 0.0043).astype(np.float32).astype(np.float64)
    zeros = np.zeros(n, dtype=np.int64)
    columns = {
        "segment": _same(segment, n),
        "rank": np.full(n, rank, dtype=np.int32),
        "step": np.repeat(np.arange(1, steps + 1, dtype=np.int64), layers),
        "kind": _same("gradient", n),
        "tensor": names.take(pa.array(order)),
        "order": order,
        "elements": np.full(n, elements, dtype=np.int64),
        "sumsq": flat,
        "largest": largest,
        "lowest": -(largest * 0.97).astype(np.float32).astype(np.float64),
        "n_nan": broken[:, ::-1].reshape(n),
        "n_posinf": zeros,
        "n_neginf": zeros,
        "scale": np.ones(n),
        "dtype": _same("bfloat16", n),
    }
    return pa.table(columns, schema=tables.TENSORS)


def _probes(rank: int, segment: str, values: Sequence[Any], at: Any) -> pa.Table:
    steps = len(at)
    n = steps * len(SIGNALS)
    value = np.stack(values, axis=1).reshape(n)
    zeros: Any = np.zeros(n, dtype=np.int32)
    columns = {
        "segment": _same(segment, n),
        "rank": np.full(n, rank, dtype=np.int32),
        "step": np.repeat(np.arange(1, steps + 1, dtype=np.int64), len(SIGNALS)),
        "signal": pa.array(SIGNALS).take(pa.array(np.tile(np.arange(len(SIGNALS)), steps))),
        "value": pa.array(value, from_pandas=False),
        "n_nan": np.isnan(value).astype(np.int32),
        "n_posinf": zeros,
        "n_neginf": zeros,
        "at": pa.array(np.repeat(at, len(SIGNALS)), pa.timestamp("us", tz="UTC")),
    }
    return pa.table(columns, schema=tables.PROBES)


def _same(text: str, n: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), n)


def write_rank(rank: int, ledger: Path, segment: str, course: Course, faults: Faults) -> int:
    """Write the files of one rank as its writer would leave them; returns their bytes."""
    place = schemas.Place(node=f"node{rank // PER_NODE:04d}", local_rank=rank % PER_NODE, pid=os.getpid())
    journal = Journal(ledger, RUN, segment, rank, place, fsync=False)
    world = course.size.ranks
    journal.append(schemas.Segment(uid=segment, world_size=world, place=place, identity="store"))
    of_rank = tables_of(rank, segment, course, faults)
    if faults.silent is None or faults.silent[0] != rank:
        journal.append(schemas.Coverage(recorded=[*SIGNALS, "gradients"]))
        journal.append(schemas.SegmentEnd(last_step=course.size.steps))
    journal.close()
    done = journal.path.stat().st_size
    for name, table in of_rank.items():
        target = (
            layout.make_folder(layout.series_folder(ledger) / segment) / f"{journal.path.stem}.{name}.parquet"
        )
        series.write_sealed(table, target)
        done += target.stat().st_size
    return done


def need(size: Size, seed: int, faults: Faults) -> int:
    """Bytes that a ledger takes: those of one rank, written for real, times the ranks, and 3 % for blocks."""
    with tempfile.TemporaryDirectory() as scratch:
        done = write_rank(0, Path(scratch), str(uuid7()), Course(size, seed), faults)
    return math.ceil(done * size.ranks * 1.03) + size.ranks * 3 * 4096


def write(
    ledger: Path, size: Size, seed: int, faults: Faults, *, leave: int = 10 << 30, processes: int = 2
) -> int:
    """Write a ledger of one segment; returns its bytes. Raises `NoRoom` before anything is written."""
    wanted = need(size, seed, faults)
    layout.make_folder(ledger)
    free = shutil.disk_usage(ledger).free
    said = f"{size} need {wanted / 2**30:.2f} GiB in {ledger}; {free / 2**30:.1f} GiB are free there"
    print(said, flush=True)
    if wanted + leave > free:
        raise NoRoom(f"{said}, of which {leave / 2**30:.1f} GiB are to stay free: nothing was written")
    segment = str(uuid7())
    for folder in (layout.journal_folder(ledger), layout.series_folder(ledger)):
        layout.make_folder(folder / segment)
    one = partial(write_rank, ledger=ledger, segment=segment, course=Course(size, seed), faults=faults)
    if processes < 2:
        return sum(map(one, range(size.ranks)))
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        return sum(pool.imap_unordered(one, range(size.ranks), chunksize=8))
