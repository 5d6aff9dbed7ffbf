"""What the layer adds to a training step, beside other ways of watching gradients."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import lineage

from . import training
from .table import SPREAD, Column, Table
from .timing import Variant, summary, take_turns, timed

NAME = "step"
COLUMNS = (
    Column("model", "model"),
    Column("what", "one training step with"),
    *SPREAD,
    Column("ratio", "time, bare step = 1", "ratio"),
    Column("cpu", "CPU median", "seconds"),
    Column("cpu_least", "CPU least", "seconds"),
    Column("added", "added to the least", "percent"),
)
BARE, AGAIN, LAYER = "no layer", "no layer, once more", "layer, defaults"
"""The same thing twice shows how large a difference the machine makes out of nothing."""
Stepper = Callable[[training.Training], float]


def bare(t: training.Training) -> float:
    """A step without anything; it gives the loss as a number, as every loop that logs does."""
    loss = t.compute(next(t.loader))
    t.update()
    return float(loss.item())


def item_norms(t: training.Training) -> float:
    """The usual loop: each parameter's gradient norm, read back one by one."""
    loss = t.compute(next(t.loader))
    norms = [p.grad.norm().item() for p in t.model.parameters() if p.grad is not None]
    assert norms
    t.update()
    return float(loss.item())


class Layered:
    """A step within the layer. `settle` waits for its threads, so that they do not run in another's turn."""

    def __init__(self, t: training.Training, root: Path, **settings: Any) -> None:
        self.rec = lineage.attach(
            None, dir=root, quiet=True, report=False, config={}, **t.objects, **settings
        )

    def __call__(self, t: training.Training) -> float:
        batch = next(t.loader)
        with self.rec.step(t.done + 1, batch) as st:
            loss = t.compute(batch)
            t.update()
            st.loss(loss)
        return float(loss.item())

    def settle(self) -> None:
        w = self.rec._writer
        assert w is not None, "the layer did not open its ledger: there is nothing to measure"
        if not (w.tasks.drain(30) and w._lines.drain(30) and (w.outbox is None or not w.outbox.drain(30))):
            raise RuntimeError("the layer's threads were still busy after 30 s")
        if w.failures:
            raise RuntimeError(f"the layer degraded, so its cost means nothing: {w.failures}")


class Watching:
    """`wandb.watch` of gradients and parameters at each step, on an offline run."""

    def __init__(self, t: training.Training, folder: Path) -> None:
        import wandb

        settings = wandb.Settings(silent=True, console="off", x_disable_stats=True)
        self.run = wandb.init(mode="offline", project="bench", dir=str(folder), settings=settings)
        self.run.watch(t.model, log="all", log_freq=1)

    def __call__(self, t: training.Training) -> float:
        loss = bare(t)
        self.run.log({"loss": loss})
        return loss


def run(*, plan: Mapping[training.Size, tuple[int, int]] | None = None) -> Table:
    """Let all variants step in turn. `plan`: size -> (rounds, steps per turn)."""
    torch.set_num_threads(1)
    plan = {training.DEMO: (12, 4), training.LARGER: (8, 1)} if plan is None else plan
    table = Table(NAME, "one training step on the CPU, torch on 1 thread", COLUMNS)
    for size, (rounds, steps) in plan.items():
        with tempfile.TemporaryDirectory() as scratch:
            _measure(table, size, rounds, steps, Path(scratch))
    table.notes += [
        "every variant has its own model, optimizer and data, alike from the seed; the losses came out equal",
        "the layer records to its ledger without a tracker; its threads settle after a turn, outside the wall "
        "clock and inside the CPU time",
        "CPU: processor time of the whole process per step, over a turn, what its threads do afterwards "
        "included; least: the turn that was disturbed least, which neighbours on the machine (shared caches, "
        "sibling threads) lengthen too. W&B's own process is not counted",
        "the bare step and all others read the loss with .item(); on a CPU that waits for nothing",
    ]
    return table


def _measure(table: Table, size: training.Size, rounds: int, steps: int, folder: Path) -> None:
    loops: dict[str, training.Training] = {}

    def loop(name: str) -> training.Training:
        loops[name] = training.Training(size)
        return loops[name]

    variants: dict[str, Stepper] = {
        BARE: bare,
        AGAIN: bare,
        LAYER: Layered(loop(LAYER), folder / "default"),
        "layer, probes=False": Layered(loop("layer, probes=False"), folder / "blind", probes=False),
        ".item() of each gradient norm": item_norms,
    }
    watch = "wandb.watch(log='all', log_freq=1)"
    variants[watch] = watching = Watching(loop(watch), folder)
    losses: dict[str, list[float]] = {name: [] for name in variants}
    cpu: dict[str, list[float]] = {name: [] for name in variants}

    def turn(name: str, step: Stepper, t: training.Training) -> Variant:
        def take() -> list[float]:
            torch.manual_seed(t.done)  # dropout draws from the one generator that all variants share
            began = time.process_time()
            found = [timed(lambda: losses[name].append(step(t))) for _ in range(steps)]
            if isinstance(step, Layered):
                step.settle()
            cpu[name].append((time.process_time() - began) / steps)
            return found

        return take

    turns = {name: turn(name, step, loops.get(name) or loop(name)) for name, step in variants.items()}
    take_turns(turns, 1)  # allocations, the first step's captures
    for spent in cpu.values():
        spent.clear()
    samples = take_turns(turns, rounds, budget=18)
    watching.run.finish()
    for step in variants.values():
        if isinstance(step, Layered):
            step.rec.close()
    if any(found != losses[BARE] for found in losses.values()):
        raise RuntimeError("a variant trained differently from the bare loop: its time cannot be compared")
    _rows(table, f"{size.name}, {loops[BARE].parameters() / 1e6:.1f} M parameters", samples, cpu)


def _rows(
    table: Table, name: str, samples: Mapping[str, list[float]], cpu: Mapping[str, list[float]]
) -> None:
    base, spent = summary(samples[BARE])["median"], {what: summary(found) for what, found in cpu.items()}
    shares = {what: s["min"] / spent[BARE]["min"] - 1 for what, s in spent.items()}
    for what, found in samples.items():
        s: dict[str, Any] = summary(found)
        table.add(
            model=name,
            what=what,
            **s,
            ratio=s["median"] / base,
            cpu=spent[what]["median"],
            cpu_least=spent[what]["min"],
            added=shares[what],
        )
    added = spent[LAYER]["min"] - spent[BARE]["min"]
    table.notes.append(
        f"{name}: the layer adds {1000 * added:+.2f} ms of CPU, {100 * shares[LAYER]:+.1f} %; the same bare step "
        f"measured once more differs by {100 * shares[AGAIN]:+.1f} %, which is noise"
    )
