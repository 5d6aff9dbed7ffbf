"""Statistics of one micro-batch, counted where it lies. Each is an integer; shares are divided on the host."""

from __future__ import annotations

from typing import Any

from .batch_containers import is_tensor
from .batch_sheet import Sheet
from .batch_view import Known, View, flat
from .row_lanes import Segments

_FAR = 1 << 62


def measure(view: View, known: Known, sheet: Sheet, cut: Segments | None) -> None:
    """Put what the batch shows on the sheet; `cut` is how its token ids are cut into sequences, if they are."""
    if view.ids is not None:
        _ids(view.ids, view.mask, known, sheet)
    _targets(view, view.ids, known, sheet)
    any_mask = view.tensor("mask")
    if any_mask is not None:
        lengths = view.row_lengths
        sheet.put("mask_on", lengths.sum() if lengths is not None else (any_mask != 0).sum())
        sheet.put("mask_all", _number(any_mask, int(any_mask.numel())))
    _lengths(view, sheet, cut)


def _number(like: Any, value: int) -> Any:
    import torch

    return torch.full((1,), value, dtype=torch.int64, device=like.device)


def out_of_range(t: Any, known: Known, allowed: tuple[int, ...]) -> Any:
    """Which elements are no id of the vocabulary, as truth values."""
    bad = t < 0 if known.vocab_size is None else t.clamp(0, known.vocab_size - 1) != t
    for value in allowed:
        bad = bad & (t != value)
    return bad


def _ids(tensor: Any, mask: Any, known: Known, sheet: Sheet) -> None:
    t = tensor.long()
    if t.numel() == 0:
        return
    bad = out_of_range(t, known, known.placeholders)
    sheet.put("bad_ids", bad.sum(1) if bad.dim() == 2 else bad.sum())
    lowest, highest = t.aminmax()
    sheet.put("lowest", lowest)
    sheet.put("highest", highest)
    for name, values in (("bos", known.bos_ids), ("eos", known.eos_ids)):
        if values:
            found = t == values[0]
            for v in values[1:]:
                found = found | (t == v)
            sheet.put(name, (found if mask is None else found & mask).sum())
    if known.pad_id is not None:
        sheet.put("pad", (t == known.pad_id).sum())


def _targets(view: View, ids: Any, known: Known, sheet: Sheet) -> None:
    """Targets that the loss counts: labels that are not ignored, and that its mask lets through."""
    labels = view.roles.get("labels")
    chosen = view.tensor("loss_mask")
    t = None
    if labels is not None:
        t = flat(labels.value)
    if t is None or ids is None or not _of_tokens(t, ids, labels is not None and is_tensor(labels.value)):
        if chosen is not None and ids is not None and chosen.shape == ids.shape:
            sheet.put("targets", (chosen != 0).sum())
        return
    t = t.long()
    counted = t != known.ignore_index
    if chosen is not None and chosen.shape == t.shape and chosen.device == t.device:
        counted = counted & (chosen != 0)
    sheet.put("targets", counted.sum())
    if t.shape == ids.shape:
        bad = out_of_range(t, known, known.placeholders) & (t != known.ignore_index)
        sheet.put("bad_labels", bad.sum(1) if bad.dim() == 2 else bad.sum())


def _of_tokens(labels: Any, ids: Any, dense: bool) -> bool:
    """Whether labels are of tokens, and not one of each sample."""
    return bool(labels.shape == ids.shape) or (
        dense and labels.dim() == 2 and labels.shape[0] == ids.shape[0]
    )


def _lengths(view: View, sheet: Sheet, cut: Segments | None) -> None:
    given, positions = view.tensor("lengths"), view.tensor("positions")
    if cut is not None:
        sheet.put("lengths", cut.lengths)
    elif given is not None:
        sheet.put("lengths", given)
    elif view.row_lengths is not None:
        sheet.put("lengths", view.row_lengths)
    elif positions is not None and positions.numel():
        _restarts(positions.long(), sheet)


def _restarts(positions: Any, sheet: Sheet) -> None:
    """Sequences that follow each other in a row, by positions that begin at 0 again."""
    import torch

    p = positions.reshape(-1, positions.shape[-1])
    first = p == 0
    last = torch.ones_like(first)
    last[:, :-1] = first[:, 1:]
    lengths = p + 1
    sheet.put("starts", first.sum())
    sheet.put("documents", last.sum())
    sheet.put("shortest", lengths.masked_fill(~last, _FAR).amin())
    sheet.put("longest", lengths.masked_fill(~last, 0).amax())
    sheet.put("in_documents", lengths.masked_fill(~last, 0).sum())
