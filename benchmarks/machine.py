"""On what the figures were measured: without it they mean nothing."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

LIBRARIES = ("runlineage", "torch", "wandb", "mlflow", "pydantic", "pyarrow")


def describe() -> dict[str, str]:
    """Name -> text: time, processor, cores, load, memory, disk, Python and the libraries' versions."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = {
        "time": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "revision": _revision(),
        "cpu": _cpu(),
        "cores": f"{usable} usable of {os.cpu_count()}",
        "load before": ", ".join(f"{v:.2f}" for v in os.getloadavg()) + " (1, 5 and 15 minutes)",
        "memory": _memory(),
        "scratch": f"{tempfile.gettempdir()} on {_filesystem(Path(tempfile.gettempdir()))}",
        "platform": platform.platform(),
        "python": platform.python_version(),
    }
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _proc(path: str, key: str) -> str | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((v.strip() for k, _, v in (x.partition(":") for x in lines) if k.strip() == key), None)


def _cpu() -> str:
    return _proc("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()


def _memory() -> str:
    text = _proc("/proc/meminfo", "MemTotal")
    return f"{int(text.split()[0]) / 2**20:.1f} GiB" if text else "unknown"


def _filesystem(path: Path) -> str:
    """Type and device of the filesystem under a path: an fsync on tmpfs would measure nothing."""
    try:
        mounts = [line.split()[:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "an unknown filesystem"
    under = [m for m in mounts if path.resolve().is_relative_to(m[1])]
    device, _, kind = max(under, key=lambda m: len(m[1]), default=("?", "?", "?"))
    return f"{kind} ({device})"


def _revision() -> str:
    command = ("git", "describe", "--always", "--dirty", "--abbrev=12")
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"


def lines(found: Mapping[str, str]) -> str:
    """The description as Markdown."""
    return "\n".join(f"- {name}: {text}" for name, text in found.items())
