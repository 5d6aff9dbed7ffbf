"""Read a set of tensors once: sum of squares, largest magnitude, NaN and infinities, the digest on demand.

Each device has its way: Triton kernels on CUDA (`kernel`), cached pieces on the CPU (`host`), plain operators
elsewhere and for what the kernel does not know (`plain`). All of them write the same rows, see `columns`, and the
digest of all is the one of `lineage.capture.digest`. What cannot be read is said and left out.
"""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from ..capture import digest as d
from . import host, plain, table
from .readable import NotRead, in_logical_order, in_memory_order, local

KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""Types that the kernel reads; others are read by plain operators."""
_KEPT = 4096
"""Tables kept: one per set of tensors, or per tensor where each is read in a hook of its own."""


@cache
def has_kernel() -> bool:
    """Whether Triton is there to be used."""
    return importlib.util.find_spec("triton") is not None


def why(error: BaseException) -> str:
    """The reason in a few words: ours as it is, another's by its class."""
    return str(error) if isinstance(error, NotRead) else f"{type(error).__name__} while reading"


@dataclass
class _Job:
    """One tensor to read: its place among those asked for, its row, its pieces and where they begin."""

    at: int
    row: int
    flats: list[Any]
    starts: list[int]


class Reader:
    """Reads sets of tensors into rows. It keeps the tables of the sets that it has seen."""

    def __init__(self, kernel_on: Callable[[Any], bool] | None = None) -> None:
        """`kernel_on`: tells for a device whether the kernel reads there; CUDA with Triton by default."""
        self.kernel_on = kernel_on or (lambda device: device.type == "cuda" and has_kernel())
        self._tables: dict[Any, table.Table] = {}

    def read(
        self,
        tensors: Sequence[Any],
        out: Any,
        rows: Sequence[int],
        *,
        digest: bool = False,
        starts: Sequence[int | Sequence[int]] | None = None,
    ) -> dict[int, str]:
        """Read each tensor into its row of `out`, float64[*, 9] on the tensors' device.

        In place of a tensor may stand a list of pieces of one, or None, which leaves the row alone: absent is not
        zero. `starts`: index of each tensor's (or piece's) first element in the unsharded tensor, for the digest.
        Returns position -> reason for those that could not be read; nothing is raised.
        """
        refused: dict[int, str] = {}
        ways: dict[Any, list[_Job]] = defaultdict(list)
        for i, tensor in enumerate(tensors):
            if tensor is None:
                continue
            try:
                pieces = tensor if isinstance(tensor, list) else [tensor]
                flats = [(in_logical_order if digest else in_memory_order)(local(p)) for p in pieces]
                start = starts[i] if starts is not None else 0
                begins = [start] * len(flats) if isinstance(start, int) else list(start)
                ways[self._way(flats, out)].append(_Job(i, rows[i], flats, begins))
            except Exception as e:
                refused[i] = why(e)
        for way, jobs in ways.items():
            if way == "host":
                _host(jobs, out, digest, refused)
            elif way == "plain":
                _plain(jobs, out, digest, refused)
            else:
                try:
                    self._kernel(way, jobs, out, digest)
                except Exception as e:
                    refused.update(dict.fromkeys([job.at for job in jobs], why(e)))
        return refused

    def _way(self, flats: list[Any], out: Any) -> Any:
        first = flats[0]
        if any(f.device != out.device for f in flats):
            raise NotRead(f"on {first.device}, and its results are kept on {out.device}")
        if first.dtype in KINDS and self.kernel_on(first.device):
            return KINDS[first.dtype], all(f.data_ptr() % 16 == 0 for f in flats)
        return "host" if first.device.type == "cpu" else "plain"

    def _kernel(self, way: Any, jobs: list[_Job], out: Any, digest: bool) -> None:
        from . import kernel

        kind, aligned = way
        counts = tuple(tuple(f.numel() for f in job.flats) for job in jobs)
        key = (way, out.device, counts, tuple((job.row, *job.starts) for job in jobs))
        known = self._tables.get(key)
        if known is None:
            if len(self._tables) >= _KEPT:
                self._tables.clear()
            places = [job.starts for job in jobs], [job.row for job in jobs]
            known = table.build(counts, *places, out.device, kernel.RUN, d.BLOCK)
            self._tables[key] = known
        known.point_at([f for job in jobs for f in job.flats])
        lanes = None
        if digest:
            blocks = [d.multipliers(lane, known.blocks, out.device) for lane in (0, 1)]
            lanes = (*d.tables(str(out.device)), *blocks)
        with on(out.device):
            kernel.launch(known, out, known.rows, kind, aligned, lanes)


def _host(jobs: list[_Job], out: Any, digest: bool, refused: dict[int, str]) -> None:
    done, results = [], []
    for job in jobs:
        try:
            results.append(host.read(job.flats, digest=digest, starts=job.starts))
            done.append(job.row)
        except Exception as e:
            refused[job.at] = why(e)
    put(out, done, results)


def _plain(jobs: list[_Job], out: Any, digest: bool, refused: dict[int, str]) -> None:
    for job in jobs:
        try:
            plain.read(job.flats, out[job.row], digest=digest, starts=job.starts)
        except Exception as e:
            refused[job.at] = why(e)


def on(device: Any) -> Any:
    """The device as the current one, where that means something."""
    return torch.cuda.device(device) if device.type == "cuda" else torch.device(device)


def put(out: Any, rows: Sequence[int], results: Sequence[Sequence[float]]) -> None:
    """Write results that are on the host into their rows on the CPU."""
    if len(rows) == 1:
        out[rows[0]].copy_(torch.tensor(results[0], dtype=torch.float64))
    elif rows:
        out[torch.tensor(rows)] = torch.tensor(results, dtype=torch.float64)
