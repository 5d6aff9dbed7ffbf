"""Golden payloads of a bundle and of a replay from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import schemas as s
from schemas import Scalar


def payloads(uid: Callable[[int], str], sha: Callable[[str], str]) -> list[tuple[int | None, Any]]:
    """(step, payload), with the ids and digests of the other golden payloads."""
    bundle = s.Bundle(
        root=sha("bundle"),
        location="captured/0197a3c4-0002-7000-8000-000000000002/rank1-step2004-0123456789abcdef",
        first_bad_step=2004,
        alarm=uid(0x111),
        steps=[2003, 2004],
        state=True,
        files=14,
        bytes=1_048_576,
        limit=1 << 30,
        left_out={"batches of step 2,002 and before": "8,388,608 bytes, and 4,194,304 were left"},
    )
    replay = s.Replay(
        uid=uid(0x51),
        bundle=sha("bundle"),
        first_bad_step=2004,
        first_bad_rank=1,
        world_size=1,
        device="NVIDIA H100",
        given=["one device makes the step of rank 1, of 2 ranks in the run"],
        changes=[
            s.ReplayChange(
                name="without-sample",
                argument="5",
                in_effect="yes",
                text="sample 5 was taken out of input_ids; 7 are left",
            )
        ],
        confounded=False,
        result="not_reproduced",
        reason="the recorded loss (NaN, not finite) does not show: loss is 2.31",
        runs=3,
        shown=0,
        values=[
            s.ReplayValue(
                signal="loss", recorded=math.nan, replayed=[2.31, 2.31, 2.3125], equal=False, spread=0.0025
            )
        ],
        tensors_compared=2,
        tensors_equal=1,
        tensors=[
            s.ReplayTensor(
                tensor="head.weight",
                recorded_norm=math.inf,
                replayed_norm=1.5,
                recorded_broken=4,
                replayed_broken=0,
            )
        ],
        first_non_finite=[
            s.FirstNonFinite.model_validate(
                {
                    "phase": "backward",
                    "module": "layers.3.mlp",
                    "class": "MLP",
                    "operation": "aten.div.Tensor",
                    "node": "LogBackward0",
                    "place": 1,
                    "largest": 3.5,
                    "largest_before": 65504.0,
                    "broken": 4,
                    "elements": 4096,
                    "text": "LogBackward0 in layers.3.mlp: 4 NaN of 4,096 elements",
                }
            )
        ],
        before=["output of layers.3.norm (LayerNorm): largest 4.1"],
        start=s.ReplayStart(
            source="checkpoint",
            checkpoint=uid(0x11),
            step=2000,
            replayed_updates=3,
            updates_between=0,
            components=[
                s.ReplayDistance(
                    component="weights", recorded=sha("weights"), replayed=sha("weights"), equal=True
                )
            ],
            text="the checkpoint of step 2,000, and 3 recorded updates made again",
        ),
        control=uid(0x50),
        flips=True,
        effects=[
            s.FamilyEffect(
                family="data",
                aspect="sample",
                direction="raises",
                text="it goes away without this sample",
                rule="replay-sample-1",
                source="a guide",
            )
        ],
        limits=["one device made the step of one rank"],
        parameters={"with": Scalar.of("train:build"), "repeat": Scalar.of(3)},
    )
    return [(2004, bundle), (2004, replay)]
