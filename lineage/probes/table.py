"""The table of pointers that one launch of the kernel goes by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Table:
    """Where the tensors of one launch lie, and which program reads which run. All of it lies on the device.

    A tensor may lie in several pieces: `counts`, `starts` and `addresses` have one entry per piece, `bounds` and
    `rows` one per tensor.
    """

    tensors: int
    programs: int
    blocks: int
    """blocks of the digest that the longest tensor reaches, and a run more"""
    counts: Any
    starts: Any
    program_tensor: Any
    program_first: Any
    bounds: Any
    rows: Any
    addresses: Any = None
    _known: tuple[int, ...] = ()

    def point_at(self, pieces: Sequence[Any]) -> None:
        """Set the addresses; what has not moved since the last call costs no copy.

        A gradient that was freed and made again may lie elsewhere, so this is asked at each launch.
        """
        found = tuple(t.data_ptr() for t in pieces)
        if found != self._known:
            self.addresses = to_device(list(found), torch.int64, self.counts.device)
            self._known = found


def build(
    counts: Sequence[Sequence[int]],
    starts: Sequence[Sequence[int]],
    rows: Sequence[int],
    device: Any,
    run: int,
    block: int,
) -> Table:
    """Lay out programs of `run` elements each.

    `counts`, `starts`: per tensor, elements and first index of each of its pieces. `rows`: where each tensor's
    result goes.
    """
    pieces = torch.tensor([c for tensor in counts for c in tensor], dtype=torch.int64)
    begins = [s for tensor in starts for s in tensor]
    per_piece = (pieces + run - 1) // run
    edges = torch.zeros(len(pieces) + 1, dtype=torch.int64)
    edges[1:] = per_piece.cumsum(0)
    owner = torch.repeat_interleave(torch.arange(len(pieces)), per_piece)
    first = (torch.arange(len(owner)) - edges[owner]) * run
    ends = torch.tensor([0, *(len(tensor) for tensor in counts)]).cumsum(0)
    return Table(
        tensors=len(counts),
        programs=len(owner),
        blocks=max((s + c + run) // block + 2 for s, c in zip(begins, pieces.tolist(), strict=True)),
        counts=to_device(pieces, torch.int64, device),
        starts=to_device(begins, torch.int64, device),
        program_tensor=to_device(owner, torch.int32, device),
        program_first=to_device(first, torch.int64, device),
        bounds=to_device(edges[ends], torch.int64, device),
        rows=to_device(list(rows), torch.int64, device),
    )


def to_device(values: Any, dtype: Any, device: Any) -> Any:
    """A small tensor on a device, sent from pinned memory so that the host does not wait."""
    host = torch.as_tensor(values, dtype=dtype)
    if torch.device(device).type != "cuda":
        return host.to(device)
    return host.pin_memory().to(device, non_blocking=True)
