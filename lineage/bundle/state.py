"""Weights, buffers and optimizer state of a bundle, in files of bounded size with the digests of each component."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._rooms import schemas
from .folder import Folder, TooBig
from .held import KeptState, plain

HEADERS = 4096
"""Bytes for the headers of the files, roughly."""
SHARD = 256 << 20
"""Bytes of tensors in one file: they are in memory twice while it is written."""


def write(state: KeptState, folder: Folder) -> schemas.BundleState:
    """Write all of it, or none. Raises `TooBig`, `OSError`."""
    from ..capture.state import Lanes

    lanes, live = Lanes(), []
    moments: dict[str, Any] = {}
    rest: dict[str, dict[str, Any]] = {}
    for name, values in state.optimizer.items():
        for key, value in values.items():
            if hasattr(value, "element_size"):
                moments[f"{name}|{key}"] = value
            else:
                rest.setdefault(name, {})[key] = plain(value)
    parts = {"weights": state.weights, "buffers": state.buffers, "optimizer": moments}
    folder.fits(sum(t.numel() * t.element_size() for p in parts.values() for t in p.values()) + HEADERS)
    begun = len(folder.files)
    try:
        for what, tensors in parts.items():
            for i, shard in enumerate(_shards(tensors)):
                gone = folder.tensors(
                    f"state/{what}-{i:03d}.safetensors", shard, f"{what} before the step's update"
                )
                if gone:
                    raise TooBig(f"{next(iter(gone))}: {next(iter(gone.values()))}")
        folder.json("state/plain.json", rest, "what of the optimizer's state is no tensor")
    except Exception:
        folder.take_back(begun)
        raise
    if state.weights:
        live.append(_component("weights", lanes.found(state.weights)))
    if state.buffers:
        live.append(_component("buffers", lanes.found(state.buffers)))
    named = {k.replace("|", "."): v for k, v in moments.items() if not k.endswith("|step")}
    if named:
        live.append(_component("optimizer_state", lanes.found(_kinds(named))))
    return schemas.BundleState(updates_after=state.updates_after, live=live)


def _kinds(named: dict[str, Any]) -> dict[str, Any]:
    """Moments under the names that live digests give them."""
    from ..capture.placement import kind_of

    out = {}
    for name, value in named.items():
        at, _, key = name.rpartition(".")
        out[f"{at}.{kind_of(key)}"] = value
    return out


def _component(name: str, found: Any) -> schemas.ComponentDigest:
    digest, detail, note = found
    return schemas.ComponentDigest(
        component=name, digest=digest, detail={k: schemas.Scalar.of(v) for k, v in detail.items()}, note=note
    )


def _shards(tensors: Mapping[str, Any]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    size = SHARD
    for name, t in tensors.items():
        more = t.numel() * t.element_size()
        if size + more > SHARD:
            out.append({})
            size = 0
        out[-1][name] = t
        size += more
    return out
