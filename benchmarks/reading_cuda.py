"""`python -m benchmarks.reading_cuda`: the kernels' bandwidth, and what probes add to a compiled bf16 GPT of 1 B.

Needs one CUDA device with Triton; `--smoke` runs the same code on whatever is there, in sizes that mean nothing.
Prints one table, with the physical limit and the distance to it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from lineage.probes.columns import WIDTH
from lineage.probes.probes import Probes, Settings
from lineage.probes.read import Reader

from .table import Column, Table, Target
from .timing import summary, take_turns

COLUMNS = (
    Column("what", "what"),
    Column("n", "n", "count"),
    Column("min", "min", "seconds"),
    Column("median", "median", "seconds"),
    Column("ratio", "bare step or copy = 1", "ratio"),
    Column("rate", "GB/s read", "number"),
)
GOAL_STEP, GOAL_KERNEL = 1.01, 0.85


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.proj(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Any) -> Any:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x))[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten())


class Loop:
    """A training loop that reads nothing back, with probes or without."""

    def __init__(self, sizes: dict[str, int], device: str, tokens: int, settings: Settings | None) -> None:
        torch.manual_seed(1)
        self.model = GPT(**sizes).to(device, torch.bfloat16)
        self.probes = None
        fused = device == "cuda"
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=fused)
        if settings is not None:  # before the first compiled call
            self.probes = Probes(model=self.model, optimizer=self.optimizer, settings=settings)
        self.compiled = torch.compile(self.model, fullgraph=True) if fused else self.model
        length = min(tokens, 4096)
        self.ids = torch.randint(sizes["vocabulary"], (tokens // length, length), device=device)
        self.step_number = 0

    def step(self) -> None:
        self.step_number += 1
        if self.probes:
            self.probes.start()
        self.optimizer.zero_grad()
        self.compiled(self.ids).backward()
        self.optimizer.step()
        if self.probes:
            self.probes.finish(self.step_number)
            self.probes.arrived()


def clocked(device: str, action: Callable[[], object]) -> float:
    """Seconds until the device is done."""
    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    action()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def kernel(table: Table, device: str, megabytes: int, rounds: int) -> None:
    """One read of a set of mixed tensors beside the device's own copy and separate passes."""
    tensors = [torch.randn(n, device=device).bfloat16() for n in mixed(megabytes * 500_000)]
    flat = torch.randn(megabytes * 500_000, device=device).bfloat16()
    into = torch.empty_like(flat)
    size = sum(t.nbytes for t in tensors)
    out = torch.zeros(len(tensors), WIDTH, dtype=torch.float64, device=device)
    reader = Reader()

    def apart() -> None:
        for t in tensors:
            t.isfinite().all()
            torch.linalg.vector_norm(t, dtype=torch.float32)
            t.abs().max()

    ways: dict[str, Callable[[], object]] = {
        "device copy (read and written)": lambda: into.copy_(flat),
        "one read": lambda: reader.read(tensors, out, range(len(tensors))),
        "one read with the digest": lambda: reader.read(tensors, out, range(len(tensors)), digest=True),
        "isfinite, norm and max apart": apart,
    }
    for way in ways.values():
        way()

    def turn(way: Callable[[], object]) -> Callable[[], float]:
        return lambda: clocked(device, way)

    samples = take_turns({name: turn(way) for name, way in ways.items()}, rounds)
    base = 2 * flat.nbytes / summary(samples["device copy (read and written)"])["min"]
    for name, found in samples.items():
        s = summary(found)
        moved = 2 * flat.nbytes if "copy" in name else size
        rate = moved / s["min"]
        table.add(what=name, n=s["n"], min=s["min"], median=s["median"], ratio=rate / base, rate=rate / 1e9)
        if name == "one read":
            text = f"one read of {len(tensors)} tensors at {GOAL_KERNEL:.0%} or more of the copy's bandwidth"
            table.targets.append(Target(text, f"{rate / base:.0%}", rate / base >= GOAL_KERNEL))


