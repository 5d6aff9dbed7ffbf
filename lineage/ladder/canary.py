"""A short fixed job with exact digests at set steps, recorded before a change and made again after it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from .._rooms import schemas
from ..capture.digest import tensor_digest
from ..capture.names import clean
from ..judge import canary as rules
from . import recipe
from .answers import rung

if TYPE_CHECKING:
    from ..replay.building import Built

STEPS, SEEDS = 10, 3
LIMITS = (
    "a short job of this size: what shows only at scale, or after many steps, is not compared",
    "the spread is that of seeds: a change that biases every seed alike by less than that passes",
)
Make = Callable[[int, int], "Built"]


def record(
    make: Make,
    *,
    steps: int = STEPS,
    seeds: Sequence[int] = tuple(range(SEEDS)),
    at: Sequence[int] | None = None,
    conditions: dict[str, Any] | None = None,
    built_by: str | None = None,
) -> schemas.Canary:
    """Run the job once with each seed, and once more with the first.

    Args:
        make: called with (rank, world size) after all generators are seeded; gives what `build` gives. `batches` has to
            give the same batches each time, for each rank its own.
        steps: updates.
        at: steps at which the digests of all gradients and weights are taken; by default 1, 2, 4, 8, ... and the last.
        conditions: what the caller knows to differ, such as `{"compile": True}`, beside what is read here.

    Under torch.distributed all ranks call it together: losses are averaged over them. Raises what the job raises.
    """
    points = sorted({*(at or _marks(steps))})
    made: schemas.Recipe | None = None
    runs = []
    for seed in (*seeds, seeds[0]):
        built = _seeded(make, seed)
        made = made or recipe.of(built.model, built.optimizer, built.config, built_by)
        runs.append(_run(built, seed, steps, points))
    again = runs.pop()
    assert made is not None
    return schemas.Canary(
        at=schemas.now(),
        recipe=made,
        steps=steps,
        world_size=_place()[1],
        runs=runs,
        repeats=rules.parting_of(runs[0], again) is None,
        conditions={k: schemas.Scalar.of(v) for k, v in {**_conditions(), **(conditions or {})}.items()},
    )


def check(
    before: schemas.Canary,
    make: Make,
    *,
    conditions: dict[str, Any] | None = None,
    built_by: str | None = None,
    bitwise: bool = False,
) -> tuple[schemas.Rung, schemas.Canary]:
    """Make the job of `before` again, and tell how the two sides lie to each other. `bitwise`: nothing less passes."""
    at = [p.step for p in before.runs[0].points]
    seeds = [r.seed for r in before.runs]
    after = record(make, steps=before.steps, seeds=seeds, at=at, conditions=conditions, built_by=built_by)
    return compare(before, after, bitwise=bitwise), after


def compare(before: schemas.Canary, after: schemas.Canary, *, bitwise: bool = False) -> schemas.Rung:
    """The rung of two sides that are both on record."""
    found = rules.answers(before, after)
    sides = found[-1]
    if bitwise and sides.outcome == "pass" and sides.values["class"].plain() != "bitwise":
        found[-1] = sides.model_copy(update={"outcome": "fail", "text": f"{sides.text}; bits were asked for"})
    return rung(
        "canary",
        found,
        found[-1].text,
        main=rules.MAIN,
        recipe=after.recipe,
        world_size=after.world_size,
        parameters={"steps": before.steps, "seeds": [r.seed for r in before.runs], "bitwise": bitwise},
        limits=LIMITS,
    )


def _marks(steps: int) -> list[int]:
    return [s for s in (1 << i for i in range(32)) if s < steps] + [steps]


def _place() -> tuple[int, int]:
    d = torch.distributed
    return (d.get_rank(), d.get_world_size()) if d.is_available() and d.is_initialized() else (0, 1)


def _seeded(make: Make, seed: int) -> Built:
    random.seed(seed)
    torch.manual_seed(seed)
    try:
        import numpy as np
    except ImportError:
        pass
    else:
        np.random.seed(seed)
    return make(*_place())


def _run(built: Built, seed: int, steps: int, at: Sequence[int]) -> schemas.CanaryRun:
    losses: list[float] = []
    points = []
    named = [(clean(n), p) for n, p in built.model.named_parameters()]
    for step, batch in enumerate(islice(_batches(built), steps), 1):
        losses.append(_mean(_forward_backward(built, batch)))
        gradients = {n: tensor_digest(p.grad) for n, p in named if p.grad is not None} if step in at else {}
        _update(built)
        if step in at:
            weights = {n: tensor_digest(p.detach()) for n, p in named}
            points.append(schemas.CanaryPoint(step=step, gradients=gradients, weights=weights))
    if len(losses) < steps:
        raise ValueError(
            f"the job has {len(losses)} batches, and {steps} steps were asked for: steps=, or a longer loader"
        )
    return schemas.CanaryRun(seed=seed, losses=losses, points=points)


def _batches(built: Built) -> Iterator[Any]:
    given: Iterable[Any] | None = built.batches() if callable(built.batches) else built.batches
    if given is None:
        raise ValueError("build gave no batches: return {'batches': ...} with the model")
    return iter(given)


def _forward_backward(built: Built, batch: Any) -> float:
    if built.loss is None or built.optimizer is None:
        raise ValueError(
            "a canary needs loss and optimizer: return {'loss': ..., 'optimizer': ...} with the model"
        )
    built.optimizer.zero_grad()
    loss = built.loss(built.model, batch)
    if built.backward is not None:
        built.backward(loss, 1)
    else:
        (built.scaler.scale(loss) if built.scaler is not None else loss).backward()
    return float(loss.detach())


def _update(built: Built) -> None:
    if built.scaler is not None:
        built.scaler.unscale_(built.optimizer)
    if built.clip is not None:
        built.clip()
    if built.scaler is not None:
        built.scaler.step(built.optimizer)
        built.scaler.update()
    else:
        built.optimizer.step()
    if built.scheduler is not None:
        built.scheduler.step()


def _mean(loss: float) -> float:
    if _place()[1] == 1:
        return loss
    found = torch.tensor(loss, dtype=torch.float64)
    torch.distributed.all_reduce(found)
    return float(found) / _place()[1]


def _conditions() -> dict[str, Any]:
    """What the results may rest on, as torch tells it."""
    found: dict[str, Any] = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "sdpa": [
            name
            for name, on in (
                ("flash", torch.backends.cuda.flash_sdp_enabled()),
                ("efficient", torch.backends.cuda.mem_efficient_sdp_enabled()),
                ("math", torch.backends.cuda.math_sdp_enabled()),
            )
            if on
        ],
        "omp_threads": os.environ.get("OMP_NUM_THREADS"),
    }
    if torch.cuda.is_available():
        found |= {
            "gpu": torch.cuda.get_device_name(),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "tf32": torch.backends.cuda.matmul.allow_tf32,
        }
    return found
