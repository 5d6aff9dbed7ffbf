"""Golden payload of a rung of the debugging ladder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import schemas as s
from schemas import Scalar


def payloads(uid: Callable[[int], str], sha: Callable[[str], str]) -> list[tuple[int | None, Any]]:
    """(step, payload)."""
    answer = s.Answer(
        question="optimizer_holds_missing",
        outcome="fail",
        text="1 of 24 trainable parameters is held by no group: head.weight",
        names=["head.weight"],
        count=1,
        values={"trainable": Scalar.of(24)},
        source="docs/ladder.md",
        look_at=["the optimizer was built before the head was tied"],
    )
    recipe = s.Recipe(
        digest=sha("recipe"),
        built_by="my_train:build",
        model="GPT",
        optimizer="AdamW",
        parameters=124_000,
        config={"lr": Scalar.of(0.001)},
    )
    rung = s.Rung(
        uid=uid(0x40),
        rung="overfit",
        outcome="fail",
        text="the loss fell from 4.16 to 3.9 in 200 updates on one batch",
        answers=[answer],
        recipe=recipe,
        world_size=1,
        device="cpu",
        parameters={"steps": Scalar.of(200)},
        limits=["one batch says nothing of generalisation"],
    )
    return [(None, rung)]