def mixed(elements: int) -> list[int]:
    """Sizes of a model's tensors: three quarters matrices of several sizes, some norms and biases, odd tails."""
    sizes = []
    left = elements
    for i in range(300):
        n = (elements // 100, elements // 250, 2049, 8192)[i % 4] + i % 3
        sizes.append(min(n, left))
        left -= sizes[-1]
        if left <= 0:
            break
    return sizes


def steps(table: Table, device: str, sizes: dict[str, int], tokens: int, rounds: int, each: int) -> None:
    """A step with and without probes, in turns of `each` steps."""
    from torch._dynamo.utils import counters

    kinds = {
        "no layer": None,
        "no layer, once more": None,
        "default set (state each tenth step)": Settings(),
        "full set, each step": Settings(state_every=1, activations=True),
    }
    loops = {}
    for name, settings in kinds.items():
        torch._dynamo.reset()
        loops[name] = Loop(sizes, device, tokens, settings)
        for _ in range(3):
            loops[name].step()
    breaks = sum(counters["graph_break"].values())
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("error")
        for loop in loops.values():
            for _ in range(10):
                loop.step()
        torch.cuda.set_sync_debug_mode("default")

    def several(loop: Loop) -> None:
        for _ in range(each):
            loop.step()

    def turn(loop: Loop) -> Callable[[], float]:
        def take() -> float:
            return clocked(device, lambda: several(loop)) / each

        return take

    samples = take_turns({name: turn(loop) for name, loop in loops.items()}, rounds)
    base = summary(samples["no layer"])["median"]
    for name, found in samples.items():
        s = summary(found)
        table.add(what=name, n=s["n"], min=s["min"], median=s["median"], ratio=s["median"] / base)
    ratio = summary(samples["default set (state each tenth step)"])["median"] / base
    table.targets.append(
        Target(f"the default set at most {GOAL_STEP}x of the step", f"{ratio:.4f}x", ratio <= GOAL_STEP)
    )
    table.targets.append(Target("no graph breaks", str(breaks), breaks == 0))
    synced = "no synchronisation in a whole step (torch.cuda.set_sync_debug_mode('error'))"
    table.targets.append(Target(synced, "none" if device == "cuda" else "no CUDA here", device == "cuda"))
    first = next(iter(loops.values())).model
    read = next((row["rate"] for row in table.rows if row["what"].startswith("device copy")), 1.0) * 1e9
    count = sum(p.numel() for p in first.parameters())
    size = sum(p.nbytes for p in first.parameters())
    for name, times in (("gradients", 1.0), ("default set, on average", 1.0 + 0.3), ("full set", 4.0)):
        limit = times * size / read
        table.notes.append(
            f"physical limit, {count / 1e9:.2f} B parameters: {name}, {times * size / 1e9:.2f} GB at the copy's "
            f"{read / 1e9:,.0f} GB/s, {1e3 * limit:.2f} ms, {limit / base:.2%} of the bare step; the step added "
            f"{1e3 * (summary(samples['default set (state each tenth step)'])['median'] - base):.2f} ms with the "
            f"default set and {1e3 * (summary(samples['full set, each step'])['median'] - base):.2f} ms with the full"
        )


def main() -> None:
    p = argparse.ArgumentParser(prog="python -m benchmarks.reading_cuda", description=__doc__)
    p.add_argument(
        "--smoke", action="store_true", help="the smallest sizes, on the CPU where there is no GPU"
    )
    smoke = p.parse_args().smoke
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not smoke:
        p.error("no CUDA device is here; --smoke shows that the code runs")
    name = torch.cuda.get_device_name() if device == "cuda" else "the CPU, smoke"
    table = Table("probes on CUDA", name, COLUMNS)
    if smoke:
        kernel(table, device, 1, 2)
        steps(table, device, {"width": 32, "layers": 2, "heads": 2, "vocabulary": 64}, 64, 2, 1)
    else:
        kernel(table, device, 2000, 20)
        steps(table, device, {"width": 2048, "layers": 19, "heads": 16, "vocabulary": 16384}, 8192, 8, 20)
    print(table.markdown())


if __name__ == "__main__":
    main()
