"""How what began in one cell spread: the steps of it that the ledger shows, in order and in words.

Each line says what is recorded, and by which way it fits. That one thing follows another in the order of execution
is no proof that it came from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .._rooms import schemas
from . import execution
from .detect_ranks import RANKS, odd_ranks
from .execution import LOCAL, STATE, listed, ranks
from .seen import Seen

MOST = 8
"""Lines of later symptoms."""


def spread(first: schemas.Cell, ordered: Sequence[schemas.Cell], seen: Seen) -> list[str]:
    """The lines of how it went on from the first bad cell. `ordered`: all cells of the segment, as they
    happened."""
    same = [c for c in ordered if c.step == first.step]
    after = [c for c in ordered if c.step > first.step]
    out = [*_within_rank(first, same), *_reduction(first, same, seen), *_update(first, same, after)]
    if not out and len({c.rank for c in ordered}) == 1 and len(seen.ranks) > 1:
        end = seen.end()
        out.append(
            f"no other rank shows anything abnormal up to step {end:,}, the last one recorded: it "
            "stayed on rank "
            f"{first.rank}"
        )
    return out


def _within_rank(first: schemas.Cell, same: Sequence[schemas.Cell]) -> list[str]:
    """From block to block, or from gradient to gradient, on the rank where it began."""
    mine = [c for c in same if c.rank == first.rank and c.tensor != first.tensor]
    out = []
    for signal, way, direction in (
        ("activation", "forward pass", "towards the loss"),
        ("gradient", "backward pass", "towards the input"),
    ):
        if first.signal != signal:
            continue
        next_ = [c for c in mine if c.signal == signal and (c.order or 0) > (first.order or 0)]
        where = f"step {first.step:,}, rank {first.rank}, {way}:"
        if next_:
            names = listed((c.tensor or c.layer or "?" for c in next_), 2)
            plural = "s" if len(next_) > 1 else ""
            out.append(
                f"{where} from {first.tensor or first.layer} on to {len(next_):,} tensor{plural} "
                f"after it ({names}), "
                f"{direction}"
            )
        elif first.tensor is not None:
            out.append(f"{where} it stayed in {first.tensor}; what is executed after it shows nothing of it")
    losses = [c for c in mine if c.signal == "loss"]
    if first.signal == "activation" and losses:
        out.append(
            f"step {first.step:,}, rank {first.rank}: on into the loss, which is "
            f"{execution.number(losses[0].value)}"
        )
    gradients = [c for c in mine if c.signal == "gradient"]
    if first.signal in ("activation", "loss") and gradients:
        out.append(
            f"step {first.step:,}, rank {first.rank}: on into the backward pass, {len(gradients):,} "
            "gradient"
            f"{'s' if len(gradients) > 1 else ''} from {gradients[0].tensor or gradients[0].layer} on"
        )
    return out


def _reduction(first: schemas.Cell, same: Sequence[schemas.Cell], seen: Seen) -> list[str]:
    """From one rank to all of them in the same step."""
    if first.signal not in LOCAL:
        return []
    began = sorted({c.rank for c in same if c.signal in LOCAL})
    reduced = sorted({c.rank for c in same if c.signal == "grad_norm"})
    others = [r for r in reduced if r not in began]
    if not others:
        return []
    of = len(seen.has_values_at("grad_norm", first.step)) or len(reduced)
    read = [r for r in seen.has_values_at("grad_norm_local", first.step) if r not in began]
    whose = (
        f"the gradients of {ranks(read)} lie in their range before the reduction"
        if read
        else "which other ranks' gradients were abnormal before the reduction is not recorded"
    )
    every = f"all {of:,} ranks that recorded it" if len(reduced) >= of else ranks(reduced)
    return [
        f"step {first.step:,}: the reduced gradient is abnormal on {every}, while {whose}: it was on "
        f"{ranks(began)} "
        "before the reduction, and on all of them after it"
    ]


def _update(first: schemas.Cell, same: Sequence[schemas.Cell], after: Sequence[schemas.Cell]) -> list[str]:
    """Into weights and moments, and by them into the next step."""
    out = []
    state = [c for c in same if c.signal in STATE]
    if state and first.signal not in STATE:
        kinds = listed(dict.fromkeys(execution.name(c.signal) + "s" for c in state), 4)
        out.append(
            f"step {first.step:,}: after the update {kinds} are abnormal on {ranks(c.rank for c in state)} "
            f"({listed((c.tensor or c.layer or '?' for c in state), 2)})"
        )
    next_ = [c for c in after if c.step == first.step + 1 and c.signal in ("activation", "loss")]
    before = {c.rank for c in same if c.signal in ("activation", "loss")}
    new = sorted({c.rank for c in next_} - before)
    if new:
        what = "loss" if any(c.signal == "loss" for c in next_) else "outputs of blocks"
        out.append(
            f"step {first.step + 1:,}: {what} abnormal on {ranks(new)}, in the forward pass after the "
            "update of step "
            f"{first.step:,}: this fits a way through the weights"
        )
    return out


def later(
    first: schemas.Cell,
    ties: Sequence[schemas.Cell],
    ordered: Sequence[schemas.Cell],
    same_until: Mapping[int, int] | None = None,
) -> list[str]:
    """Later symptoms: a line for what the same ranks show at one step, or at several that follow each other.

    `same_until`: see `Seen`.
    """
    same_until = same_until or {}
    mine = {id(first), *map(id, ties)}
    groups: dict[int, dict[str, list[schemas.Cell]]] = {}
    for c in ordered:
        if id(c) not in mine:
            groups.setdefault(c.step, {}).setdefault(c.signal, []).append(c)
    lines: list[tuple[int, int, str]] = []
    for step, signals in groups.items():
        by_ranks: dict[str, list[str]] = {}
        for signal, found in signals.items():
            by_ranks.setdefault(ranks(c.rank for c in found), []).append(_what(signal, found))
        for which, what in by_ranks.items():
            text = f"{listed(what, 4)} abnormal on {which}"
            same = next((i for i, (_, b, t) in enumerate(lines) if t == text and b == step - 1), None)
            end = same_until.get(step, step)
            if same is None:
                lines.append((step, end, text))
            else:
                lines[same] = (lines[same][0], end, text)
    out = [f"step{f's {a:,} to {b:,}' if b > a else f' {a:,}'}: {text}" for a, b, text in lines[:MOST]]
    if lines[MOST:]:
        out.append(f"and more from step {lines[MOST][0]:,} to step {max(b for _, b, _ in lines):,}")
    return out


def _what(signal: str, found: Sequence[schemas.Cell]) -> str:
    """A signal in words, with the tensors it is of."""
    tensors = [] if signal in execution.SIGNALS else [t for c in found if (t := c.tensor or c.layer)]
    return execution.name(signal) + (f" of {listed(tensors, 2)}" if tensors else "")


def unlike(values: Mapping[int, float], first: schemas.Cell) -> list[str]:
    """What the other ranks show at that step, where there are enough to compare."""
    rule = RANKS.get(first.signal)
    if rule is None or len(values) < rule.minimum:
        return []
    odd = sorted({r for f in odd_ranks(first.signal, values) for r in f.ranks})
    if not odd:
        said = f"no rank stands out from the other {len(values) - 1:,}"
    else:
        said = f"{ranks(odd)} unlike the median of {len(values):,} ranks"
    return [f"step {first.step:,}: {said} ({rule.name})"]
