"""One batch, learnt by heart: the shortest proof that model, loss, gradients and optimizer belong together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._rooms import schemas
from ..capture.names import clean
from ..judge.rung_answers import answer, some
from . import holding, recipe
from .answers import rung
from .keeping import as_it_was

STEPS, BELOW = 200, 0.1
SOURCE = (
    "A network with more parameters than the batch has targets can fit it: A. Karpathy, A recipe for training neural "
    "networks (2019), section 2; the share of the first loss is a convention of this check"
)
LIMITS = (
    "that one batch can be learnt says nothing of the data, of generalisation, of ranks or of a long run",
    "a wrong label can be learnt by heart as well as a right one",
)


@dataclass
class _Course:
    """What the updates showed."""

    losses: list[float] = field(default_factory=list)
    reached: set[str] = field(default_factory=set)
    """parameters that had a gradient with an element other than zero"""
    touched: set[str] = field(default_factory=set)
    """parameters that had a gradient"""
    moved: set[str] = field(default_factory=set)
    """parameters of which a bit changed"""


def overfit(
    model: Any,
    optimizer: Any,
    loss: Callable[[Any, Any], Any],
    batch: Any,
    *,
    steps: int = STEPS,
    below: float = BELOW,
    floor: float = 0.0,
    allow: Sequence[str] = (),
    update: Callable[[], Any] | None = None,
    config: Mapping[str, Any] | None = None,
    built_by: str | None = None,
) -> schemas.Rung:
    """Train on one batch again and again, and ask whether its loss goes where it must.

    Args:
        model: the module, wrapped and compiled as in training; in the mode (train or eval) that it is in.
        optimizer: as in training.
        loss: called with (model, batch), gives a 0-d tensor.
        batch: whatever `loss` takes.
        steps: updates at most; it stops where the loss is low enough.
        below: the share of the first loss, above `floor`, that has to be reached.
        floor: the lowest loss there can be, in the loss's unit: the targets' own entropy with label smoothing or soft
            targets, 0 otherwise.
        allow: questions where a no is meant, see `lineage.ladder.holds`.
        update: what makes an update, in place of `optimizer.step()`, such as a closure with clipping or a scaler.

    Model, optimizer and random states are as before when it returns. Raises what `loss` and the optimizer raise.
    """
    names = {clean(n): p for n, p in model.named_parameters()}
    before = {n: p.detach().clone() for n, p in names.items()}
    held = holding.answers(model, optimizer, allow)
    course = _Course()
    with as_it_was(model, optimizer):
        goal = _train(model, optimizer, loss, batch, steps, (below, floor), course, update, names)
        course.moved = {n for n, p in names.items() if not _same(p, before[n])}
    found = [
        *held,
        _finite(course),
        _falls(course, goal, below, floor, model, optimizer, held),
        _arrives(course, names),
        _moves(course, names, optimizer, held),
    ]
    first, last = (course.losses[0], course.losses[-1]) if course.losses else (math.nan, math.nan)
    text = f"the loss of one batch went from {first:.4g} to {last:.4g} in {max(len(course.losses) - 1, 0)} updates"
    return rung(
        "overfit",
        found,
        text,
        main=["loss_falls"],
        recipe=recipe.of(model, optimizer, config, built_by),
        device=_device(model),
        parameters={"steps": steps, "below": below, "floor": floor},
        limits=LIMITS,
    )


def _train(
    model: Any,
    optimizer: Any,
    loss: Callable[[Any, Any], Any],
    batch: Any,
    steps: int,
    wanted: tuple[float, float],
    course: _Course,
    update: Callable[[], Any] | None,
    names: Mapping[str, Any],
) -> float:
    """Make the updates; gives the loss that has to be reached."""
    below, floor = wanted
    goal = math.nan
    for n in range(steps + 1):
        optimizer.zero_grad()
        found = loss(model, batch)
        value = float(found.detach())
        course.losses.append(value)
        if n == 0:
            goal = floor + below * (value - floor)
        if not math.isfinite(value) or n == steps or (n > 0 and value <= goal):
            break
        found.backward()
        for name, p in names.items():
            if p.grad is not None:
                course.touched.add(name)
                if name not in course.reached and bool(p.grad.detach().ne(0).any()):
                    course.reached.add(name)
        (update or optimizer.step)()
    return goal


def _finite(course: _Course) -> schemas.Answer:
    bad = next((i for i, v in enumerate(course.losses) if not math.isfinite(v)), None)
    if bad is None:
        return answer("loss_is_finite", "pass", "every loss is finite")
    return answer(
        "loss_is_finite",
        "fail",
        f"the loss is {course.losses[bad]} after {bad} updates",
        values={"updates": bad},
        look_at=[
            "the learning rate",
            "a target out of range, or none at all",
            "a row without a single token",
        ],
    )


def _falls(
    course: _Course,
    goal: float,
    below: float,
    floor: float,
    model: Any,
    optimizer: Any,
    held: Sequence[schemas.Answer],
) -> schemas.Answer:
    losses = course.losses
    finite = [v for v in losses if math.isfinite(v)]
    lowest = min(finite, default=math.nan)
    values = {
        "first": losses[0],
        "lowest": lowest,
        "last": losses[-1],
        "goal": goal,
        "updates": len(losses) - 1,
        "course": [losses[i] for i in _marks(len(losses))],
    }
    over = f", above a floor of {floor:g}" if floor else ""
    if losses[0] <= floor:
        text = (
            f"the first loss, {losses[0]:.4g}, is at its floor of {floor:g} already: nothing is left to learn"
        )
        return answer("loss_falls", "cannot_tell", text, values=values, source=SOURCE)
    if lowest <= goal:
        text = f"below {below:.0%} of the first loss{over} after {len(losses) - 1} updates"
        return answer("loss_falls", "pass", text, values=values, source=SOURCE)
    if _still_falls(losses):
        text = f"still falling after {len(losses) - 1} updates, at {losses[-1]:.4g}; {goal:.4g} had to be reached{over}"
        more = ["more updates: steps=", *_rates(optimizer)]
        return answer("loss_falls", "cannot_tell", text, values=values, source=SOURCE, look_at=more)
    text = f"the lowest of {len(losses) - 1} updates is {lowest:.4g}; {goal:.4g} had to be reached{over}"
    look_at = [a.text for a in held if a.outcome == "fail"]
    look_at += _rates(optimizer) + _dropout(model)
    look_at += [
        "targets that do not follow from what the model is given (labels not shifted, or shifted twice)",
        "gradients cut by detach, no_grad, an argmax or an integer type",
        "label smoothing or soft targets, whose lowest loss is not 0: floor=",
    ]
    return answer("loss_falls", "fail", text, values=values, source=SOURCE, look_at=look_at)


def _marks(n: int) -> list[int]:
    """0, 1, 2, 4, 8, ... and the last."""
    return sorted({0, n - 1, *(1 << i for i in range(20) if 1 << i < n)})


def _still_falls(losses: Sequence[float]) -> bool:
    """Whether the last tenth of the updates made the lowest loss, by a hundredth or more."""
    last = max(1, len(losses) // 10)
    if len(losses) < 2 * last + 1:
        return False
    return min(losses[-last:]) < 0.99 * min(losses[:-last])


def _rates(optimizer: Any) -> list[str]:
    """The learning rates that all of these updates had: no scheduler is stepped."""
    rates = [float(g["lr"]) for g in getattr(optimizer, "param_groups", ()) if "lr" in g]
    shown = ", ".join(f"{r:g}" for r in dict.fromkeys(rates))
    return (
        [f"the learning rate, which was {shown} in all of these updates: a warm-up begins low"]
        if rates
        else []
    )


def _dropout(model: Any) -> list[str]:
    modules = [(clean(n), m) for n, m in model.named_modules() if "Dropout" in type(m).__name__]
    found = [n for n, m in modules if m.training and getattr(m, "p", 0)]
    return (
        [f"dropout is on in {len(found)} modules, as {found[0]}: no two updates see one network"]
        if found
        else []
    )


def _arrives(course: _Course, names: Mapping[str, Any]) -> schemas.Answer:
    trainable = [n for n, p in names.items() if p.requires_grad]
    never = [n for n in trainable if n not in course.touched]
    zero = [n for n in trainable if n in course.touched and n not in course.reached]
    if not course.touched:
        return answer("gradient_arrives", "cannot_tell", "no backward pass was made")
    if not never and not zero:
        return answer(
            "gradient_arrives", "pass", f"all {len(trainable):,} trainable parameters had a gradient"
        )
    said = [
        f"{len(found):,} {words}: {some(found)}"
        for found, words in ((never, "had no gradient at all"), (zero, "had none but zeros"))
        if found
    ]
    return answer(
        "gradient_arrives",
        "fail",
        "; ".join(said),
        names=never + zero,
        look_at=[
            "parts that the forward pass does not use",
            "a detach, no_grad or .data between them and the loss",
            "rows of an embedding or experts that this batch does not ask for: a batch of more kinds",
        ],
    )


def _moves(
    course: _Course, names: Mapping[str, Any], optimizer: Any, held: Sequence[schemas.Answer]
) -> schemas.Answer:
    if len(course.losses) < 2:
        return answer("weights_move", "cannot_tell", "no update was made")
    still = [n for n in names if n in course.reached and n not in course.moved]
    frozen = [n for n, p in names.items() if not p.requires_grad and n in course.moved]
    if not still and not frozen:
        moved = sum(n in course.moved for n in names)
        return answer("weights_move", "pass", f"{moved:,} parameters moved, and no frozen one did")
    said = []
    if still:
        said.append(f"{len(still):,} had a gradient and kept every bit: {', '.join(still[:4])}")
    if frozen:
        said.append(f"{len(frozen):,} are frozen and moved: {', '.join(frozen[:4])}")
    look_at = [a.text for a in held if a.outcome == "fail"] + _rates(optimizer)
    look_at.append("an update so small that it is lost in the rounding of the weights' type")
    return answer("weights_move", "fail", "; ".join(said), names=still + frozen, look_at=look_at)


def _same(a: Any, b: Any) -> bool:
    import torch

    return bool(torch.equal(a.detach(), b))


def _device(model: Any) -> str | None:
    first = next(iter(model.parameters()), None)
    return str(first.device) if first is not None else None
