"""What watching a node costs: one look at its GPUs, its kernel's log, and a training step beside it.

There is no GPU here. A stand-in answers for the binding of NVML, at once, as eight healthy GPUs: what is measured is
our own work, that holds Python's lock. How long the driver takes is not in it; that time is spent outside the lock,
on a thread that nobody waits for.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from lineage.recorder.hardware import nvml
from lineage.recorder.hardware.changes import Changes
from lineage.recorder.hardware.kernel_log import KernelLog
from lineage.recorder.settings import SETTINGS

from . import training
from .step import Layered
from .table import SPREAD, Column, Table, Target
from .timing import Variant, summary, take_turns, timed

NAME = "hardware"
GPUS = 8
EVERY = float(SETTINGS["hardware_every"].default)
OFTEN = 0.1
GOAL = 0.001
LINES = 1_000
COLUMNS = (
    Column("what", "processor time of"),
    *SPREAD,
    Column("ratio", "median, first of its kind = 1", "ratio"),
    Column("share", "% of one core", "number"),
)
LOOK = f"one look at {GPUS} GPUs, every {EVERY:g} s"
OTHER = "a process that is started, and does nothing, as a poll by nvidia-smi would begin"
LOG = f"{LINES:,} new lines of the kernel's log, none an event"
NUMBERS = {
    "NVML_SUCCESS": 0,
    "NVML_ERROR_GPU_IS_LOST": 15,
    "NVML_TEMPERATURE_GPU": 0,
    "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN": 1,
    "NVML_CLOCK_SM": 1,
    "NVML_FI_DEV_NVLINK_GET_STATE": 165,
    "nvmlEventTypeXidCriticalError": 8,
}
ANSWERS: dict[str, Any] = {
    "nvmlDeviceGetCount": GPUS,
    "nvmlSystemGetDriverVersion": "580.65",
    "nvmlDeviceGetUUID": "GPU-0",
    "nvmlDeviceGetPciInfo": SimpleNamespace(busId="00000000:07:00.0"),
    "nvmlDeviceGetName": "stand-in",
    "nvmlDeviceGetTemperatureThreshold": 87,
    "nvmlDeviceGetRemappedRows": (0, 0, 0, 0),
    "nvmlDeviceGetPowerUsage": 500_000,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetTemperature": 60,
}


class StandIn:
    """The binding of NVML, as far as one look needs it: eight GPUs with 18 links each, and nothing wrong."""

    class NVMLError(Exception):
        value = 10

    def __getattr__(self, name: str) -> Any:
        if name.startswith("NVML_FI_"):
            return NUMBERS.get(name, 38)
        if name in NUMBERS or not name.startswith("nvml"):
            return NUMBERS.get(name, 99)
        return lambda *_: ANSWERS.get(name, 0)

    def nvmlDeviceGetFieldValues(self, handle: Any, ids: list[tuple[int, int]]) -> list[Any]:  # noqa: N802
        held = SimpleNamespace(ullVal=0)
        return [
            SimpleNamespace(nvmlReturn=0 if link < 18 else 3, valueType=-1, value=held) for _, link in ids
        ]

    def nvmlEventSetWait(self, events: Any, milliseconds: int) -> Any:  # noqa: N802
        time.sleep(milliseconds / 1000)
        raise self.NVMLError


def spent(action: Callable[[], object]) -> float:
    """Processor seconds of this thread that one call takes."""
    began = time.thread_time()
    action()
    return time.thread_time() - began


def _process() -> float:
    """Processor seconds of this process and of the child, which is the smallest that there is."""
    began = sum(os.times()[:4])
    for _ in range(20):
        subprocess.run(["true"], check=True)
    return (sum(os.times()[:4]) - began) / 20


def run(*, rounds: int = 200, steps: int = 20, turns: int = 12, size: training.Size = training.DEMO) -> Table:
    """Look `rounds` times; train `steps` steps a turn beside a watch at two intervals."""
    torch.set_num_threads(1)
    table = Table(NAME, f"watching a node with {GPUS} GPUs (a stand-in for NVML answers)", COLUMNS)
    look = summary([spent(one) for one in [_looker()] * rounds])
    table.add(what=LOOK, **look, ratio=1.0, share=100 * look["median"] / EVERY)
    other = summary([_process() for _ in range(max(1, rounds // 10))])
    table.add(
        what=OTHER, **other, ratio=other["median"] / look["median"], share=100 * other["median"] / EVERY
    )
    with tempfile.TemporaryDirectory() as scratch:
        log = summary([_log(Path(scratch) / f"kmsg-{n}") for n in range(max(1, rounds // 20))])
        table.add(what=LOG, **log, ratio=1.0)
        _steps(table, size, steps, turns, Path(scratch))
    share = look["median"] / EVERY
    table.targets.append(Target(f"at most {GOAL:.1%} of one core", f"{share:.3%}", share <= GOAL))
    table.notes += [
        "the driver's own time is not in it: its calls give Python's lock away, on a thread that nobody waits for",
        f"the step is measured with a look every {OFTEN:g} s, {EVERY / OFTEN:.0f} times as often as by default",
    ]
    return table


def _looker() -> Callable[[], object]:
    gpus, changes = nvml.Nvml(StandIn()), Changes()
    gpus.begin()
    list(changes.start(gpus.look(), gpus.devices))
    return lambda: list(changes.see(gpus.look(), gpus.devices))


def _log(path: Path) -> float:
    path.touch()
    log = KernelLog(path)
    log.open()
    path.write_text("".join(f"6,{n},{n},-;usb 1-{n}: new high-speed device\n" for n in range(LINES)))
    took = spent(lambda: list(log.read()))
    log.close()
    return took


def _steps(table: Table, size: training.Size, steps: int, turns: int, scratch: Path) -> None:
    """The same training in turns: without the watch, once more, and with it."""
    was, nvml.load = nvml.load, StandIn
    cpu: dict[str, list[float]] = {}
    layers: dict[str, Layered] = {}
    takers: dict[str, Variant] = {}
    try:
        for name, every in (("without it", 0.0), ("without it, once more", 0.0), ("with it", OFTEN)):
            t = training.Training(size)
            what = f"one training step {name}"
            layers[what] = Layered(t, scratch / name, hardware_every=every)
            takers[what] = _turn(layers[what], t, steps, cpu.setdefault(what, []))
        take_turns(takers, 1)
        for found in cpu.values():
            found.clear()
        take_turns(takers, turns, budget=20)
    finally:
        for layer in layers.values():
            layer.rec.close()
        nvml.load = was
    first = summary(next(iter(cpu.values())))["median"]
    for what, found in cpu.items():
        s = summary(found)
        table.add(what=what, **s, ratio=s["median"] / first)
    least = [min(found) for found in cpu.values()]
    table.notes.append(
        f"least against least, the watch adds {least[2] / least[0] - 1:+.1%} to a step of {size.name}; the same step "
        f"once more differs by {least[1] / least[0] - 1:+.1%}, which is noise"
    )


def _turn(layer: Layered, t: training.Training, steps: int, into: list[float]) -> Variant:
    def take() -> list[float]:
        began = time.process_time()
        found = [timed(lambda: layer(t)) for _ in range(steps)]
        layer.settle()
        into.append((time.process_time() - began) / steps)
        return found

    return take
