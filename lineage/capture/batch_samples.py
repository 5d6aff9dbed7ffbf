"""Digests of a batch's tensors, and of its samples: rows, sequences of a packed batch, or of unequal length.

A sample's content is that of all its fields that are no layout. Padding that the mask shows adds nothing, and the
place in the batch does not count, so a sample keeps its digest in another batch, on another rank, packed or padded
on the right.
"""

from __future__ import annotations

from typing import Any

from . import digest as d
from . import row_lanes as rows
from .batch_containers import is_integer
from .batch_sheet import Sheet
from .batch_view import Field, Ragged, View, flat

TOKENS = "tokens"
"""The name under which all fields with one integer for each token stand on the sheet, added up."""


class Content:
    """Takes a batch's tensors one by one, then gives the digests of what was taken."""

    def __init__(self, found: View) -> None:
        self._found = found
        self._tokens: Any = None
        self._marks: Any = None
        """words of the fields with one integer for each token: those of content, and those of layout"""
        self._rows: dict[str, tuple[Any, bool]] = {}
        self.undivided = found.undivided()
        """paths of content that is not divided by sample: then no sample has a digest"""

    def take(self, f: Field, sheet: Sheet) -> None:
        """Take a tensor, or sequences. Raises what torch raises where it cannot be read."""
        t = flat(f.value)
        content = not self._found.is_layout(f)
        if self._found.alike(f):
            words = rows.mixed(t).mul_(rows.multiplier(f.path))
            if content:
                self._tokens = words if self._tokens is None else self._tokens.add_(words)
            else:
                self._marks = words if self._marks is None else self._marks.add_(words)
        elif self._found.in_rows(f):
            self._rows[f.path] = (rows.of_rows(t), content)
        else:
            sheet.put(f.path, d.lanes(t.long() if is_integer(t) else t))
        if isinstance(f.value, Ragged):
            sheet.put(f"{f.path} cut", d.lanes(f.value.offsets.long()))

    def put(self, sheet: Sheet) -> tuple[int, rows.Segments | None]:
        """Put all digests on the sheet; returns how many samples there are, and how a packed batch is cut.

        Of the whole, the lanes of its rows are sent as they are: their order is what tells one order from another.
        """
        total = None
        matrix = self._tokens is not None and self._tokens.dim() == 2
        if self._tokens is not None or self._marks is not None:
            whole = self._sum(self._tokens, self._marks)
            lanes = rows.of_words(whole if matrix else whole.reshape(1, -1))
            if matrix and self._marks is None and self._found.mask is None:
                total = lanes
            sheet.put(TOKENS, lanes)
        for path, (lanes, _) in self._rows.items():
            sheet.put(path, lanes)
        return self._samples(sheet, total)

    @staticmethod
    def _sum(one: Any, other: Any) -> Any:
        return other if one is None else one if other is None else one + other

    def _samples(self, sheet: Sheet, total: Any) -> tuple[int, rows.Segments | None]:
        found, lengths = self._found, self._found.row_lengths
        cut = _cut(found)
        if self.undivided:
            return 0, cut
        if cut is not None:
            total, lengths = rows.of_segments(self._tokens, cut), cut.lengths
        elif self._tokens is not None and self._tokens.dim() == 2:
            if total is None:
                total = rows.of_words(
                    self._tokens if found.mask is None else self._tokens * found.mask.long()
                )
            total = self._with_rows(total)
        else:
            total = self._with_rows(None)
        if total is None:
            return 0, cut
        if lengths is not None:
            total = total + (lengths * rows.LENGTH)[:, None]
        elif found.width is not None:
            total = total + rows.signed(found.width * rows.LENGTH)
        sheet.put("samples", rows.finished(total))
        return int(total.shape[0]), cut

    def _with_rows(self, total: Any) -> Any:
        """Add the rows of what has no token for each of its elements: images, labels of samples."""
        for path, (lanes, content) in self._rows.items():
            if not content:
                continue
            mine = lanes * rows.multiplier(path)
            if total is None:
                total = mine
            elif mine.device == total.device:
                total = total + mine
        return total


def _cut(found: View) -> rows.Segments | None:
    ids = found.roles.get("ids")
    if ids is None:
        return None
    offsets = ids.value.offsets if isinstance(ids.value, Ragged) else found.tensor("offsets")
    if offsets is None or offsets.device != found.ids.device or offsets.numel() < 2:
        return None
    return rows.Segments(offsets, found.tokens)
