"""How fast tensors are digested, beside what else could be taken of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from blake3 import blake3

from lineage.capture import digest, digest_shards

from .table import SPREAD, Column, Table, Target
from .timing import Variant, summary, take_turns, timed

NAME = "digest"
COLUMNS = (
    Column("dtype", "dtype"),
    Column("what", "one tensor read by"),
    Column("position", "sees a swap of two elements"),
    *SPREAD,
    Column("rate", "GB/s", "number"),
    Column("ratio", "time, lanes = 1", "ratio"),
)
LANES = "lineage.capture.digest.lanes (both lanes)"
ROWS = "the same, as the second of four shards of rows"
GOAL = 1.0
"""GB/s of a tensor that is whole, or a shard of rows."""


def readers() -> dict[str, Callable[[torch.Tensor], Any]]:
    """Name -> what reads a contiguous tensor once."""
    found: dict[str, Callable[[torch.Tensor], Any]] = {
        LANES: lambda t: digest.lanes(t).tolist(),
        ROWS: lambda t: digest_shards.share(t, (4 * len(t),), [[(len(t), 2 * len(t))]]).tolist(),
        **{
            f"the same, as a shard of {width:,} of {whole:,} columns": _columns(width, whole)
            for width, whole in ((688, 11_008), (3141, 50_257))
        },
        "hashlib.sha256 over the bytes": lambda t: hashlib.sha256(_bytes(t)).digest(),
        "blake3 over the bytes": lambda t: blake3(_bytes(t)).digest(),
        ".double().sum()": lambda t: t.double().sum().item(),
    }
    hash_tensor = getattr(torch, "hash_tensor", None)
    if hash_tensor is not None:
        found["torch.hash_tensor (XOR)"] = lambda t: hash_tensor(t).item()
    return found


def _columns(width: int, whole: int) -> Callable[[torch.Tensor], Any]:
    """Read a tensor as the columns that one rank has of a matrix: each row is a run of its own."""

    def read(t: torch.Tensor) -> list[int]:
        rows = len(t) // width
        held = [[(0, rows)], [(width, 2 * width)]]
        found: list[int] = digest_shards.share(
            t[: rows * width].view(rows, width), (rows, whole), held
        ).tolist()
        return found

    return read


def _bytes(t: torch.Tensor) -> memoryview:
    """The tensor's memory without a copy; the cost on the CPU. A GPU's tensor would be copied first."""
    return memoryview(t.view(torch.uint8).numpy())


def _turn(read: Callable[[torch.Tensor], Any], t: torch.Tensor) -> Variant:
    return lambda: timed(lambda: read(t))


def _sees_a_swap(read: Callable[[torch.Tensor], Any], dtype: torch.dtype) -> str:
    """Try it: does the result change when two different elements change places?"""
    t = torch.arange(1, 4097).to(dtype)
    swapped = t.clone()
    swapped[10], swapped[3000] = t[3000], t[10]
    return "yes" if read(t) != read(swapped) else "NO"


def run(*, rounds: int = 7, megabytes: int = 64, threads: int = 2) -> Table:
    """Digest one tensor of `megabytes` MB, in fp32 and in bf16, on `threads` threads."""
    torch.set_num_threads(threads)
    table = Table(NAME, f"one tensor of {megabytes} MB on the CPU, torch on {threads} thread(s)", COLUMNS)
    size = megabytes * 10**6
    for dtype in (torch.float32, torch.bfloat16):
        t = torch.randn(size // dtype.itemsize, generator=torch.Generator().manual_seed(1)).to(dtype)
        found = readers()
        samples = take_turns({name: _turn(read, t) for name, read in found.items()}, rounds, budget=4)
        reference = summary(samples[LANES])["median"]
        for name, values in samples.items():
            s: dict[str, Any] = summary(values)
            table.add(
                dtype=str(dtype).removeprefix("torch."),
                what=name,
                position=_sees_a_swap(found[name], dtype),
                **s,
                rate=size / s["median"] / 1e9,
                ratio=s["median"] / reference,
            )
        for name in (LANES, ROWS):
            rate = size / min(samples[name]) / 1e9
            kind = f"{str(dtype).removeprefix('torch.')}, {'whole' if name == LANES else 'a shard of rows'}"
            table.targets.append(
                Target(f"{kind}: at least {GOAL:g} GB/s", f"{rate:.2g}, in the least time", rate >= GOAL)
            )
    table.notes += [
        "blake3 and sha256 need the bytes on the host and in one piece: no sum over shards, a copy off a GPU",
        "columns lie in pieces: their cost depends on how many rows begin at the same place of a block of 4,096 words",
        "a reader that does not see a swap of two elements cannot tell a permuted tensor from the right one",
    ]
    return table
