"""One read in plain torch operators, on any device: the reference that the other ways are tested against.

No value decides what is done, so it never waits for a device. Sums are float64 where the device has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..capture import digest as d
from .columns import LANE0, LARGEST, LOWEST, N_NAN, N_NEGINF, N_POSINF, READ, SUMSQ

CHUNK = 1 << 22
"""Elements at a time: 32 MiB of float64 scratch per temporary."""


def read(flats: Sequence[Any], out: Any, *, digest: bool = False, starts: Sequence[int] = (0,)) -> None:
    """Read one tensor, whose elements lie in flat contiguous tensors, into a row: float64[9], see `columns`.

    `starts`: for each of them the index of its first element in the unsharded tensor, for the digest.
    """
    found = torch.zeros(out.shape[0], dtype=torch.float64, device=out.device)
    lanes = torch.zeros(2, dtype=torch.int64, device=out.device)
    for i, flat in enumerate(flats):
        for part in flat.split(CHUNK):
            wide = part.to(torch.float64)
            clean = torch.where(torch.isfinite(wide), wide, 0.0)
            found[SUMSQ] += (clean * clean).sum()
            found[LARGEST] = torch.maximum(found[LARGEST], clean.abs().max())
            found[LOWEST] = torch.minimum(found[LOWEST], clean.min())
            found[N_NAN] += torch.isnan(wide).sum()
            found[N_POSINF] += (wide == torch.inf).sum()
            found[N_NEGINF] += (wide == -torch.inf).sum()
        if digest:
            words = d.words(flat)
            lanes += d.part(words, starts[i] * (words.numel() // flat.numel()))
    found[READ] = sum(flat.numel() for flat in flats)
    found[LANE0:] = lanes.view(torch.float64)
    out.copy_(found)
