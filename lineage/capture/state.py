"""Digests of the live state, component by component, as this rank holds it."""

from __future__ import annotations

import hashlib
import json
import pickle
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._rooms import schemas
from . import digest as d
from . import digest_many, digest_shards, flat_parts, state_facts
from .placement import cut_up, kind_of
from .reason import reason
from .watched import LINES, Watched

Found = tuple[str | None, dict[str, Any], str | None]
"""(digest or None, readable details, note)"""


LOADED = ("weights", "rng", "loader_position")
"""What is read once more right after a load: a loader gives its first batch, and random numbers are drawn,
before the first step begins."""


SHARES = "of this rank's parts; what all ranks hold adds up to the whole, see the table `states`"


class Lanes:
    """The lanes of tensors, read at once; those that are known already are not read again.

    `known`: `id` of a tensor -> its lanes, or what this rank's part adds to those of the whole tensor.
    """

    def __init__(self, known: Mapping[int, tuple[int, int]] | None = None) -> None:
        self._known = dict(known or {})

    def digests(self, named: Mapping[str, Any]) -> dict[str, str]:
        """Name -> digest of the whole tensor, or of this rank's part of it, which then says what part it is."""
        places = {name: place(t) for name, t in named.items()}
        by_device: dict[Any, list[tuple[Any, Any]]] = {}
        for name, t in named.items():
            if id(t) not in self._known:
                part = local(t)
                by_device.setdefault(part.device, []).append((t, (part, places[name][1])))
        for many in by_device.values():
            found = digest_many.lanes([t for _, (t, _) in many], [p for _, (_, p) in many]).tolist()
            self._known |= {id(t): (a, b) for (t, _), (a, b) in zip(many, found, strict=True)}
        return {
            name: d.finish(d.header(t) + places[name][0], list(self._known[id(t)]))
            for name, t in named.items()
        }

    def found(self, named: Mapping[str, Any]) -> Found:
        """One digest for a set of tensors. Of shards it is this rank's own, and says so."""
        parts = {name: part for name, t in named.items() if (part := place(t)[0])}
        detail: dict[str, Any] = {"tensors": len(named)}
        if parts:
            layout = hashlib.sha256(repr(sorted(parts.items())).encode()).hexdigest()[:12]
            detail |= {"sharded": len(parts), "layout": layout}
        return d.root(self.digests(named)), detail, SHARES if parts else None


def place(tensor: Any) -> tuple[str, digest_many.Place | None]:
    """What part of a tensor this rank holds, in words, and where it lies in the whole: ("", None) where it is whole.

    Raises `NoShare` for partial sums, and where a rank is not on the tensor's mesh.
    """
    if not hasattr(tensor, "placements") or all(p.is_replicate() for p in tensor.placements):
        return "", None
    held = digest_shards.ranges(tensor)
    return f" {held}", (tensor.shape, held)


def capture(
    watched: Watched,
    only: Sequence[str] = schemas.COMPONENTS,
    known: Mapping[int, tuple[int, int]] | None = None,
) -> list[schemas.ComponentDigest]:
    """Digest every component. A component that fails is recorded without a digest, with the reason.

    `known`: lanes that were read already, see `Lanes`. A component of which this rank holds shards is the rank's own:
    it can be compared with a save that was sharded alike; with any other, the rows of all ranks are compared.
    """
    lanes = Lanes(known)
    out = []
    for name in _READERS:
        if name in only:
            found, scope = read(watched, name, lanes)
            if found is not None:
                out.append(component(name, scope, found))
    return out


def read(watched: Watched, name: str, lanes: Lanes) -> tuple[Found | None, str]:
    """Read one component: (what was found, its scope). One that fails is found without a digest, with the reason."""
    reader, scope = _READERS[name]
    try:
        return (reader(watched, lanes) if name in TENSORS else reader(watched)), scope
    except digest_shards.NoShare as e:
        return (None, {}, f"no digest is made: {e}"), scope
    except Exception as e:
        return (None, {}, f"could not be read ({reason(e)})"), scope


def component(name: str, scope: str, found: Found) -> schemas.ComponentDigest:
    """What was found, as it is recorded. Of shards it is the rank's own."""
    digest, detail, note = found
    return schemas.ComponentDigest(
        component=name,
        digest=digest,
        scope="rank" if "layout" in detail else scope,
        detail={k: schemas.Scalar.of(v) for k, v in detail.items()},
        note=note,
    )


