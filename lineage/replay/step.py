"""One update made again: recorded batches, recorded random states, and what the probes read of it."""

from __future__ import annotations

import contextlib
import math
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from ..bundle import rng
from ..bundle.reading import Bundle
from ..capture import state
from ..judge.replayed import Made
from ..probes.columns import Stats
from ..probes.frame import Frame
from ..probes.probes import Probes, Settings
from . import peers
from .building import Built


@dataclass
class Step:
    """What one update gave."""

    step: int
    losses: list[float] = field(default_factory=list)
    signals: dict[str, float] = field(default_factory=dict)
    gradients: dict[str, Stats] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    """parameters in the order in which their gradients arrived"""
    scale: float = 1.0
    error: str | None = None
    not_finite: str | None = None
    problems: list[str] = field(default_factory=list)
    """what keeps it from being the recorded update"""
    notes: list[str] = field(default_factory=list)
    """what was brought to the recorded values"""
    random: list[str] = field(default_factory=list)
    """random states that could not be put back"""
    drew: bool = False
    """whether random numbers were drawn"""

    def made(self) -> Made:
        """For the judgement."""
        return Made(self.signals, self.error, self.not_finite)


@dataclass
class Inputs:
    """What goes into one update."""

    step: int
    batches: Sequence[Any]
    states: Sequence[rng.Rng | None]
    groups: Sequence[dict[str, Any]]
    """recorded settings of each parameter group"""
    scaler: dict[str, Any]
    clip: float | None


def inputs(bundle: Bundle, step: int, device: Any, notes: list[str]) -> Inputs:
    """Read from the bundle what one update needs."""
    batches = bundle.batches(step, device=lambda recorded: _place(recorded, device), notes=notes)
    facts, signals = bundle.facts_of(step), bundle.signals(step)
    states = [bundle.rng(step, micro) for micro in range(len(batches))]
    groups = [dict(g) for g in facts.get("groups", [])]
    if "scheduler" not in facts:  # the loop sets its rates, perhaps within the step: what the step had counts
        for i, group in enumerate(groups):
            rate = signals.get("lr") if i == 0 else signals.get(f"lr of group {i}")
            if rate is not None:
                group["lr"] = rate
    clip = signals.get("clip_threshold")
    return Inputs(step, batches, states, groups, facts.get("scaler") or {}, clip)


def _place(recorded: str, device: Any) -> Any:
    """Where a tensor goes: what was on an accelerator goes to the model's device, what was on the host stays there."""
    return torch.device("cpu") if recorded == "cpu" else device


def settings(built: Built, given: Inputs) -> tuple[list[str], list[str]]:
    """Give optimizer and scaler the recorded settings. Returns (what cannot be given, what differed before)."""
    changed: list[str] = []
    groups = built.optimizer.param_groups if built.optimizer is not None else []
    if given.groups and built.optimizer is not None and len(groups) != len(given.groups):
        return [
            f"build's optimizer has {len(groups)} parameter groups, {len(given.groups)} were recorded"
        ], []
    for i, (group, recorded) in enumerate(zip(groups, given.groups, strict=False)):
        for key, value in recorded.items():
            if key not in group or isinstance(value, str):
                continue
            plain = tuple(value) if isinstance(group[key], tuple) and isinstance(value, list) else value
            if hasattr(group[key], "fill_"):
                group[key].fill_(plain)
            elif group[key] != plain and isinstance(plain, bool | int | float | tuple):
                if key not in ("lr", "foreach", "fused"):
                    changed.append(
                        f"{key} of group {i} was {group[key]} in build, {plain} was recorded and is used"
                    )
                if key not in ("foreach", "fused", "capturable", "differentiable"):
                    group[key] = plain
    if given.scaler.get("_enabled") and built.scaler is not None:
        _scaler(built.scaler, given.scaler)
    elif given.scaler.get("_enabled"):
        return ["the run had a gradient scaler, and build gave none"], changed
    return [], changed


def _scaler(scaler: Any, recorded: dict[str, Any]) -> None:
    scale = recorded.get("_scale")
    scaler.load_state_dict(
        {
            "scale": recorded["_init_scale"] if scale is None else scale,
            "growth_factor": recorded["_growth_factor"],
            "backoff_factor": recorded["_backoff_factor"],
            "growth_interval": recorded["_growth_interval"],
            "_growth_tracker": recorded.get("_growth_tracker") or 0,
        }
    )


