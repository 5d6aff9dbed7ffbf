"""What each rank wrote of a DCP checkpoint: shards that were never written, and keys that ranks share."""

from __future__ import annotations

import re

from .. import torch_file
from ..contents import Contents
from ..folder import Folder
from . import ranks

_RANK = re.compile(
    r"(?:^|[._])(?:dp_)?rank[_.]?(\d+)(?:[._]|$)|(?:^|\.)(?:rng|random|(?:train_)?(?:data_?)?loader)[a-z_]*?[._](\d+)(?:\.|$)",
)
_HEADS = 64
"""Shards of which the first bytes are read."""
_REMEDY = "Copy the missing files again from the nodes that wrote them, or take an earlier checkpoint."


def zeros(folder: Folder, c: Contents, names: list[str]) -> None:
    """A file that begins with zeros was never written: each entry begins as a file of torch.save, or of safetensors."""
    some = names if len(names) <= _HEADS else [*names[: _HEADS // 2], *names[-_HEADS // 2 :]]
    folder.ahead(some, first=16)
    empty = [n for n in some if (head := torch_file.head_of(folder, n, 16)) and not any(head)]
    if empty:
        c.find(
            "LIN-K002",
            "fails",
            f"{ranks.named(empty)} begin{'s' if len(empty) == 1 else ''} with zeros: never written to the disk, as "
            "after a loss of power",
            _REMEDY,
            "weights",
        )


def per_rank(c: Contents, component: str, code: str, keys: list[str]) -> None:
    """Random states and loaders differ between ranks; under one key for all, only one rank's survives."""
    if c.world is None or c.world < 2 or component == "lr_scheduler":
        return
    seen = {int(m[1] or m[2]) for k in keys if (m := _RANK.search(k))}
    if seen:
        gone = [r for r in range(c.world) if r not in seen]
        c.parts[component].text += f" of {len(seen):,} ranks"
        if gone and component == "rng":
            ranks.rng(c, dict.fromkeys(sorted(seen), ""), c.world, "ranks {}", "nothing says so")
        return
    tensors = {t.name: t for t in c.tensors}
    if any(k not in tensors for k in keys):
        c.find(
            code,
            "differs",
            f"{keys[0]} stands once for {c.world:,} ranks: of a key that ranks share, only one rank's value is kept",
            "Put the rank into the key (`dp_rank_<r>`), as torchtitan does.",
            component,
            certain=False,
        )
