"""What FSDP leaves in a folder of Accelerate or of the Trainer, which calls it.

accelerate 1.15, utils/fsdp_utils.py, `save_fsdp_model` and `save_fsdp_optimizer`. SHARDED_STATE_DICT: the folders
`pytorch_model_fsdp_<i>/` and `optimizer_<i>/` are DCP; with use_dcp=False, or LOCAL_STATE_DICT, each rank has a file
`pytorch_model_fsdp[_<i>]_rank<r>.bin` and `optimizer_<i>_rank<r>.bin`. FULL_STATE_DICT: `pytorch_model_fsdp.bin` and
`optimizer.bin`, which are read as any file of weights or of an optimizer. Loading stops at each that is missing.
"""

from __future__ import annotations

import re

from .. import optimizer, taking
from ..contents import Contents
from ..folder import Folder
from ..sources import AHEAD
from . import dcp, ranks

_FOLDER = re.compile(r"(pytorch_model_fsdp|optimizer)_\d+")
_RANK = re.compile(r"(pytorch_model_fsdp|optimizer)(?:_(\d+))?_rank(\d+)\.bin")
MOST = 32
"""Files of ranks that are taken apart."""


def read(folder: Folder, c: Contents) -> set[str]:
    """List what is there; return the components of which something is, or was meant to be."""
    done = set()
    for name in folder.folders():
        if (m := _FOLDER.fullmatch(name)) and dcp.looks(folder.sub(name)):
            kind = _kind(m[1])
            sub = folder.sub(name)
            inner = Contents(f"{c.path}/{name}", dcp.NAME, "", step=c.step)
            dcp.read(sub, inner, kind)
            kept = {kind} if kind == "weights" else {kind, "optimizer_step"}
            ranks.absorb(c, inner, sub, name, kept, folder)
            c.world = c.world or inner.world
            done.add(kind)
    return done | _of_ranks(folder, c)


def _kind(stem: str) -> str:
    return "optimizer_state" if stem == "optimizer" else "weights"


def _of_ranks(folder: Folder, c: Contents) -> set[str]:
    """A file for each rank: all must be there, as many as there are random states of ranks."""
    found: dict[tuple[str, str], dict[int, str]] = {}
    for name in folder.names():
        if m := _RANK.fullmatch(name):
            found.setdefault((m[1], m[2] or ""), {})[int(m[3])] = name
    if not found:
        return set()
    world = max(c.world or 0, 1 + max(r for names in found.values() for r in names))
    c.world = world
    for (stem, _), names in found.items():
        _one(folder, c, _kind(stem), names, world)
    return {_kind(stem) for stem, _ in found}


def _one(folder: Folder, c: Contents, kind: str, names: dict[int, str], world: int) -> None:
    gone = [r for r in range(world) if r not in names]
    some = names[min(names)]
    if gone:
        c.find(
            "LIN-K001",
            "fails",
            f"of {world:,} ranks those of {ranks.some(gone)} have no file such as {some}: each rank loads its own",
            "Copy them again from the nodes that wrote them, or take an earlier checkpoint.",
            kind,
        )
    c.facts[f"{kind}_by_rank"] = True
    text = f"a file for each of {len(names):,} of {world:,} ranks"
    c.part(kind, "partial" if gone else "present", text, *list(names.values())[:8])
    c.shards += names.values()
    looked = [names[r] for r in sorted(names)][:MOST]
    folder.ahead(looked, first=48, last=AHEAD)
    for n, name in enumerate(looked):
        made = taking.torch(c, folder, name, kind)
        if made is None or n:
            continue
        if kind == "weights":
            c.tensors += made.tensors("weights")
        elif optimizer.looks(made.value):
            optimizer.check(c, optimizer.state(made.value, made, folder), name)
            c.tensors += made.tensors("optimizer_state", made.value["state"])
            c.parts[kind].text += f", {text}"