def make(
    built: Built,
    given: Inputs,
    *,
    around: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
    device: int | None = None,
    read: bool = True,
    ranks: Sequence[Inputs] = (),
) -> Step:
    """Make the update, and read it. `around`: a context for forward and backward passes only. `read`: with the probes,
    whose own operators would be looked at where all operators are. `ranks`: what went into the update on every rank, of
    which `given` is one: their gradients are made one after the other and averaged as DistributedDataParallel does.

    An exception of the user's code ends it and is kept in words: a replay of a broken step may well raise.
    """
    out = Step(given.step)
    out.problems, out.notes = settings(built, given)
    probes = Probes(
        model=built.model if read else None,
        optimizer=built.optimizer if read else None,
        scaler=built.scaler if read else None,
        settings=Settings(state_every=1),
    )
    try:
        probes.start()
        with _errors(out):
            if ranks:
                peers.passes(built, ranks, given, lambda g, o: _passes(built, g, o, around, device), out)
            else:
                _passes(built, given, out, around, device)
            norm = _clip(built, given)
            if norm is not None:
                out.signals["grad_norm"] = float(norm)
            _update(built)
        probes.finish(given.step)
        for frame in probes.arrived(wait=True):
            _read(frame, out)
    finally:
        probes.remove()
    return out


@contextlib.contextmanager
def _errors(out: Step) -> Iterator[None]:
    try:
        yield
    except Exception as e:
        text = str(e)
        if isinstance(e, RuntimeError) and "returned nan values" in text:  # torch's anomaly mode
            out.not_finite = text.split("'")[1] if "'" in text else text
        last = traceback.extract_tb(e.__traceback__)[-1]
        out.error = f"{type(e).__name__}: {text[:300]} ({last.filename.rpartition('/')[2]}:{last.lineno})"


def _passes(
    built: Built,
    given: Inputs,
    out: Step,
    around: Callable[[], AbstractContextManager[Any]],
    device: int | None,
) -> None:
    if built.optimizer is not None:
        built.optimizer.zero_grad(set_to_none=True)
    else:
        built.model.zero_grad(set_to_none=True)

    def before(micro: int) -> None:
        kept_state = given.states[micro] if micro < len(given.states) else None
        if kept_state is None:
            out.random.append("the random-number states are not in the bundle")
        else:
            out.random += [p for p in rng.restore(kept_state, device=device) if p not in out.random]

    kept: list[Any] = []
    with around():
        if built.update is not None:
            drawn = state.generators()
            found = built.update(list(given.batches), before)
            out.drew = state.generators() != drawn
            kept = list(found) if isinstance(found, list | tuple) else [found]
        else:
            assert built.loss is not None
            for micro, batch in enumerate(given.batches):
                before(micro)
                drawn = state.generators()
                loss = built.loss(built.model, batch)
                kept.append(loss.detach())
                out.losses.append(float(loss.detach().float()))
                _backward(built, loss, len(given.batches))
                out.drew = out.drew or state.generators() != drawn
    out.losses = [
        float(v.detach().float()) if hasattr(v, "detach") else float(v) for v in kept if v is not None
    ]
    if out.losses:
        out.signals["loss"] = sum(out.losses) / len(out.losses)


def _backward(built: Built, loss: Any, of: int) -> None:
    if built.backward is not None:
        built.backward(loss, of)
        return
    share = loss / of if of > 1 else loss
    (built.scaler.scale(share) if built.scaler is not None else share).backward()


def _clip(built: Built, given: Inputs) -> Any:
    """The norm before clipping, as the run's own clipping gave it."""
    if built.update is not None:
        return None
    if built.scaler is not None and built.optimizer is not None and (built.clip or given.clip is not None):
        built.scaler.unscale_(built.optimizer)
    if built.clip is not None:
        return built.clip()
    if given.clip is None:
        return None
    return torch.nn.utils.clip_grad_norm_(built.model.parameters(), given.clip)


def _update(built: Built) -> None:
    if built.update is not None or built.optimizer is None:
        return
    if built.scaler is not None:
        built.scaler.step(built.optimizer)
        built.scaler.update()
    else:
        built.optimizer.step()


def _read(frame: Frame, out: Step) -> None:
    out.gradients = dict(frame.of("gradient"))
    out.order = frame.facts.order
    out.scale = frame.scale
    if out.gradients:
        out.signals["grad_norm_local"] = frame.gradient_norm()
    for kind in ("weight", "moment1", "moment2", "update"):
        norms = [s.norm for _, s in frame.of(kind)]
        if norms:
            broken = any(math.isnan(n) for n in norms)
            out.signals[f"{kind}_norm"] = math.nan if broken else math.hypot(*norms)
    if frame.facts.scaled:
        out.signals["loss_scale"] = frame.scalars.get("loss_scale", frame.facts.first_scale)
    if out.error is not None and out.losses and "loss" not in out.signals:
        out.signals["loss"] = sum(out.losses) / len(out.losses)
