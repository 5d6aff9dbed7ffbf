"""Whether the optimizer holds every parameter of the model, once, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._rooms import schemas
from ..capture.names import clean
from ..judge.rung_answers import answer, some
from ..probes.held import Held, look
from .answers import rung
from .recipe import of

SOURCE = "comparison of torch.optim.Optimizer.param_groups with Module.named_parameters, by identity of the tensors"
_ASKED: tuple[tuple[str, str, schemas.Outcome, str, str, tuple[str, ...]], ...] = (
    (
        "not_held",
        "optimizer_holds_missing",
        "fail",
        "every trainable parameter is held",
        "trainable and in no group of the optimizer, so never updated",
        (
            "the optimizer was made before these were added, wrapped, moved or tied",
            "a filter on names or classes left them out of every group",
        ),
    ),
    (
        "stale",
        "optimizer_holds_stale",
        "fail",
        "nothing is held that is no part of the model",
        "held by the optimizer and no part of the model",
        (
            "the model was wrapped, sharded, converted or tied again after the optimizer was made",
            "a module was replaced after the optimizer was made",
        ),
    ),
    (
        "twice",
        "optimizer_holds_twice",
        "fail",
        "no parameter is held twice",
        "held more than once, so updated more than once in each step",
        ("tied parameters were collected by name", "two groups select by patterns that overlap"),
    ),
    (
        "frozen",
        "optimizer_holds_frozen",
        "fail",
        "no frozen parameter is held",
        "held by the optimizer though requires_grad is False",
        ("layers were frozen after the optimizer was made",),
    ),
)


def answers(model: Any, optimizer: Any, allow: Sequence[str] = ()) -> list[schemas.Answer]:
    """What the optimizer holds beside what the model has; `allow`: questions of which a no is meant, see `holds`."""
    held = look([(clean(n), p) for n, p in model.named_parameters()], optimizer)
    return [_answer(held, *asked, allowed=asked[1] in allow) for asked in _ASKED]


def _answer(
    held: Held,
    field: str,
    question: str,
    bad: schemas.Outcome,
    fine: str,
    wrong: str,
    look_at: tuple[str, ...],
    allowed: bool,
) -> schemas.Answer:
    names: list[str] = getattr(held, field)
    values = {"trainable": held.of_model[1], "held": held.of_model[0]}
    if not names:
        return answer(question, "pass", fine, values=values, source=SOURCE)
    meant = "; it is meant, by allow" if allowed else ""
    text = f"{len(names):,} {wrong}: {some(names)}{meant}"
    outcome: schemas.Outcome = "pass" if allowed else bad
    return answer(question, outcome, text, names=names, values=values, source=SOURCE, look_at=look_at)


def holds(
    model: Any, optimizer: Any, *, allow: Sequence[str] = (), config: Any = None, built_by: str | None = None
) -> schemas.Rung:
    """Ask whether the optimizer holds every trainable parameter, once, and nothing that is frozen or stale.

    Args:
        model: the module, after wrapping and compiling.
        optimizer: any object with `param_groups`. Float32 copies of parameters of 16 bits, and flat parts (ZeRO),
            are counted as the parameters that they stand for.
        allow: questions where a no is meant, such as `optimizer_holds_frozen` for layers that thaw later.

    It runs nothing and changes nothing. It is part of `overfit`.
    """
    found = answers(model, optimizer, allow)
    wrong = [a for a in found if a.outcome == "fail"]
    text = (
        "; ".join(a.text for a in wrong) or "the optimizer holds every trainable parameter once, and no other"
    )
    return rung(
        "overfit",
        found,
        text,
        main=[asked[1] for asked in _ASKED],
        recipe=of(model, optimizer, config, built_by),
        parameters={"updates": 0},
    )
