"""Which weight a token of each micro-batch has in an update, and which formula has these weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from .._rooms import schemas
from .rung_answers import answer

TOLERANCE = 2e-3
"""Relative: what two passes in float32 over the same micro-batches may differ by, with room for bfloat16's sums."""
LEFT = 0.02
"""The share of the gradient that no weights explain, above which nothing is said of them."""
SOURCE = (
    "a sum over micro-batches of means is no mean over tokens: huggingface/transformers#34373 and #35203; "
    "the weights are of least squares over the gradients themselves"
)


@dataclass(frozen=True)
class Update:
    """What was measured of one update. Outer lists are ranks, inner ones micro-batches."""

    tokens: Sequence[Sequence[int]]
    sums: Sequence[Sequence[float]]
    """of token losses"""
    weights: Sequence[float] | None
    """of a token of each micro-batch, all ranks after each other; None where the gradients do not determine them"""
    residual: float | None
    """the share of the gradient that the weights leave"""
    reported: float | None
    """the loss that the loop gave for it"""

    def with_weights(self, weights: Sequence[float], residual: float) -> Update:
        """The same with what the gradients show."""
        return replace(self, weights=weights, residual=residual)

    @property
    def flat(self) -> list[int]:
        """Tokens of each micro-batch, all ranks after each other."""
        return list(chain.from_iterable(self.tokens))

    @property
    def total(self) -> int:
        """All tokens."""
        return sum(self.flat)


def formulas(tokens: Sequence[Sequence[int]]) -> dict[str, list[float]]:
    """Formula, in words -> the weight that it gives to a token of each micro-batch."""
    flat = list(chain.from_iterable(tokens))
    ranks, count, total = len(tokens), len(flat), sum(flat)
    own = [sum(of_rank) for of_rank in tokens for _ in of_rank]
    return {
        "the mean over all tokens": [1 / total] * count,
        "the mean over micro-batches of each one's own mean": [1 / (count * n) if n else 0.0 for n in flat],
        "the mean over ranks of each one's own mean over tokens": [
            1 / (ranks * n) if n else 0.0 for n in own
        ],
        "the sum over micro-batches of each one's own mean, not divided by their number": [
            1 / (ranks * n) if n else 0.0 for n in flat
        ],
        "the sum over all tokens": [1.0] * count,
        "the mean over all tokens, divided once more by the number of ranks": [1 / (ranks * total)] * count,
    }


def answers(update: Update) -> list[schemas.Answer]:
    """Whether every token counts the same; how large the whole is; whether the logged loss is the mean over tokens."""
    return [_equal(update), _scale(update), _reported(update)]


def text(update: Update, found: Sequence[schemas.Answer]) -> str:
    """The result in one sentence."""
    wrong = [a.text for a in found if a.outcome == "fail"]
    if wrong:
        return "; ".join(wrong)
    if found[0].outcome == "pass":
        return f"each of {update.total:,} tokens counts the same"
    return found[0].text


def _unusable(update: Update) -> str | None:
    if update.weights is None or update.residual is None:
        return "the gradients of these micro-batches do not determine the weights: give ones with different contents"
    if update.residual > LEFT:
        return (
            f"{update.residual:.1%} of the gradient is explained by no weights of the token losses: the loop's loss "
            "has other terms, or other tokens count than those of `losses`"
        )
    return None


def _values(update: Update) -> dict[str, object]:
    told: dict[str, object] = {
        "tokens": update.flat,
        "residual": update.residual,
        "ranks": len(update.tokens),
    }
    if update.weights is not None:
        told["weight_times_tokens"] = [w * update.total for w in update.weights]
    return told


def _answer(
    question: str, outcome: schemas.Outcome, text: str, update: Update, look_at: Sequence[str] = ()
) -> schemas.Answer:
    return answer(question, outcome, text, values=_values(update), source=SOURCE, look_at=look_at)