def local(tensor: Any) -> Any:
    """The part of a distributed tensor that this rank holds."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _weights(w: Watched, lanes: Lanes) -> Found | None:
    if w.model is None:
        return None, {}, LINES["model"]
    named = dict(w.parameters())
    facts = {"dtypes": state_facts.dtypes(named.values()), "tied": state_facts.ties(w.model)}
    return _pieces(w, _with(lanes.found(named), facts))


def _pieces(w: Watched, found: Found) -> Found:
    """Mark what is made of the pieces that FullyShardedDataParallel keeps as plain tensors: they are the rank's own."""
    whose = set(cut_up(w.model)) if w.model is not None else set()
    pieces = [p for _, p in w.parameters() if id(p) in whose]
    if not pieces or "layout" in found[1]:
        return found
    return found[0], found[1] | {"sharded": len(pieces), "layout": flat_parts.layout(pieces)}, SHARES


def _with(found: Found, facts: Mapping[str, str]) -> Found:
    """What was found, with facts that are not empty."""
    return found[0], found[1] | {k: v for k, v in facts.items() if v}, found[2]


def _buffers(w: Watched, lanes: Lanes) -> Found | None:
    named = dict(w.buffers())
    if not named:
        return None
    facts = {"dtypes": state_facts.dtypes(named.values())}
    if _broadcast(w.model):
        facts["from_rank"] = "0"
    found = _with(lanes.found(named), facts)
    return found[0], found[1] | kinds_of_buffers(w.model, lanes.digests(named)), found[2]


def kinds_of_buffers(model: Any, digests: Mapping[str, str]) -> dict[str, str]:
    """Names and one digest for each kind of buffers that is lost in a way of its own; `digests`: name -> digest."""
    kinds = state_facts.kinds_of_buffers(model, digests)
    names = {kind: state_facts.some(found, ", ") for kind, found in kinds.items()}
    return names | {f"digest_{kind}": d.root({n: digests[n] for n in found}) for kind, found in kinds.items()}


def _broadcast(model: Any) -> bool:
    """Whether rank 0's buffers are given to the others before each forward pass (DistributedDataParallel's default)."""
    return type(model).__name__ == "DistributedDataParallel" and bool(
        getattr(model, "broadcast_buffers", False)
    )


def _ema(w: Watched, lanes: Lanes) -> Found | None:
    if w.ema is None:
        return None
    tensors, numbers = state_facts.averaged(w.ema)
    digest, detail, note = lanes.found(tensors)
    return digest, detail | {"dtypes": state_facts.dtypes(tensors.values())} | numbers, note


def _master_weights(w: Watched, lanes: Lanes) -> Found | None:
    """Copies of the weights in float32 that an optimizer updates in place of the model's own."""
    if w.model is None or w.optimizer is None:
        return None
    own = w.parameter_names()
    if all(p.dtype.itemsize >= 4 for _, p in w.parameters()):
        return None  # what is no part of the model is then a stale parameter, and no copy of higher precision
    named = {
        f"group{g}.{i}": p
        for g, group in enumerate(w.optimizer.param_groups)
        for i, p in enumerate(group["params"])
        if id(p) not in own and p.dtype.itemsize >= 4
    }
    return _of_parts(w, lanes.found(named)) if named else None


def _of_parts(w: Watched, found: Found) -> Found:
    """What was found, as this rank's own where the optimizer holds flat parts of all parameters (ZeRO)."""
    parts = flat_parts.held(dict(w.parameters()), w.optimizer.param_groups)
    if not parts or not found[1].get("tensors"):
        return found
    return found[0], found[1] | {"layout": flat_parts.layout(parts)}, found[2]


def _optimizer_state(w: Watched, lanes: Lanes) -> Found | None:
    if w.optimizer is None:
        return None, {}, LINES["optimizer"]
    named = {}
    for at, (_, state) in _states(w).items():
        for key, value in state.items():
            if key != "step" and hasattr(value, "element_size"):
                named[f"{at}.{kind_of(key)}"] = value
    return _pieces(w, _of_parts(w, lanes.found(named)))


