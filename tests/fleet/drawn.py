"""Small ledgers drawn at random: faults, gaps, several processes per rank, kinds that are read seldom."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from uuid6 import uuid7

import schemas as s
from lineage.ledger import layout, series, tables
from lineage.ledger.journal import Journal

EVERY = {"gradient": 1, "activation": 1, "weight": 7, "moment2": 7}
"""Kind of row -> every how many steps it is read."""
LAYERS = ["embed", *(f"blocks.{i}" for i in range(5)), "head"]
PARTS = ["weight", "bias"]


class Drawn:
    """A ledger of one or two segments, with what a seed puts into it."""

    def __init__(self, root: Path, seed: int, ranks: int = 5, steps: int = 110) -> None:
        self.rng = np.random.default_rng([seed, 99])
        self.root, self.ranks, self.steps = root, ranks, steps
        self.scaler = self.rng.random() < 0.4
        for first in (1, steps + 1)[: 1 + int(self.rng.random() < 0.3)]:
            self.segment(str(uuid7()), first)

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def segment(self, uid: str, first: int) -> None:
        common = np.cumsum(self.rng.normal(0, 0.05, self.steps))
        storm = int(self.rng.integers(40, self.steps)) if self.chance(0.5) else None
        leap = int(self.rng.integers(30, self.steps)) if self.chance(0.4) else None
        for rank in range(self.ranks):
            if self.chance(0.05):
                continue  # it left nothing
            until = int(self.rng.integers(20, self.steps)) if self.chance(0.15) else self.steps
            parts = [(0, until)]
            if self.chance(0.3):  # a second process, after the first one or beside it
                cut = int(self.rng.integers(5, until))
                parts = [(0, cut), (max(0, cut - int(self.rng.integers(0, 2)) * 4), until)]
            for begin, end in parts:
                self.process(uid, rank, first, begin, end, common, storm, leap)

    def process(
        self,
        uid: str,
        rank: int,
        first: int,
        begin: int,
        end: int,
        common: Any,
        storm: int | None,
        leap: int | None,
    ) -> None:
        """What one process wrote of the steps `begin` to `end` (without it), counted from 0 in the segment."""
        place = s.Place(node=f"n{rank // 2}", local_rank=rank % 2, pid=os.getpid())
        journal = Journal(self.root, "drawn", uid, rank, place, fsync=False)
        journal.append(s.Segment(uid=uid, world_size=self.ranks, place=place))
        if self.chance(0.8):
            journal.append(s.SegmentEnd(last_step=first + end - 1))
        journal.close()
        n = self.steps
        local = np.exp(common + self.rng.normal(0, 0.15, n))
        loss = 3.0 + common + self.rng.normal(0, 0.05, n)
        reduced = np.exp(common)
        if leap is not None:
            local[leap:], reduced[leap:] = local[leap:] * 30, reduced[leap:] * 30
        for values in (local, loss, reduced):
            for _ in range(int(self.rng.poisson(0.5))):
                at = int(self.rng.integers(n))
                values[at] = self.rng.choice([np.nan, np.inf, -np.inf, values[at] * 20, 0.0])
        if storm is not None:
            reduced[storm:], loss[storm + 1 :], local[storm + 1 :] = np.nan, np.nan, np.nan
        kept = [i for i in range(begin, end) if not self.chance(0.02)]
        rows = []
        for i in kept:
            at = 1_767_225_600_000_000 + (first + i) * 1_000_000 + (3_600_000_000 if rank == 1 else 0)
            signals = [
                ("loss", loss[i]),
                ("grad_norm_local", local[i]),
                ("grad_norm", reduced[i]),
                ("lr", 1e-3),
            ]
            signals += [("loss_scale", 1024.0)] * self.scaler
            rows += [
                (uid, rank, first + i, name, value, at) for name, value in signals if not self.chance(0.01)
            ]
        columns = list(zip(*rows, strict=True)) or [()] * 6
        value = np.array(columns[4], dtype=float)
        table = pa.table(
            [
                *columns[:4],
                pa.array(value, from_pandas=False),
                np.isnan(value).astype(np.int32),
                (value == np.inf).astype(np.int32),
                (value == -np.inf).astype(np.int32),
                pa.array(columns[5], pa.timestamp("us", tz="UTC")),
            ],
            schema=tables.PROBES,
        )
        self.put(uid, journal.path.stem, "probes", table)
        self.put(uid, journal.path.stem, "tensors", self.tensors(uid, rank, first, kept, common, storm, leap))

    def tensors(
        self,
        uid: str,
        rank: int,
        first: int,
        kept: list[int],
        common: Any,
        storm: int | None,
        leap: int | None,
    ) -> pa.Table:
        rows = []
        blow = (
            (int(self.rng.integers(25, self.steps)), int(self.rng.integers(len(LAYERS))))
            if self.chance(0.5)
            else None
        )
        nan = (
            (int(self.rng.integers(10, self.steps)), int(self.rng.integers(len(LAYERS))))
            if self.chance(0.3)
            else None
        )
        scale = 1024.0 if self.scaler else 1.0
        for i in kept:
            for kind, every in EVERY.items():
                if (first + i) % every:
                    continue
                for j, layer in enumerate(LAYERS):
                    for k, part in enumerate(PARTS):
                        x = common[i] + 0.3 * j + self.rng.normal(0, 0.1)
                        if layer == "embed" and self.chance(0.3):
                            continue  # an expert without tokens, an embedding that is not read
                        if leap is not None and i >= leap and kind == "gradient" and j % 2:
                            x += np.log(9.0)
                        if (
                            blow is not None
                            and i in (blow[0], blow[0] + 1)
                            and j == blow[1]
                            and kind == "gradient"
                        ):
                            x += np.log(12.0 * 20 ** (i - blow[0]))
                        bad = 0
                        if nan is not None and i == nan[0] and j == nan[1] and part == "weight":
                            bad = 5
                        if storm is not None and i > storm:
                            bad = 64
                        rows.append(
                            (
                                uid, rank, first + i, kind, f"{layer}.{part}",
                                j * 2 + k if kind == "gradient" else None, 64,
                                float(np.exp(2 * x)) * scale**2 if kind == "gradient" else float(np.exp(2 * x)),
                                float(np.exp(x)), -0.5, bad, int(self.chance(0.001)), 0,
                                scale if kind == "gradient" else None, "float32",
                            )
                        )  # fmt: skip
        columns = list(zip(*rows, strict=True)) or [()] * len(tables.TENSORS)
        return pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, tables.TENSORS, strict=True)], schema=tables.TENSORS
        )

    def put(self, uid: str, writer: str, table: str, rows: pa.Table) -> None:
        """Seal the rows; or leave the stream as a process does that lives, or was killed, or a file as none does."""
        folder = layout.make_folder(layout.series_folder(self.root) / uid)
        sealed = folder / f"{writer}.{table}.parquet"
        if self.chance(0.7):
            series.write_sealed(rows, sealed)
            if self.chance(0.05):
                sealed.write_bytes(sealed.read_bytes()[: sealed.stat().st_size // 2])
            return
        out = series.SeriesWriter(self.root, uid, writer, table)
        for i in range(0, rows.num_rows, 50):
            out.write({n: rows[n].slice(i, 50).to_pylist() for n in rows.column_names})
        if rows.num_rows and self.chance(0.3):
            with out.path.open("r+b") as f:
                f.truncate(out.path.stat().st_size - 9)
