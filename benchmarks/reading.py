"""What probes add to a training step, beside other ways of watching tensors. `python -m benchmarks probes`.

On a machine with a GPU, `python -m benchmarks.reading_cuda` measures the kernels and a step of a model of 1 B.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lineage.probes import activations
from lineage.probes.probes import Probes, Settings

from . import counting, training
from .others_probes import UnderflowDebugger, item_norms
from .step import Watching, bare
from .table import SPREAD, Column, Table, Target
from .timing import Variant, summary, take_turns, timed

NAME = "probes"
GPT = training.Size("GPT", 672, 6, 12, 128, 12)
"""32.9 million parameters, 1,536 tokens per step: a small batch, and what probes cost does not grow with it."""
COLUMNS = (
    Column("what", "one training step with"),
    *SPREAD,
    Column("ratio", "time, bare step = 1", "ratio"),
    Column("cpu_least", "CPU least", "seconds"),
    Column("cpu_ratio", "CPU, bare = 1", "ratio"),
    Column("own", "in its own calls", "percent"),
    Column("operators", "operators per tensor", "number"),
    Column("back", "values read back per tensor", "number"),
    Column("bytes", "bytes read per byte of parameters", "number"),
)
BARE, AGAIN = "no layer", "no layer, once more"
DEFAULT = "default set, a step of gradients alone"
STATE = "default set, the tenth step: weights, moments, updates too"
FULL = "full set: all of it and activations by block, each step"
WATCH = "wandb.watch(log='all', log_freq=1)"
ANOMALY = "torch.autograd.set_detect_anomaly(True)"
ITEM = ".item() of each gradient norm"
UNDERFLOW = "an underflow debugger as Hugging Face's"
Step = Callable[[], float]
GOAL = 0.02
"""Share of a step that the default set may add."""


class Probed:
    """A step with probes; `own` holds for each step the processor time spent in the probes' own calls."""

    def __init__(self, t: training.Training, settings: Settings) -> None:
        self.t, self._spent, self._within = t, 0.0, False
        self.own: list[float] = []
        self.probes = Probes(model=t.model, optimizer=t.optimizer, settings=settings)
        self.probes.reader.read = self._timed(self.probes.reader.read)  # type: ignore[method-assign]
        gradients: Any = self.probes.gradients
        gradients._arrived, gradients._over = self._timed(gradients._arrived), self._timed(gradients._over)
        if settings.activations:  # one reader for the process, and one variant that uses it
            activations._reader.read = self._timed(activations._reader.read)  # type: ignore[method-assign]

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*a: Any, **k: Any) -> Any:
            if self._within:  # a call of ours within another: that one counts it
                return call(*a, **k)
            self._within, began = True, time.thread_time()
            try:
                return call(*a, **k)
            finally:
                self._within = False
                self._spent += time.thread_time() - began

        return measured

    def __call__(self) -> float:
        self._spent = 0.0
        self._timed(self.probes.start)()
        loss = bare(self.t)
        self._timed(self._finish)()
        self.own.append(self._spent)
        return loss

    def _finish(self) -> None:
        self.probes.finish(self.t.done)
        self.probes.arrived()

    def check(self) -> None:
        if self.probes.trouble:
            raise RuntimeError(f"a probe failed, so its cost means nothing: {self.probes.trouble}")


def variants(
    size: training.Size, folder: Path
) -> tuple[dict[str, Step], dict[str, training.Training], Watching]:
    """Name -> a step; each on a model, optimizer and data of its own, alike from the seed."""
    loops = {
        name: training.Training(size)
        for name in (BARE, AGAIN, DEFAULT, STATE, FULL, WATCH, ANOMALY, ITEM, UNDERFLOW)
    }
    watching = Watching(loops[WATCH], folder)
    UnderflowDebugger(loops[UNDERFLOW].model)

    def anomaly() -> float:
        with torch.autograd.set_detect_anomaly(True):
            return bare(loops[ANOMALY])

    def items() -> float:
        t = loops[ITEM]
        loss = t.compute(next(t.loader))
        item_norms(t.model)
        t.update()
        return float(loss.item())

    steps: dict[str, Step] = {
        BARE: lambda: bare(loops[BARE]),
        AGAIN: lambda: bare(loops[AGAIN]),
        DEFAULT: Probed(loops[DEFAULT], Settings(state_every=0)),
        STATE: Probed(loops[STATE], Settings(state_every=1)),
        FULL: Probed(loops[FULL], Settings(state_every=1, activations=True)),
        WATCH: lambda: watching(loops[WATCH]),
        ANOMALY: anomaly,
        ITEM: items,
        UNDERFLOW: lambda: bare(loops[UNDERFLOW]),
    }
    return steps, loops, watching


