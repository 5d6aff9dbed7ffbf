"""What a replay does to each kind of cause: rules as data, each with an id, a reason and where it is from.

A rule raises or lowers; none proves. A clean replay never acquits the batch: a batch may need the rest of the world,
the precision or the timing of the run to do its harm.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from .._rooms import schemas
from .symptom_checks import BYTEROBUST, DEEP, GUIDE, MEGATRON

Result = Literal["reproduced", "not_reproduced", "inconclusive"]
CONTROL = "control"
"""Stands for the replay in which nothing was changed."""
SINGLE, DEVICE, TORCH, CODE = "single-device", "other-device", "other-torch", "other-code"
"""What may differ from the recorded run although nobody asked."""


@dataclass(frozen=True)
class Effect:
    """One thing that a rule does."""

    family: schemas.Family
    direction: Literal["raises", "lowers"]
    text: str
    aspect: str | None = None
    arithmetic: bool = False
    """whether it rests on arithmetic being the same: not to be said where the start state is another one"""


@dataclass(frozen=True)
class Rule:
    """When it holds, and what it does."""

    id: str
    condition: str
    """`control`, or the name of the change"""
    result: Result
    effects: tuple[Effect, ...]
    source: str
    when: Callable[[Collection[str]], bool] = lambda given: True
    """of what differs although nobody asked"""


def _alone(given: Collection[str]) -> bool:
    return SINGLE in given


def _whole(given: Collection[str]) -> bool:
    return SINGLE not in given


def _elsewhere(given: Collection[str]) -> bool:
    return DEVICE in given or TORCH in given


_CLEAN_ALONE = (
    Effect(
        "data",
        "lowers",
        "the batch alone, from this state, does not show it; it is not acquitted by that",
        "batch",
    ),
    Effect(
        "distributed",
        "raises",
        "what one device leaves out: collectives, other ranks' parts",
        "collectives",
        True,
    ),
    Effect("distributed", "raises", "the original split over ranks was not made again", "topology", True),
    Effect(
        "numerics",
        "raises",
        "kernels and precision of the run may round otherwise than here",
        "precision",
        True,
    ),
    Effect(
        "hardware", "raises", "neither the device nor the timing of the run was made again", "timing", True
    ),
)
_SHOWN_ALONE = (
    Effect("distributed", "lowers", "it shows without other ranks and without collectives", "collectives"),
    Effect("distributed", "lowers", "it shows without the original split over ranks", "topology"),
    Effect("hardware", "lowers", "it shows again at another time, so it was no passing fault", "timing"),
    Effect("data", "raises", "this batch, from this state, is enough to show it", "batch"),
    Effect("numerics", "raises", "arithmetic on this batch, from this state, is enough to show it"),
)

RULES: tuple[Rule, ...] = (
    Rule("replay-1", CONTROL, "not_reproduced", _CLEAN_ALONE, GUIDE, _alone),
    Rule("replay-2", CONTROL, "reproduced", _SHOWN_ALONE, GUIDE, _alone),
    Rule(
        "replay-3",
        CONTROL,
        "not_reproduced",
        (
            Effect(
                "hardware",
                "raises",
                "the same step gave another result: a passing fault of a device",
                "transient",
                True,
            ),
            Effect(
                "distributed",
                "raises",
                "the same step gave another result: an order of events",
                "timing",
                True,
            ),
            Effect(
                "data",
                "lowers",
                "the same batches, from this state, do not show it; they are not acquitted",
                "batch",
                True,
            ),
            Effect("code", "lowers", "the same code did not do it again", None, True),
        ),
        MEGATRON,
        _whole,
    ),
    Rule(
        "replay-4",
        CONTROL,
        "reproduced",
        (
            Effect("hardware", "lowers", "it repeats, so it was no passing fault of a device", "transient"),
            Effect("distributed", "lowers", "it repeats, so it hangs on no order of events", "timing"),
            Effect("data", "raises", "batch, state and code of the step are enough to show it", "batch"),
            Effect("numerics", "raises", "batch, state and code of the step are enough to show it"),
        ),
        MEGATRON,
        _whole,
    ),
    Rule(
        "replay-5",
        CONTROL,
        "reproduced",
        (Effect("hardware", "lowers", "another device, or another torch, shows it too", "device"),),
        BYTEROBUST,
        _elsewhere,
    ),
    Rule(
        "replay-6",
        CONTROL,
        "not_reproduced",
        (
            Effect(
                "hardware",
                "raises",
                "it may stay with the device, or with the software, of the run",
                "device",
                True,
            ),
            Effect("numerics", "raises", "other kernels ran here than in the run", "kernel", True),
        ),
        BYTEROBUST,
        _elsewhere,
    ),
    Rule(
        "replay-fp32-1",
        "fp32",
        "not_reproduced",
        (
            Effect(
                "numerics",
                "raises",
                "it goes away in float32: range or rounding of the lower precision",
                "precision",
            ),
        ),
        GUIDE,
    ),
    Rule(
        "replay-fp32-2",
        "fp32",
        "reproduced",
        (
            Effect(
                "numerics",
                "lowers",
                "it stays in float32: the lower precision is not what it needs",
                "precision",
            ),
            Effect("data", "raises", "still bad in float32 speaks for data or model", "batch"),
            Effect("code", "raises", "still bad in float32 speaks for data or model", "model"),
        ),
        GUIDE,
    ),
    Rule(
        "replay-sdpa-1",
        "math-sdpa",
        "not_reproduced",
        (
            Effect("numerics", "raises", "it goes away with the plain attention: the fused kernel", "kernel"),
            Effect(
                "hardware",
                "raises",
                "it goes away with the plain attention: the software that has the kernel",
                "kernel",
            ),
        ),
        GUIDE,
    ),
    Rule(
        "replay-sdpa-2",
        "math-sdpa",
        "reproduced",
        (Effect("numerics", "lowers", "it stays with the plain attention: not the fused kernel", "kernel"),),
        GUIDE,
    ),
    Rule(
        "replay-compile-1",
        "no-compile",
        "not_reproduced",
        (
            Effect(
                "numerics",
                "raises",
                "it goes away without the compiler: what that fuses or rounds",
                "compiler",
            ),
            Effect(
                "hardware",
                "raises",
                "it goes away without the compiler: a fault in what that makes",
                "compiler",
            ),
        ),
        DEEP,
    ),
    Rule(
        "replay-compile-2",
        "no-compile",
        "reproduced",
        (Effect("numerics", "lowers", "it stays without the compiler", "compiler"),),
        DEEP,
    ),
    Rule(
        "replay-deterministic-1",
        "deterministic",
        "not_reproduced",
        (
            Effect(
                "numerics",
                "raises",
                "it goes away with deterministic kernels: an order of additions",
                "order",
            ),
        ),
        MEGATRON,
    ),
    Rule(
        "replay-deterministic-2",
        "deterministic",
        "reproduced",
        (Effect("numerics", "lowers", "it stays with deterministic kernels", "order"),),
        MEGATRON,
    ),
    Rule(
        "replay-rank-1",
        "other-rank-batch",
        "not_reproduced",
        (
            Effect(
                "data",
                "raises",
                "it goes with the batch: another rank's does not show it on this state",
                "batch",
            ),
        ),
        BYTEROBUST,
    ),
    Rule(
        "replay-rank-2",
        "other-rank-batch",
        "reproduced",
        (
            Effect(
                "data", "lowers", "another rank's batch shows it too: it does not go with this one", "batch"
            ),
            Effect("numerics", "raises", "it stays with this state and arithmetic, whatever the batch"),
            Effect("optimizer", "raises", "it stays with this state, whatever the batch", "state"),
        ),
        BYTEROBUST,
    ),
    Rule(
        "replay-sample-1",
        "without-sample",
        "not_reproduced",
        (Effect("data", "raises", "it goes away without this sample", "sample"),),
        GUIDE,
    ),
    Rule(
        "replay-sample-2",
        "without-sample",
        "reproduced",
        (Effect("data", "lowers", "it stays without this sample; the others are not acquitted", "sample"),),
        GUIDE,
    ),
    Rule(
        "replay-single-1",
        "single-device",
        "not_reproduced",
        _CLEAN_ALONE,
        GUIDE,
    ),
    Rule("replay-single-2", "single-device", "reproduced", _SHOWN_ALONE, GUIDE),
    Rule(
        "replay-hooks-1",
        "eager-hooks",
        "not_reproduced",
        (
            Effect(
                "numerics",
                "raises",
                "it goes away in eager mode with hooks: compiled or fused kernels",
                "compiler",
            ),
            Effect(
                "hardware", "raises", "it goes away when the host waits at each operation: timing", "timing"
            ),
        ),
        DEEP,
    ),
    Rule(
        "replay-anomaly-1",
        "anomaly-mode",
        "not_reproduced",
        (
            Effect(
                "hardware", "raises", "it goes away when the host waits at each operation: timing", "timing"
            ),
        ),
        DEEP,
    ),
    Rule(
        "replay-optimizer-1",
        "optimizer-reset",
        "not_reproduced",
        (Effect("optimizer", "raises", "it goes away with fresh moments and counters", "state"),),
        GUIDE,
    ),
    Rule(
        "replay-optimizer-2",
        "optimizer-reset",
        "reproduced",
        (Effect("optimizer", "lowers", "it stays with fresh moments and counters", "state"),),
        GUIDE,
    ),
)
"""Each rule's effects hold where its condition, its result and what differs fit."""
