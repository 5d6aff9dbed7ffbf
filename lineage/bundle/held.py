"""What a training process holds for a bundle: at each step a little, and at an alarm what must be taken at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._rooms import schemas
from .lately import Lately
from .rng import Rng

if TYPE_CHECKING:
    from ..capture.watched import Watched


@dataclass
class KeptStep:
    """One of the last steps: its batches by reference, and small values as they were when it began."""

    step: int
    batches: list[Any] = field(default_factory=list)
    start: Rng | None = None
    """the states at the beginning of the step, where its first batch does not come with it"""
    rng: list[Rng] = field(default_factory=list)
    """the states when each micro-batch was given: before its forward pass, and after the loader drew for it"""
    facts: dict[str, Any] = field(default_factory=dict)
    bytes: int = 0


@dataclass
class KeptState:
    """Copies of weights, buffers and optimizer state, and of what belongs to each parameter."""

    weights: dict[str, Any]
    buffers: dict[str, Any]
    optimizer: dict[str, dict[str, Any]]
    """parameter -> key -> tensor or plain value"""
    updates_after: int


@dataclass
class Held:
    """All that one bundle is written from, away from the training thread."""

    ledger: Path
    run: str
    segment: str
    rank: int
    world_size: int
    place: schemas.Place
    step: int
    done: int
    alarm: schemas.Alarm
    alarm_record: str | None
    signals: dict[str, float]
    steps: list[KeptStep]
    rows: Lately
    tensors: Callable[[], Any] = lambda: None
    """the rows of the bad step's tensors as columns, which may not be among `rows` yet"""
    fingerprints: list[str] = field(default_factory=list)
    """of the bad step's micro-batches, as they were made when the batch was given"""
    again: Callable[[Any], str | None] = lambda batch: None
    """makes the fingerprint of a batch once more"""
    loader: Any = None
    scheduler: Any = None
    now: dict[str, Any] = field(default_factory=dict)
    """plain values at the alarm"""
    state: KeptState | None = None
    differing: dict[str, Any] = field(default_factory=dict)
    """what this rank holds of tensors that differ from those of other ranks at the alarm: `<kind>|<name>` -> tensor"""
    parent: schemas.Checkpoint | None = None
    """the checkpoint that this segment went on from"""
    watched: str = "nothing was watched for some"
    """what this process watches for events of machines and software, in words"""
    left_out: dict[str, str] = field(default_factory=dict)
    """what was there and could not be taken -> why"""
    absent: dict[str, str] = field(default_factory=dict)
    """what is not there -> why, or the line of code that would give it"""
    limit: int = 0
    surroundings: Callable[[], object] = lambda: None
    """waits, not without end, until what records tell of the run is on record; called by the thread that writes"""
    at: datetime = field(default_factory=schemas.now)


def facts_at_start(watched: Watched) -> dict[str, Any]:
    """Settings of each parameter group, the scaler and the scheduler's counters. Nothing waits for a device.

    What lies on a device is copied there: the training loop writes into it. An object that cannot be read is left out.
    """
    found: dict[str, Any] = {"batches_seen": watched.batches_seen}
    for name, read in _READERS.items():
        holder = getattr(watched, name)
        if holder is not None:
            try:
                found |= read(holder)
            except Exception as e:
                found.setdefault("not_read", {})[name] = type(e).__name__
    return found


def _optimizer(optimizer: Any) -> dict[str, Any]:
    groups = [{k: _copy(v) for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    return {"groups": groups, "counter": counter(optimizer)}


def _scaler(scaler: Any) -> dict[str, Any]:
    names = ("_enabled", "_init_scale", "_growth_factor", "_backoff_factor", "_growth_interval")
    on_device = {n: _copy(getattr(scaler, n, None)) for n in ("_scale", "_growth_tracker")}
    return {"scaler": {n: getattr(scaler, n, None) for n in names} | on_device}


def _scheduler(scheduler: Any) -> dict[str, Any]:
    return {"scheduler": {n: getattr(scheduler, n, None) for n in ("last_epoch", "_step_count")}}


def _model(model: Any) -> dict[str, Any]:
    training = getattr(model, "training", None)
    return {"training": training} if isinstance(training, bool) else {}


_READERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "optimizer": _optimizer,
    "scaler": _scaler,
    "scheduler": _scheduler,
    "model": _model,
}


def _copy(value: Any) -> Any:
    return value.detach().clone() if hasattr(value, "detach") else value


def counter(optimizer: Any) -> float | None:
    """The step counter of the first parameter that has one on the host; None where reading it would wait."""
    for group in getattr(optimizer, "param_groups", ()):
        for p in group["params"]:
            step = optimizer.state[p].get("step") if p in optimizer.state else None
            if step is not None:
                on_host = not hasattr(step, "device") or step.device.type == "cpu"
                return float(step) if on_host else None
    return None


def plain(value: Any) -> Any:
    """Numbers, texts, lists and dicts of them; a tensor as its numbers where it is small, else by its shape."""
    if hasattr(value, "element_size"):
        return value.tolist() if value.numel() <= 64 else f"a tensor {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return (
        value if value is None or isinstance(value, bool | int | float | str) else f"a {type(value).__name__}"
    )
