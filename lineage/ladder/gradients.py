"""Gradients and one update of every parameter, as a table and as answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .._rooms import schemas
from ..capture.names import clean
from ..judge import gradient_report as rules
from ..judge.gradient_report import Row
from . import recipe
from .answers import rung
from .keeping import as_it_was

LIMITS = ("one batch and one update: another batch may reach other parts, and a later step has another rate",)
MEASURED = "measured: weights before and after"


def gradient_report(
    model: Any,
    loss: Callable[[Any, Any], Any],
    batch: Any,
    *,
    optimizer: Any = None,
    config: Any = None,
    built_by: str | None = None,
) -> tuple[schemas.Rung, list[Row]]:
    """Ask which parameters have no gradient, how norms go by depth, what an update does, and what decays.

    Args:
        model: the module, wrapped and compiled as in training.
        loss: called with (model, batch); gives a 0-d tensor.
        batch: whatever `loss` takes.
        optimizer: makes one update, which is measured from the weights before and after. Without one there is none.

    Gives the rung, and a row for each parameter in the order of the model: L2 norms of weight, gradient and update.
    Model, optimizer and random states are as before when it returns. Raises what `loss` and the optimizer raise.
    """
    named = [(clean(n), p) for n, p in model.named_parameters()]
    decays = {id(p): float(g.get("weight_decay") or 0.0) for g in _groups(optimizer) for p in g["params"]}
    embeddings = {
        id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding | torch.nn.EmbeddingBag)
    }
    before = {n: p.detach().clone() for n, p in named}
    with as_it_was(model, optimizer):
        found = loss(model, batch)
        found.backward()
        gradients = {n: None if p.grad is None else p.grad.detach().clone() for n, p in named}
        if optimizer is not None:
            optimizer.step()
        updates = {n: _norm(p.detach() - before[n]) for n, p in named}
    rows = []
    for name, p in named:
        gradient = gradients[name]
        held = id(p) in decays
        rows.append(
            Row(
                name=name,
                elements=p.numel(),
                weight=_norm(before[name]),
                gradient=None
                if gradient is None
                else _norm(torch.nan_to_num(gradient.double(), 0.0, 0.0, 0.0)),
                broken=0 if gradient is None else int((~torch.isfinite(gradient)).sum()),
                update=updates[name] if held and gradient is not None else None,
                way=MEASURED if held and gradient is not None else None,
                decay=decays.get(id(p)),
                trainable=p.requires_grad,
                kind="embedding" if id(p) in embeddings else "vector" if p.dim() < 2 else "matrix",
            )
        )
    answers = rules.answers(rows)
    wrong = [a.text for a in answers if a.outcome == "fail"]
    made = rung(
        "gradients",
        answers,
        "; ".join(wrong) or f"{len(rows):,} parameters: nothing odd in their gradients and first update",
        main=["gradient_arrives", "gradient_is_finite"],
        recipe=recipe.of(model, optimizer, config, built_by),
        device=str(found.device),
        limits=LIMITS,
    )
    return made, rows


def _groups(optimizer: Any) -> Any:
    return getattr(optimizer, "param_groups", ())


def _norm(t: Any) -> float:
    return float(torch.linalg.vector_norm(t.detach().to(torch.float64)))
