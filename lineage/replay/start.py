"""The state that a replay begins with: out of the bundle, out of a checkpoint, or as `build` gave it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._rooms import schemas
from ..bundle.reading import Bundle, BundleError
from ..capture import state
from ..capture.names import clean
from ..capture.watched import Watched
from .building import Built

COMPONENTS = ("weights", "buffers", "optimizer_state", "optimizer_step")
"""What is compared at the start. Random states are put back as recorded; rates and the scaler's scale too."""


@dataclass(frozen=True)
class Plan:
    """Where a replay begins, and which steps it makes."""

    source: str
    """bundle, checkpoint or built"""
    path: Path | None
    checkpoint: schemas.BundleCheckpoint | None
    step: int | None
    """updates that the state has seen"""
    steps: tuple[int, ...]
    """the recorded steps to make, the bad one last"""
    why: str
    """the choice in words"""


def plan(
    bundle: Bundle, checkpoint: Path | None = None, *, at: int | None = None, ranks: Sequence[Bundle] = ()
) -> Plan:
    """Choose where to begin. `checkpoint`: one that was named, of step `at` where its own record does not tell.
    `ranks`: the bundles of all ranks whose gradients went into each update, this one's alone by default.

    The state in the bundle comes first, being the step's own. Then a checkpoint; where the bundle holds every batch
    since, those updates are made again. Raises `BundleError` where the bad step's batches are not there.
    """
    held = [set(b.steps()) for b in (ranks or [bundle])]
    there = sorted(set.intersection(*held)) if held else []
    if bundle.step not in bundle.steps():
        bundle.batches(bundle.step)  # says what is missing
    if checkpoint is None and bundle.manifest.state is not None:
        after = bundle.manifest.state.updates_after
        text = "the state that the step began with, from the bundle"
        if after:
            text = f"a state from the bundle that is up to {after} updates later than the step's own"
        return Plan("bundle", None, None, bundle.step - 1 + after, (bundle.step,), text)
    good = _last_good(bundle)
    path = checkpoint or _there(bundle, good)
    if path is None:
        steps = _since(0, there, bundle.step)
        gone = f"the last good checkpoint, of step {good.step:,}, is not there; " if good is not None else ""
        text = f"{gone}the model as build gave it"
        return Plan("built", None, None, 0 if steps[0] == 1 else None, steps, text)
    known = good if good is not None and (checkpoint is None or _same(checkpoint, good)) else _sidecar(path)
    step = known.step if known is not None else at
    steps = _since(step, there, bundle.step)
    text = f"the checkpoint {path.name}" + (f" of step {step:,}" if step is not None else "")
    return Plan("checkpoint", path, known, step, steps, text)


def _last_good(bundle: Bundle) -> schemas.BundleCheckpoint | None:
    """The last good checkpoint as the bundle has it, or as the ledger does: its save may have been on record later."""
    known = bundle.manifest.last_good
    if bundle.ledger is None:
        return known
    from ..bundle import around
    from ..ledger.reader import Ledger

    records = [r for r in Ledger(bundle.ledger).records if r.segment == bundle.manifest.segment]
    whole = [r for r in records if r.kind != "checkpoint" or r.payload.status == "complete"]
    found, _ = around.checkpoints(whole, bundle.step, None)
    if found is None or (known is not None and known.status == "complete" and known.step > found.step):
        return known
    return found


def _since(step: int | None, there: Sequence[int], bad: int) -> tuple[int, ...]:
    """The steps to make again: all since the state where each of them is there, else the bad one alone."""
    if step is not None:
        wanted = tuple(range(step + 1, bad + 1))
        if wanted and set(wanted) <= set(there):
            return wanted
    return (bad,)


def _same(path: Path, known: schemas.BundleCheckpoint) -> bool:
    return known.path is not None and path.resolve() == Path(known.path).resolve()


def _there(bundle: Bundle, good: schemas.BundleCheckpoint | None) -> Path | None:
    """Where the last good checkpoint is now: where it was, where it was moved to, or in the evidence store."""
    if good is None:
        return None
    places = [Path(good.path)] if good.path else []
    if bundle.ledger is not None:
        from ..ledger.reader import Ledger

        ledger = Ledger(bundle.ledger)
        marks = [r.payload for r in ledger.of("checkpoint_mark") if r.payload.checkpoint == good.uid]
        evidence = {i for m in marks if m.mark == "preserved" for i in m.evidence}
        places += [Path(m.path) for m in marks if getattr(m, "path", None)]
        places += [bundle.ledger / r.payload.location for r in ledger.of("preserved") if r.id in evidence]
        places += [
            Path(r.payload.path)
            for r in ledger.of("checkpoint")
            if r.payload.uid == good.uid and r.payload.path
        ]
    return next((p for p in places if p.exists()), None)


