"""The exact digests of many tensors: small ones share passes, since a pass costs more than their words do.

A lane is a sum over blocks of words, and a block that is filled up with zeros adds nothing. So blocks of many small
tensors lie below each other in one buffer, each tensor's from its own first block on, and the sums of blocks are
added up by tensor afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import digest as d
from . import digest_cpu, digest_shards

if TYPE_CHECKING:
    import torch

Place = tuple[Sequence[int], Sequence[digest_shards.Ranges]]
"""Shape of a whole tensor, and the places of each of its dimensions that a part has."""
ROWS = 64
"""Blocks in one buffer: 2 MiB."""
SMALL = 16 * d.BLOCK
"""Words up to which a tensor shares a pass."""


def lanes(tensors: Sequence[torch.Tensor], places: Sequence[Place | None] | None = None) -> torch.Tensor:
    """The two lanes of each tensor, int64[n, 2] on their device, as `digest.lanes` gives them one by one.

    `places`: of a tensor that is a part of another one, the whole one's shape and the places it has there; it gives
    what `digest_shards.share` gives. All tensors lie on one device. Raises `KeyError` for element sizes other than 1,
    2, 4 and 8 bytes.
    """
    import torch

    device = tensors[0].device
    out = torch.zeros(len(tensors), 2, dtype=torch.int64, device=device)
    shared = _Shared(out)
    for i, tensor in enumerate(tensors):
        if not tensor.numel():
            continue
        found, place, first = d.words(tensor), places[i] if places else None, 0
        if place is not None:
            start = digest_shards.start(*place)
            if start is None:
                out[i] = digest_shards.share(tensor, *place)
                continue
            first = start * (found.numel() // tensor.numel())
        if found.numel() > SMALL:
            out[i] = d.part(found, first)
        else:
            shared.add(i, found, first)
    shared.flush()
    return out


class _Shared:
    """The buffer that small tensors share."""

    def __init__(self, out: torch.Tensor) -> None:
        import torch

        self._out = out
        self._floats = out.device.type in d.BY_FLOATS
        wide = torch.float64 if self._floats else torch.int64
        self._buffer = torch.zeros(ROWS, d.BLOCK, dtype=wide, device=out.device)
        self._used = 0
        self._places: list[tuple[int, int, int]] = []
        """(tensor, its first block, its blocks), as they lie below each other"""

    def add(self, place: int, found: Any, first: int) -> None:
        """Take the words of one tensor, the first of which is number `first` of the whole one."""
        count, at = found.numel(), first % d.BLOCK
        blocks = (at + count - 1) // d.BLOCK + 1
        if self._used + blocks > ROWS:
            self.flush()
        rows = self._buffer[self._used : self._used + blocks].view(-1)
        rows[:at].zero_()
        rows[at : at + count].copy_(digest_cpu.unsigned(found) if self._floats else found)
        if found.dtype.is_signed and not self._floats:
            rows[at : at + count].bitwise_and_(d.mask(found))
        rows[at + count :].zero_()
        self._places.append((place, first // d.BLOCK, blocks))
        self._used += blocks

    def flush(self) -> None:
        """Digest what is in the buffer."""
        import torch

        if not self._places:
            return
        device = self._out.device
        wide = self._buffer[: self._used]
        whose = [place for place, _, blocks in self._places for _ in range(blocks)]
        nth = [begin + n for _, begin, blocks in self._places for n in range(blocks)]
        index = torch.tensor([whose, nth]).to(device, non_blocking=True)
        by_lane = (
            digest_cpu.of_rows(wide)
            if self._floats
            else [d.product(wide, table) for table in d.tables(str(device))]
        )
        sums = [by_lane[lane] * self._multipliers(lane, nth, index[1]) for lane in (0, 1)]
        self._out.index_add_(0, index[0], torch.stack(sums, 1))
        self._used, self._places = 0, []

    def _multipliers(self, lane: int, nth: list[int], index: Any) -> Any:
        if max(nth) < d.KEPT_BLOCKS:
            return d.multipliers(lane, max(nth) + 1, self._out.device)[index]
        return d.multipliers_at(lane, index)