def _states(w: Watched) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Parameter name (or group and place where the model is unknown) -> (parameter, optimizer state)."""
    names = w.parameter_names()
    out = {}
    for g, group in enumerate(w.optimizer.param_groups):
        for i, p in enumerate(group["params"]):
            state = w.optimizer.state.get(p)
            if state:
                out[names.get(id(p), f"group{g}.{i}")] = (p, state)
    return out


def _optimizer_step(w: Watched) -> Found | None:
    if w.optimizer is None:
        return None
    low, high = step_counters(w) or (0, 0)
    detail = {"step": low} if low == high else {"lowest": low, "highest": high}
    return _plain([low, high]), detail, None


def step_counters(w: Watched) -> tuple[int, int] | None:
    """The optimizer's own step counters over all parameters (min, max); None where it keeps none."""
    if w.optimizer is None:
        return None
    steps = [int(s["step"]) for _, s in _states(w).values() if "step" in s]
    steps += [
        int(g["step"]) for g in w.optimizer.param_groups if "step" in g
    ]  # Transformer Engine's: one for a group
    return (min(steps), max(steps)) if steps else None


def _scheduler(w: Watched) -> Found | None:
    if w.scheduler is None:
        return None, {}, LINES["scheduler"]
    state = w.scheduler.state_dict()
    detail = {k: state[k] for k in ("last_epoch", "_step_count") if isinstance(state.get(k), int)}
    progress = {k: v for k, v in state.items() if k not in ("base_lrs", "_last_lr", "lr_lambdas")}
    return _plain(progress), detail, "progress; rates are compared as effective values"


def _scaler(w: Watched) -> Found | None:
    if w.scaler is None:
        return None
    state = w.scaler.state_dict()
    return _plain(state), {k: v for k, v in state.items() if isinstance(v, int | float)}, None


def generators() -> dict[str, str]:
    """Every random-number generator of this process -> sha256 of its state, 16 hex digits."""
    found: dict[str, bytes] = {"python": repr(random.getstate()).encode()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        found["numpy"] = pickle.dumps(numpy.random.get_state(), protocol=4)
    torch = sys.modules.get("torch")
    if torch is not None:
        found["torch"] = torch.get_rng_state().numpy().tobytes()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            for i in range(torch.cuda.device_count()):
                found[f"cuda:{i}"] = torch.cuda.get_rng_state(i).numpy().tobytes()
    return {name: hashlib.sha256(data).hexdigest()[:16] for name, data in found.items()}


def _rng(w: Watched) -> Found | None:
    """Generators that stand as they did at attach have not been drawn from: `unused` names them."""
    now = generators()
    unused = [n for n, state in now.items() if w.generators.get(n) == state]
    sha = hashlib.sha256(b"lineage-rng-v1\n")
    for name, state in sorted(now.items()):
        sha.update(f"{name} {state}\n".encode())
    return "sha256:" + sha.hexdigest(), {**now, "unused": ",".join(unused)}, None


def _loader(w: Watched) -> Found | None:
    holders: tuple[tuple[str, Any], ...] = (
        ("loader", w.loader),
        ("sampler", getattr(w.loader, "sampler", None)),
    )
    for name, holder in holders:
        if hasattr(holder, "state_dict"):
            state = holder.state_dict()
            detail = {k: v for k, v in state.items() if isinstance(v, int | float | str)}
            return _plain(state), detail, f"{name}.state_dict()"
    if w.loader is None:
        return None, {}, LINES["loader"]
    return (
        None,
        {"batches_since_attach": w.batches_seen},
        "this loader keeps no position (no state_dict); batches are counted since attach",
    )


def _plain(value: Any) -> str:
    """sha256 over the canonical JSON of a state dict; objects without a plain form go in by type name."""
    text = json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(b"lineage-plain-v1\n" + text.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _canonical(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        return [_canonical(v) for v in value]
    if hasattr(value, "element_size"):
        return Lanes().digests({"": value})[""]
    if isinstance(value, float):
        return value.hex()
    if value is None or isinstance(value, bool | int | str):
        return value
    return type(value).__qualname__


TENSORS = ("weights", "buffers", "master_weights", "ema", "optimizer_state")
_READERS: dict[str, tuple[Callable[..., Found | None], str]] = {
    "weights": (_weights, "replicated"),
    "buffers": (_buffers, "rank"),
    "master_weights": (_master_weights, "replicated"),
    "ema": (_ema, "rank"),
    "optimizer_state": (_optimizer_state, "replicated"),
    "optimizer_step": (_optimizer_step, "replicated"),
    "lr_scheduler": (_scheduler, "replicated"),
    "grad_scaler": (_scaler, "replicated"),
    "rng": (_rng, "rank"),
    "loader_position": (_loader, "rank"),
}