def run(*, size: training.Size = GPT, rounds: int = 5, budget: float = 60.0) -> Table:
    """Let all variants step in turn, then count what each does per tensor on a tiny model."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        steps, loops, watching = variants(size, Path(scratch))
        losses: dict[str, list[float]] = {name: [] for name in steps}
        cpu: dict[str, list[float]] = {name: [] for name in steps}

        def turn(name: str, step: Step) -> Variant:
            def take() -> float:
                torch.manual_seed(loops[name].done)  # dropout draws from the one generator that all share
                began = time.process_time()
                found = timed(lambda: losses[name].append(step()))
                cpu[name].append(time.process_time() - began)
                return found

            return take

        turns = {name: turn(name, step) for name, step in steps.items()}
        take_turns(turns, 1)  # allocations
        for name, step in steps.items():
            cpu[name].clear()
            if isinstance(step, Probed):
                step.own.clear()
        samples = take_turns(turns, rounds, budget=budget, least=1)
        watching.run.finish()
    if any(found != losses[BARE] for found in losses.values()):
        raise RuntimeError("a variant trained differently from the bare loop: its time cannot be compared")
    tokens = size.batch * size.length
    title = f"one step of a GPT of {loops[BARE].parameters() / 1e6:.1f} M parameters, {tokens:,} tokens"
    table = Table(NAME, f"{title}, on the CPU, torch on 1 thread", COLUMNS)
    counts = per_tensor()
    shares = {}
    bare_cpu = min(cpu[BARE])
    for name, found in samples.items():
        step = steps[name]
        own = None
        if isinstance(step, Probed):
            step.check()
            own = shares[name] = min(step.own) / bare_cpu
        s: dict[str, Any] = summary(found)
        s["ratio"] = s["median"] / summary(samples[BARE])["median"]
        least = min(cpu[name])
        table.add(
            what=name, **s, cpu_least=least, cpu_ratio=least / bare_cpu, own=own, **counts.get(name, {})
        )
    mean = (9 * shares[DEFAULT] + shares[STATE]) / 10
    text = (
        f"the default set, nine steps of gradients and one of everything, adds at most {GOAL:.0%} of a step"
    )
    table.targets.append(Target(text, f"{mean:.2%} in its own calls", mean <= GOAL))
    table.targets.append(_back(counts))
    table.notes += [*_limit(loops[BARE], shares, bare_cpu), *NOTES]
    return table


def _back(counts: dict[str, dict[str, float]]) -> Target:
    found = max(counts[name]["back"] for name in (DEFAULT, STATE, FULL))
    return Target("probes read no value back", f"{found:g} per tensor", found == 0)


NOTES = (
    "every variant has its own model, optimizer and data, alike from the seed; the losses came out equal",
    "in its own calls: processor time inside start, hooks and finish, the least over the bare step's least; unlike a "
    "difference of two steps it is not lost in the noise, which is what the bare step differs from itself",
    "operators, values read back and bytes: what a step dispatches beyond the bare one, on a tiny model with "
    "the same loop, views left out; wandb's own process and copies within NumPy are not seen. On the CPU our "
    "operators go three times over pieces of 512 KiB, which memory gives once; on CUDA it is two launches for a "
    "whole set, and one read",
    "losses are read with .item() by every variant alike",
)


def per_tensor() -> dict[str, dict[str, float]]:
    """What each variant does beyond the bare step, per parameter tensor."""
    with tempfile.TemporaryDirectory() as scratch:
        steps, loops, watching = variants(training.TINY, Path(scratch))
        for step in steps.values():
            step()
        counts = {name: counting.of(step) for name, step in steps.items()}
        watching.run.finish()
    tensors = len(list(loops[BARE].model.parameters()))
    size = sum(p.nbytes for p in loops[BARE].model.parameters())
    return {name: found.less(counts[BARE], tensors, size) for name, found in counts.items()}


def _limit(t: training.Training, shares: dict[str, float], bare_cpu: float) -> list[str]:
    """The time that reading the bytes once takes at the speed of memory, and how far from it we are."""
    big = torch.randn(32_000_000)
    rate = big.nbytes / min(_cpu(lambda: torch.linalg.vector_norm(big)) for _ in range(5))
    size = sum(p.nbytes for p in t.model.parameters())
    lines = []
    for name, times, of in ((DEFAULT, 1, "gradients"), (STATE, 4, "gradients, weights and both moments")):
        limit, took = times * size / rate, shares[name] * bare_cpu
        lines.append(
            f"physical limit: reading {of} once, {times * size / 1e6:.0f} MB at {rate / 1e9:.1f} GB/s (a sum of "
            f"squares over 128 MB, now), takes {1e3 * limit:.1f} ms, {limit / bare_cpu:.2%} of a step; ours took "
            f"{1e3 * took:.1f} ms, {took / limit:.1f} times that"
        )
    return lines


def _cpu(action: Callable[[], object]) -> float:
    began = time.process_time()
    action()
    return time.process_time() - began