def _sidecar(path: Path) -> schemas.BundleCheckpoint | None:
    from ..ledger import sidecars

    try:
        found = sidecars.read(path)
    except (sidecars.SidecarError, OSError):
        return None
    if found is None:
        return None
    c = found.checkpoint
    live = [schemas.ComponentDigest.model_validate(d.model_dump()) for d in c.live]
    return schemas.BundleCheckpoint(uid=c.uid, step=c.step, path=str(path), live=live)


def enter(bundle: Bundle, chosen: Plan, built: Built) -> None:
    """Bring the state into the model and the optimizer. Raises `BundleError`, and what the user's `load` raises."""
    if chosen.source == "bundle":
        _from_bundle(bundle, built)
    elif chosen.source == "checkpoint":
        if built.load is None:
            raise BundleError(
                f"the replay begins with {chosen.path}, and build gave no load: return 'load': a function that takes "
                "its path and restores model and optimizer"
            )
        built.load(chosen.path)  # type: ignore[arg-type]


def _from_bundle(bundle: Bundle, built: Built) -> None:
    import torch

    found = bundle.state()
    if found is None:
        raise BundleError(f"{bundle.path} holds no weights")
    weights, buffers, optimizer = found
    parameters = {clean(n): p for n, p in built.model.named_parameters()}
    held = {clean(n): b for n, b in built.model.named_buffers()}
    _check(parameters, weights, "parameters")
    with torch.no_grad():
        for name, value in weights.items():
            parameters[name].copy_(value)
        for name, value in buffers.items():
            if name in held:
                held[name].copy_(value)
    if built.optimizer is None:
        return
    on_device = {
        id(p)
        for group in built.optimizer.param_groups
        if group.get("capturable") or group.get("fused")
        for p in group["params"]
    }
    for name, values in optimizer.items():
        p = parameters[name]
        built.optimizer.state[p] = {
            k: v.to(p.device) if hasattr(v, "to") and (k != "step" or id(p) in on_device) else v
            for k, v in values.items()
        }


def _check(here: dict[str, Any], kept: dict[str, Any], what: str) -> None:
    missing, more = sorted(set(kept) - set(here)), sorted(set(here) - set(kept))
    if missing or more:
        some = f"recorded and not in build's model: {', '.join(missing[:4])}" if missing else ""
        other = f"in build's model and not recorded: {', '.join(more[:4])}" if more else ""
        raise BundleError(f"the {what} are not those of the run; {'; '.join(t for t in (some, other) if t)}")
    for name, value in kept.items():
        if here[name].shape != value.shape:
            raise BundleError(
                f"{name} has the shape {tuple(here[name].shape)} in build's model, {tuple(value.shape)} was recorded"
            )


def digests(built: Built) -> dict[str, str | None]:
    """Component -> digest of what a replay begins with, as a save would have it."""
    watched = Watched(
        model=built.model, optimizer=built.optimizer, scheduler=built.scheduler, scaler=built.scaler
    )
    return {c.component: c.digest for c in state.capture(watched, COMPONENTS)}


def distance(bundle: Bundle, chosen: Plan, replayed: dict[str, str | None]) -> schemas.ReplayStart:
    """How far the state that was entered is from the recorded one, component by component and in updates."""
    recorded: list[schemas.ComponentDigest] = []
    if chosen.source == "bundle" and bundle.manifest.state is not None:
        recorded = bundle.manifest.state.live
    elif chosen.checkpoint is not None:
        recorded = chosen.checkpoint.live
    known = {c.component: c.digest for c in recorded}
    components = [
        schemas.ReplayDistance(
            component=name,
            recorded=known.get(name),
            replayed=digest,
            equal=known[name] == digest if known.get(name) is not None and digest is not None else None,
        )
        for name, digest in replayed.items()
        if known.get(name) is not None or digest is not None
    ]
    first = chosen.steps[0]
    between = None if chosen.step is None else abs(first - 1 - chosen.step)
    again = len(chosen.steps) - 1
    text = chosen.why
    if again:
        text += (
            f", and {again} recorded update{'' if again == 1 else 's'} made again up to step {bundle.step:,}"
        )
    if between:
        text += f"; {between:,} update{'' if between == 1 else 's'} away from the recorded state"
    return schemas.ReplayStart(
        source=chosen.source,
        checkpoint=chosen.checkpoint.uid if chosen.checkpoint is not None else None,
        step=chosen.step,
        replayed_updates=again,
        updates_between=between,
        components=components,
        text=text,
    )
