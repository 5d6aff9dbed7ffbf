"""What it costs to digest the whole state so that replicas can be compared, beside other ways to do it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch

from lineage.capture import digest, digest_many, placement
from lineage.capture.later import Later
from lineage.capture.watched import Watched

from .table import SPREAD, Column, Table, Target
from .timing import summary, take_turns, timed
from .training import LARGER, Size, Training

NAME = "agreement"
EVERY = 50
"""Steps between two digests by default."""
GOAL = 0.01
COLUMNS = (
    Column("what", "all weights and moments read by"),
    Column("bits", "sees one flipped bit"),
    Column("swap", "sees two elements swapped"),
    *SPREAD,
    Column("rate", "GB/s", "number"),
    Column("ratio", "time, lineage = 1", "ratio"),
    Column("share", f"of {EVERY} steps", "percent"),
)
OURS = "lineage: placement and both lanes"


def readers() -> dict[str, Callable[[torch.Tensor], Any]]:
    """Name -> what reads one tensor, in a form that can be compared over ranks."""
    found: dict[str, Callable[[torch.Tensor], Any]] = {
        "SHA-1 of .cpu().float() of each tensor, as Megatron-LM's check": lambda t: hashlib.sha1(
            memoryview(t.detach().cpu().float().contiguous().numpy().tobytes()), usedforsecurity=False
        ).digest(),
        "a sum in float64 of each tensor": lambda t: t.detach().double().sum().item(),
    }
    hash_tensor = getattr(torch, "hash_tensor", None)
    if hash_tensor is not None:
        found["torch.hash_tensor of each tensor (XOR)"] = lambda t: hash_tensor(t.detach()).item()
    return found


def _ours(training: Training) -> list[Later]:
    found = placement.look(Watched(model=training.model, optimizer=training.optimizer))
    return [Later(digest_many.lanes([p.tensor for p in found.placed]))]


def _sees(read: Callable[[torch.Tensor], Any]) -> tuple[str, str]:
    """Try it: a flipped lowest bit, and two elements that change places."""
    t = torch.rand(4096, generator=torch.Generator().manual_seed(3))
    flipped, swapped = t.clone(), t.clone()
    flipped.view(torch.int32)[77] ^= 1
    swapped[10], swapped[3000] = t[3000], t[10]
    return tuple("yes" if read(t) != read(other) else "NO" for other in (flipped, swapped))  # type: ignore[return-value]


def run(*, rounds: int = 7, size: Size = LARGER, threads: int = 1) -> Table:
    """Digest weights and both moments of a GPT, on `threads` threads."""
    torch.set_num_threads(threads)
    training = Training(size)

    def step() -> None:
        training.compute(next(iter(training.loader)))
        training.update()

    step()  # moments are there from now on
    bare = min(timed(step) for _ in range(min(rounds, 3)))
    tensors = [
        p.tensor for p in placement.look(Watched(model=training.model, optimizer=training.optimizer)).placed
    ]
    total = sum(t.numel() * t.element_size() for t in tensors)
    variants: dict[str, Callable[[], object]] = {OURS: lambda: _ours(training)}
    for name, read in readers().items():
        variants[name] = lambda read=read: [read(t) for t in tensors]  # type: ignore[misc]
    samples = take_turns({n: lambda f=f: timed(f) for n, f in variants.items()}, rounds, budget=20)  # type: ignore[misc]
    sees = {OURS: _sees(lambda t: digest.lanes(t).tolist())} | {n: _sees(r) for n, r in readers().items()}
    title = (
        f"weights and moments of a GPT of {training.parameters() / 1e6:.1f} M parameters ({len(tensors)} tensors, "
        f"{total / 1e6:.0f} MB) on the CPU, torch on {threads} thread(s)"
    )
    table = Table(NAME, title, COLUMNS)
    reference = summary(samples[OURS])["min"]
    for name, values in samples.items():
        s: dict[str, Any] = summary(values)
        bits, swap = sees[name]
        table.add(
            what=name,
            bits=bits,
            swap=swap,
            **s,
            rate=total / s["min"] / 1e9,
            ratio=s["min"] / reference,
            share=s["min"] / (EVERY * bare),
        )
    share = reference / (EVERY * bare)
    table.targets.append(
        Target(f"at most {GOAL:.0%} of {EVERY} steps", f"{share:.2%}, least against least", share <= GOAL)
    )
    table.notes += [
        "others wait for the device at each tensor; lineage issues operators and takes the values later",
        f"a bare step took {bare:.3g} s; no rank waits for another in any of them",
    ]
    return table