def _equal(update: Update) -> schemas.Answer:
    question = "token_weights_equal"
    why = _unusable(update)
    if why is not None or update.weights is None:
        return _answer(question, "cannot_tell", why or "", update)
    low, high = min(update.weights), max(update.weights)
    if low > 0 and high / low - 1 <= TOLERANCE:
        if len(set(update.flat)) == 1:
            text = (
                f"all micro-batches have {update.flat[0]:,} tokens: a mean of means is the mean over tokens here. Give "
                "ones of different lengths"
            )
            return _answer(question, "cannot_tell", text, update)
        return _answer(
            question, "pass", f"a token counts the same in all {len(update.flat)} micro-batches", update
        )
    least, most = update.weights.index(low), update.weights.index(high)
    times = f"{high / low:.3g} times as much as" if low > 0 else "and nothing is added by"
    known, factor = _known(update)
    share = "" if math.isclose(factor, 1, rel_tol=TOLERANCE) else f", times {factor:.4g}"
    text = f"a token of {_name(update, most)} counts {times} one of {_name(update, least)}" + (
        f": this is {known}{share}" if known else ""
    )
    return _answer(
        question,
        "fail",
        text,
        update,
        [
            "a loss that is a mean over its own micro-batch (reduction='mean') in a loop that accumulates",
            "ranks with different numbers of tokens, averaged by the wrapper",
            "a trainer whose loss function does not take the number of tokens of the whole update",
        ],
    )


def _scale(update: Update) -> schemas.Answer:
    question = "gradient_is_of_the_mean"
    why = _unusable(update)
    if why is not None or update.weights is None:
        return _answer(question, "cannot_tell", why or "", update)
    total = sum(w * n for w, n in zip(update.weights, update.flat, strict=True))
    if abs(total - 1) <= TOLERANCE:
        return _answer(question, "pass", "the weights of all tokens add up to 1", update)
    known, factor = _known(update)
    named = f": this is {known}" if known and math.isclose(factor, 1, rel_tol=TOLERANCE) else ""
    text = f"the weights of all tokens add up to {total:.4g}, not to 1{named}"
    return _answer(
        question,
        "fail",
        text,
        update,
        [
            "losses of micro-batches that are added and not divided, or divided twice",
            "a wrapper that averages over ranks what was divided by all ranks' tokens already",
            "a loss scale that was not taken off; with Adam the size alone changes clipping and nothing else",
        ],
    )


def _reported(update: Update) -> schemas.Answer:
    question = "logged_loss_is_the_mean"
    if update.reported is None:
        return _answer(question, "cannot_tell", "the step gave no loss", update)
    sums = list(chain.from_iterable(update.sums))
    every = {
        name: sum(w * s for w, s in zip(ws, sums, strict=True))
        for name, ws in formulas(update.tokens).items()
    }
    matching = [
        name for name, value in every.items() if math.isclose(update.reported, value, rel_tol=TOLERANCE)
    ]
    mean = next(iter(every))
    if mean in matching:
        return _answer(question, "pass", f"the loop's loss, {update.reported:.6g}, is {mean}", update)
    told = f": it is {matching[0]}" if matching else ""
    return _answer(
        question,
        "fail" if matching else "cannot_tell",
        f"the loop's loss is {update.reported:.6g}, and {mean} is {every[mean]:.6g}{told}",
        update,
    )


def _known(update: Update) -> tuple[str | None, float]:
    """The formula that has these weights, in words, and the factor between the two; the one without a factor first."""
    fitting: list[tuple[str | None, float]] = []
    for name, weights in formulas(update.tokens).items():
        ratios = [a / b for a, b in zip(update.weights or (), weights, strict=True) if b]
        if ratios and min(ratios) > 0 and max(ratios) / min(ratios) - 1 <= TOLERANCE:
            fitting.append((name, ratios[0]))
    return min(fitting, key=lambda f: abs(math.log(f[1])), default=(None, 1.0))


def _name(update: Update, place: int) -> str:
    """`micro-batch 2 (12 tokens)`, with the rank where there are several."""
    for rank, of_rank in enumerate(update.tokens):
        if place < len(of_rank):
            where = f" of rank {rank}" if len(update.tokens) > 1 else ""
            return f"micro-batch {place + 1}{where} ({of_rank[place]:,} tokens)"
        place -= len(of_rank)
    raise IndexError(place)
