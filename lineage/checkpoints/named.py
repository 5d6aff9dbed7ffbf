"""What the tensors in files are called, in the words of the live state: kind, and name without wrappers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..capture.names import clean
from ..capture.placement import kind_of
from ..judge.at_rest import Held
from .at_rest import Digested
from .contents import Contents

_KEYS = (
    "exp_avg",
    "exp_avg_sq",
    "max_exp_avg_sq",
    "momentum_buffer",
    "exp_inf",
    "square_avg",
    "sum",
    "fp32_param",
)
"""Keys under which optimizers keep tensors, where they stand before a parameter's name (Megatron)."""
_BEFORE = re.compile(rf"^(?:.*\.)?state\.({'|'.join(_KEYS)})\.(.+)$")
_LEAD = re.compile(r"^(?:[A-Za-z_0-9]*optim[A-Za-z_0-9]*\.)?(?:state\.)?")
"""`optimizer.state.`, `optim.`, `optimizer_0.state.`: what stands before a parameter's name in keys of DCP."""


def held(found: Sequence[Digested], *, everything: bool = False) -> list[Held]:
    """Name tensors of files as the live state has them. `everything`: those of no known component too."""
    out = []
    for d in found:
        t = d.tensor
        if 0 in t.shape:  # nothing in it can differ, and the live digests leave it out
            continue
        if t.component == "weights":
            out.append(Held("weight", clean(t.name), d.head, d.digest, d.why))
        elif t.component == "optimizer_state":
            key, name = _moment(t.name)
            if key == "step":  # a number for each parameter, which the live digests leave out
                continue
            out.append(Held(kind_of(key), clean(name), d.head, d.digest, d.why, name.isdigit()))
        elif everything:
            out.append(Held(t.component, t.name, d.head, d.digest, d.why))
    return out


def _moment(name: str) -> tuple[str, str]:
    """(key of the optimizer's state, parameter) of a tensor's path."""
    if m := _BEFORE.match(name):
        return m[1], m[2]
    param, _, key = name.rpartition(".")
    return key, _LEAD.sub("", param, count=1) or param


def untold(c: Contents) -> dict[str, str]:
    """Component -> why its tensors in these files have no names of parameters."""
    stage = c.facts.get("zero_stage")
    by_rank = "each rank's file has its own part, and where that lies in the whole is not read"
    out = {n: by_rank for n in ("weights", "optimizer_state") if c.facts.get(f"{n}_by_rank")}
    if stage:
        flat = f"ZeRO stage {stage} keeps it in flat parts, and where a tensor lies in them is not told"
        out["optimizer_state"] = flat
        if stage == 3:
            out["weights"] = flat
    if (
        c.facts.get("mp_world_size", 1) > 1
        or len({s for s in c.shards if "mp_rank_" in s and "model_" in s}) > 1
    ):
        out.setdefault(
            "weights", "each model-parallel rank's file has a part of it, of a place that is not told"
        )
    return out


__all__ = ["held", "untold"]
