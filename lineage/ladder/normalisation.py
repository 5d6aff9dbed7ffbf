"""Whether each token counts the same in an update, whichever micro-batch and rank it lies in.

The gradient of an update is a sum over micro-batches: g = sum_m w_m * G_m, where G_m is the gradient of the sum of
micro-batch m's token losses. The mean over all tokens has w_m = 1/N, N being all tokens of all micro-batches and ranks.
The weights are found by least squares from the gradients that the loop itself leaves, so that whatever divides, scales
or averages on the way (a loss function, an accumulation, a wrapper) is seen by what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .._rooms import schemas
from ..judge import token_weights
from ..judge.token_weights import Update
from . import recipe
from .answers import rung
from .keeping import as_it_was

MOST = 1 << 28
"""Elements of all micro-batches' gradients together that are held at most, in float64."""
LIMITS = (
    "what is done to the gradient after the backward pass (clipping, the optimizer) is no part of it",
    "the token losses that it is held against are those of `losses`: where that leaves tokens out, so does this",
)


class NotComparable(ValueError):
    """The gradients cannot be held against each other; the text says why and what to give."""


@dataclass(frozen=True)
class _Micro:
    tokens: int
    total: float
    """sum of its token losses"""
    gradient: Any
    """float64[parameters]: of that sum"""


def loss_normalisation(
    model: Any,
    micro_batches: Sequence[Any],
    step: Callable[[Sequence[Any]], Any],
    *,
    losses: Callable[[Any, Any], Any] | None = None,
    config: Any = None,
    built_by: str | None = None,
) -> schemas.Rung:
    """Ask which weight the loop gives to a token of each micro-batch, on each rank.

    Args:
        model: the module, wrapped as in training.
        micro_batches: those of one update on this rank. They should have different numbers of tokens: where all have
            as many, means of means and the mean over tokens are one number.
        step: the loop's own forward and backward passes of one update, called with them: it leaves the gradients in
            `p.grad`, makes no update, and may give the loss that the loop logs.
        losses: called with (model, micro-batch), gives the losses of the tokens that count, of any shape; or
            (losses, mask). By default the model is called with the batch, as models of transformers are, and labels are
            shifted by one, with -100 ignored.

    In torch.distributed all ranks call it together: it gathers gradients, which no part of a training loop should.
    Model, gradients and random states are as before when it returns. Raises `NotComparable`.
    """
    used, reported, micros = _measure(model, micro_batches, step, losses or _causal)
    rank, world = _place()
    every = _gathered(micros, world)
    flat = [m for of_rank in every for m in of_rank]
    update = Update(
        tokens=[[m.tokens for m in of_rank] for of_rank in every],
        sums=[[m.total for m in of_rank] for of_rank in every],
        weights=None,
        residual=None,
        reported=reported,
    )
    solved = _solve(used, [m.gradient for m in flat])
    if solved is not None:
        update = update.with_weights(*solved)
    found = token_weights.answers(update)
    return rung(
        "loss_normalisation",
        found,
        token_weights.text(update, found),
        main=["token_weights_equal"],
        recipe=recipe.of(model, None, config, built_by),
        world_size=world,
        device=str(used.device),
        parameters={"micro_batches": len(micro_batches), "rank": rank},
        limits=LIMITS,
    )


