"""What a batch of tokens shows when it is read: labels against ids, padding, special tokens, packing, lengths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .._rooms import schemas
from .rung_answers import MOST, answer, some

SHARE = 0.9
"""Of the places that can tell, so many have to agree with one shift before it is named."""
LEAST = 8
"""Places that have to be able to tell before a shift is named."""
EMPTY = 0.05
"""Share of a row that holds tokens, below which it is near-empty."""

Grid = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Tokens:
    """Rows of a batch, of equal or unequal length. What is None the batch does not have."""

    ids: Grid
    labels: Grid | None = None
    mask: Grid | None = None
    """attention: 0 where a token is none"""
    loss_mask: Grid | None = None
    """0 where a label does not count"""
    positions: Grid | None = None
    segments: Grid | None = None
    """which document a token is of; 0 or -1 for padding in some code"""


@dataclass(frozen=True)
class Meaning:
    """What the numbers mean. What is None or () is not known."""

    ignore_index: int = -100
    vocab_size: int | None = None
    pad_id: int | None = None
    bos_ids: tuple[int, ...] = ()
    eos_ids: tuple[int, ...] = ()
    placeholders: tuple[int, ...] = ()
    longest: int | None = None
    """positions that the model has"""
    shifts: bool | None = None
    """whether the model shifts labels itself, as ForCausalLM of transformers does; None: not known"""
    one_mask: bool = False
    """whether the batch has a mask over pairs of tokens, such as a block mask"""


def answers(t: Tokens, m: Meaning) -> list[schemas.Answer]:
    """Each question, over all rows."""
    return [
        _shift(t, m),
        _ignored(t, m),
        _padding(t, m),
        _masked(t, m),
        _special(t, m),
        _packing(t, m),
        _range(t, m),
        _lengths(t, m),
    ]


MAIN = ("ids_in_range", "rows_have_labels")


def real(t: Tokens, m: Meaning, row: int) -> list[bool]:
    """Which places of a row hold a token: by the mask, else all but the padding at its ends."""
    ids = t.ids[row]
    if t.mask is not None:
        return [v != 0 for v in t.mask[row]]
    if m.pad_id is None:
        return [True] * len(ids)
    held = [i for i, v in enumerate(ids) if v != m.pad_id]
    if not held:
        return [False] * len(ids)
    last = held[-1] + (m.pad_id in m.eos_ids and held[-1] + 1 < len(ids))  # the first of them ends the text
    return [held[0] <= i <= last for i in range(len(ids))]


def counts(t: Tokens, m: Meaning, row: int) -> list[bool]:
    """Which labels of a row count in the loss."""
    if t.labels is None:
        return []
    kept = t.loss_mask[row] if t.loss_mask is not None else None
    return [v != m.ignore_index and (kept is None or kept[i] != 0) for i, v in enumerate(t.labels[row])]


def shift_of(t: Tokens, m: Meaning) -> tuple[int | None, dict[int, float], int]:
    """By how many places labels run ahead of ids, the share that agrees with each shift, and the places that can tell.

    A place can tell where the ids that the shifts would give there differ.
    """
    if t.labels is None:
        return None, {}, 0
    agree: Counter[int] = Counter()
    places = 0
    for row, ids in enumerate(t.ids):
        labels, kept = t.labels[row], counts(t, m, row)
        for i in range(len(ids) - 2):
            ahead = ids[i : i + 3]
            if kept[i] and len(set(ahead)) == 3:
                places += 1
                agree.update(s for s in range(3) if labels[i] == ahead[s])
    shares = {s: agree[s] / places for s in range(3)} if places else {}
    best = max(shares, key=lambda s: shares[s], default=None)
    return (best if best is not None and places >= LEAST and shares[best] >= SHARE else None), shares, places


def _shift(t: Tokens, m: Meaning) -> schemas.Answer:
    question = "labels_shifted_once"
    if t.labels is None:
        return answer(question, "cannot_tell", "the batch has no labels")
    shift, shares, places = shift_of(t, m)
    values: dict[str, object] = {"places": places, **{f"agree_with_shift_{s}": v for s, v in shares.items()}}
    if shift is None:
        text = f"labels are no shift of the ids by 0, 1 or 2 ({places:,} places can tell): another task or target"
        return answer(question, "cannot_tell", text, values=values)
    found = (
        "labels equal the ids at their own place",
        "labels are the next id",
        "labels are the id after the next",
    )[shift]
    if m.shifts is None:
        if shift == 2:
            text = f"{found}: shifted twice in the data already, whatever the model does"
            return answer(question, "fail", text, values=values, look_at=_SHIFTED)
        wants = "shifts by itself" if shift == 0 else "does not shift"
        text = f"{found}: right for a model that {wants}. Whether yours does is not known here: shifts="
        return answer(question, "cannot_tell", text, values=values)
    total = shift + m.shifts
    does = "shifts once more" if m.shifts else "does not shift"
    if total == 1:
        return answer(question, "pass", f"{found}, and the model {does}", values=values)
    word = "not shifted at all: the model is taught to copy" if total == 0 else f"shifted {_times(total)}"
    return answer(question, "fail", f"{found}, and the model {does}: {word}", values=values, look_at=_SHIFTED)


_SHIFTED = (
    "a collator that shifts for a model that shifts too (ForCausalLM of transformers does)",
    "a loss of one's own that leaves the shift out",
)


def _times(n: int) -> str:
    return {2: "twice", 3: "three times"}[n]


def _ignored(t: Tokens, m: Meaning) -> schemas.Answer:
    question = "ignore_index_is_known"
    if t.labels is None:
        return answer(question, "cannot_tell", "the batch has no labels")
    odd = Counter(
        v for row in t.labels for v in row if v < 0 and v != m.ignore_index and v not in m.placeholders
    )
    if odd:
        shown = ", ".join(f"{v} ({n:,} times)" for v, n in odd.most_common(4))
        text = f"labels hold {shown}; {m.ignore_index} is what the loss ignores"
        return answer(question, "fail", text, look_at=["another ignore_index in the data than in the loss"])
    n = sum(v == m.ignore_index for row in t.labels for v in row)
    return answer(question, "pass", f"{n:,} labels are {m.ignore_index}, and no other label is below 0")


def _padding(t: Tokens, m: Meaning) -> schemas.Answer:
    question = "padding_is_no_label"
    if t.labels is None:
        return answer(question, "cannot_tell", "the batch has no labels")
    if t.mask is None and m.pad_id is None:
        return answer(
            question, "cannot_tell", "the batch has no attention mask, and the id of padding is not known"
        )
    wrong: list[str] = []
    n = 0
    ahead = 0 if m.shifts or shift_of(t, m)[0] == 0 else 1
    for row in range(len(t.ids)):
        held, kept = real(t, m, row), counts(t, m, row)
        bad = [i for i in range(len(kept)) if kept[i] and not _target_held(held, i + ahead)]
        if bad:
            n += len(bad)
            wrong.append(f"row {row}, place {bad[0]}")
    if wrong:
        text = f"{n:,} places of padding in {len(wrong):,} rows have a label that counts: {some(wrong)}"
        look = ["a collator that pads labels with the id of padding and not with the ignore index"]
        return answer(question, "fail", text, names=wrong, look_at=look)
    return answer(question, "pass", "no label of padding counts")


def _target_held(held: Sequence[bool], i: int) -> bool:
    """Whether the token that a label stands for is one; what lies beyond the row is not looked at."""
    return i >= len(held) or held[i]


def _masked(t: Tokens, m: Meaning) -> schemas.Answer:
    question = "rows_have_labels"
    if t.labels is None:
        return answer(question, "cannot_tell", "the batch has no labels")
    none = [f"row {row}" for row in range(len(t.ids)) if not any(counts(t, m, row))]
    if none:
        text = f"in {len(none):,} of {len(t.ids):,} rows no label counts: {some(none)}"
        look = [
            "a prompt that fills the whole row, so that the answer was cut off",
            "a mean over such a micro-batch is 0 / 0",
        ]
        return answer(question, "fail", text, names=none, look_at=look)
    shares = [sum(c) / max(len(c), 1) for c in (counts(t, m, row) for row in range(len(t.ids)))]
    text = f"labels count in each of {len(shares):,} rows, at {min(shares):.0%} to {max(shares):.0%} of the places"
    return answer(question, "pass", text)


def _special(t: Tokens, m: Meaning) -> schemas.Answer:
    question = "special_tokens"
    if not m.bos_ids and not m.eos_ids:
        text = "neither the id of BOS nor that of EOS is known: a tokenizer tells, if it has any"
        return answer(question, "cannot_tell", text)
    doubled, found = [], []
    for row, ids in enumerate(t.ids):
        held = [v for v, is_ in zip(ids, real(t, m, row), strict=True) if is_]
        bos, eos = sum(v in m.bos_ids for v in held), sum(v in m.eos_ids for v in held)
        found.append((bos, eos))
        separate = set(m.bos_ids) - set(m.eos_ids)
        if any(a in separate and b in separate for a, b in pairwise(held)):
            doubled.append(f"row {row}")
    values: dict[str, object] = {"bos": [b for b, _ in found], "eos": [e for _, e in found]}
    text = f"BOS {_span([b for b, _ in found])} and EOS {_span([e for _, e in found])} times in a row"
    if doubled:
        look = ["a chat template that writes BOS, and a tokenizer that adds it again (add_special_tokens)"]
        said = f"{text}; two BOS after each other in {len(doubled):,} rows: {some(doubled)}"
        return answer(question, "fail", said, names=doubled, values=values, look_at=look)
    if m.eos_ids and not any(e for _, e in found):
        text += ": where no text of the batch ends, none has to stand"
        return answer(question, "cannot_tell", text, values=values)
    return answer(question, "pass", text, values=values)


def _packing(t: Tokens, m: Meaning) -> schemas.Answer:
    """Rows that hold several documents: whether positions begin again, and whether anything keeps them apart."""
    question = "packing_keeps_documents_apart"
    found = {row: at for row in range(len(t.ids)) if (at := borders(t, m, row))}
    if not found:
        known = t.segments is not None or bool(m.eos_ids)
        text = (
            "no row shows two documents"
            if known
            else "neither segment ids nor the id of EOS tell documents apart"
        )
        return answer(question, "pass" if known else "cannot_tell", text)
    n = sum(map(len, found.values()))
    said = f"{n:,} borders between documents in {len(found):,} rows"
    if t.positions is not None:
        through = [
            f"row {row}, place {i}" for row, at in found.items() for i in at if t.positions[row][i] != 0
        ]
        if through:
            text = f"{said}; at {len(through):,} of them positions count through: {some(through)}"
            look = ["position ids that begin again at each document, or lengths that the attention is given"]
            return answer(question, "fail", text, names=through, look_at=look)
        return answer(question, "pass", f"{said}, and positions begin again at each")
    if t.segments is not None or m.one_mask:
        what = "segment ids" if t.segments is not None else "a mask over pairs"
        return answer(question, "pass", f"{said}, and the batch has {what}")
    text = (
        f"{said}; the batch has neither positions, segment ids nor a mask over pairs: attention crosses them, unless "
        "the model finds the borders by itself"
    )
    return answer(question, "cannot_tell", text, names=[f"row {r}" for r in found])


def borders(t: Tokens, m: Meaning, row: int) -> list[int]:
    """Places at which another document begins."""
    held = real(t, m, row)
    if t.segments is not None:
        own = t.segments[row]
        return [
            i for i in range(1, len(own)) if own[i] != own[i - 1] and held[i] and held[i - 1] and own[i] >= 0
        ]
    ids = t.ids[row]
    return [i for i in range(1, len(ids)) if ids[i - 1] in m.eos_ids and held[i] and ids[i] not in m.eos_ids]


def out_of_range(value: int, m: Meaning) -> bool:
    """Whether an id is one that the vocabulary does not have."""
    return value not in m.placeholders and (value < 0 or (m.vocab_size is not None and value >= m.vocab_size))


def _range(t: Tokens, m: Meaning) -> schemas.Answer:
    question = "ids_in_range"
    grids: list[tuple[str, Grid]] = [
        ("ids", t.ids),
        *([("labels", t.labels)] if t.labels is not None else []),
    ]
    top = m.vocab_size
    wrong = []
    for what, grid in grids:
        for row, values in enumerate(grid):
            for i, v in enumerate(values):
                if out_of_range(v, m) and not (what == "labels" and v < 0):
                    wrong.append(f"{what} row {row}, place {i}: {v}")
    if wrong:
        limit = f"0 to {top - 1:,}" if top is not None else "0 and above"
        text = f"{len(wrong):,} values are outside of {limit}: {some(wrong)}"
        return answer(
            question, "fail", text, names=wrong, look_at=["a tokenizer of another model", "damaged ids"]
        )
    if top is None:
        return answer(
            question, "cannot_tell", "no id is below 0; how many there are in the vocabulary is not known"
        )
    return answer(question, "pass", f"all ids and labels are below {top:,}")


def _lengths(t: Tokens, m: Meaning) -> schemas.Answer:
    question = "rows_are_filled"
    sizes = [(sum(real(t, m, row)), len(t.ids[row])) for row in range(len(t.ids))]
    short = [
        f"row {row}: {n} of {width}" for row, (n, width) in enumerate(sizes) if n < EMPTY * width or n < 2
    ]
    most = m.longest
    long = [
        f"row {row}: {width}" for row, (_, width) in enumerate(sizes) if most is not None and width > most
    ]
    values: dict[str, object] = {"tokens": [n for n, _ in sizes[:MOST]]}
    said = [f"{len(short):,} near-empty rows: {some(short)}"] if short else []
    said += (
        [f"{len(long):,} rows longer than the model's {m.longest:,} positions: {some(long)}"] if long else []
    )
    if said:
        return answer(question, "fail", "; ".join(said), names=short + long, values=values)
    total, width = sum(n for n, _ in sizes), sum(w for _, w in sizes)
    text = f"{total:,} tokens fill {total / max(width, 1):.0%} of {len(sizes):,} rows"
    return answer(question, "pass", text, values=values)


def _span(values: Iterable[int]) -> str:
    every = sorted(set(values))
    return str(every[0]) if len(every) == 1 else f"{every[0]} to {every[-1]}"