def _measure(
    model: Any,
    micro_batches: Sequence[Any],
    step: Callable[[Sequence[Any]], Any],
    losses: Callable[[Any, Any], Any],
) -> tuple[Any, float | None, list[_Micro]]:
    parameters = [p for p in model.parameters() if p.requires_grad]
    if any(hasattr(p, "full_tensor") for p in parameters):
        raise NotComparable(
            "the parameters are sharded (FSDP): give the model before it is sharded, or under DDP"
        )
    size = sum(p.numel() for p in parameters) * (len(micro_batches) * _place()[1] + 1)
    if size > MOST:
        raise NotComparable(
            f"{size:,} elements of gradients would have to be held, more than {MOST:,}: give a smaller model of the "
            "same code, or fewer micro-batches"
        )
    with as_it_was(model):  # both passes see the same random numbers, so that dropout drops the same
        returned = step(micro_batches)
        used = _flat(parameters, [p.grad for p in parameters])
    if not bool(torch.isfinite(used).all()):
        raise NotComparable(
            "the step left gradients that are not finite: `lineage overfit` says where they come from"
        )
    if not bool(used.any()):
        raise NotComparable(
            "the step left no gradient in `p.grad`: it should make no update and not set them to zero"
        )
    reported = float(returned.detach()) if isinstance(returned, torch.Tensor) else returned
    found = []
    with as_it_was(model):
        bare = getattr(model, "module", model) if _place()[1] > 1 else model
        for batch in micro_batches:
            values = _counted(losses(bare, batch))
            total = values.sum()
            gradients = torch.autograd.grad(total, parameters, allow_unused=True)  # no hook of a wrapper runs
            found.append(_Micro(values.numel(), float(total.detach()), _flat(parameters, gradients)))
    return used, float(reported) if isinstance(reported, int | float) else None, found


def _counted(given: Any) -> Any:
    """The losses of the tokens that count, one dimension."""
    if isinstance(given, tuple):
        values, mask = given
        return values[mask.bool().expand_as(values)]
    if given.dim() == 0:
        raise NotComparable(
            "`losses` gave one number: it is to give the loss of each token (reduction='none'), or (losses, mask)"
        )
    return given.flatten()


def _causal(model: Any, batch: Any) -> Any:
    """Token losses of a causal language model of transformers: labels shifted by one, -100 ignored."""
    try:
        labels = batch["labels"]
    except (KeyError, TypeError, IndexError):
        raise NotComparable(
            "the batch has no `labels`: give losses=, which takes (model, batch) and gives token losses"
        ) from None
    inputs = {k: v for k, v in dict(batch).items() if k not in ("labels", "num_items_in_batch")}
    out = model(**inputs)
    logits = out.logits if hasattr(out, "logits") else out[0] if isinstance(out, tuple) else out
    values = torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten(), ignore_index=-100, reduction="none"
    )
    return values[labels[:, 1:].flatten() != -100]


def _flat(parameters: Sequence[Any], gradients: Sequence[Any]) -> Any:
    """Gradients as one float64 vector; zeros where there is none."""
    parts = []
    for p, g in zip(parameters, gradients, strict=True):
        found = torch.zeros_like(p) if g is None else g
        parts.append(found.detach().to(torch.float64).flatten())
    return torch.cat(parts)


def _place() -> tuple[int, int]:
    """(rank, world size)."""
    d = torch.distributed
    return (d.get_rank(), d.get_world_size()) if d.is_available() and d.is_initialized() else (0, 1)


def _gathered(micros: list[_Micro], world: int) -> list[list[_Micro]]:
    """The micro-batches of all ranks."""
    if world == 1:
        return [micros]
    every: list[list[_Micro] | None] = [None] * world
    torch.distributed.all_gather_object(every, micros)
    return [m for m in every if m is not None]


def _solve(used: Any, gradients: list[Any]) -> tuple[list[float], float] | None:
    """The weights of least squares, and the share of the gradient that they leave; None: they are not determined."""
    known = torch.stack(gradients, dim=1)
    norms = known.norm(dim=0)
    if not bool((norms > 0).all()):
        return None
    unit = known / norms
    singular = torch.linalg.svdvals(unit)
    if float(singular[-1]) < 1e-6 * float(singular[0]):
        return None  # gradients of two micro-batches point the same way: any share of the two would do
    weights = torch.linalg.lstsq(
        unit, used[:, None], driver="gelsd" if used.device.type == "cpu" else None
    ).solution
    left = float((used - unit @ weights[:, 0]).norm() / used.norm())
    return (weights[:, 0] / norms).tolist(), left
