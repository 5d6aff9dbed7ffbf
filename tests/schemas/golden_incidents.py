"""Golden payloads of an incident's life: what was said of it, its cause, the decision, and what came after."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import schemas as s
from schemas import Scalar

AT = datetime(2026, 11, 29, 16, 20, tzinfo=UTC)


def payloads(uid: Callable[[int], str], sha: Callable[[str], str]) -> list[tuple[int | None, Any]]:
    """(step, payload), with the ids and digests of the other golden payloads."""
    incident, checkpoint, segment = uid(0x30), uid(0x11), uid(2)
    told = s.Message(to="evaluation team", text="do not use step 2,004", at=AT)
    effect = s.ClaimEffect(
        claim="loss_curve", status="broken", reason="at step 2,001: gradient clipping 1 -> 0.3"
    )
    return [
        (
            2004,
            s.Incident(
                uid=incident,
                status="evidence_held",
                reached="contained",
                title="non-finite gradient on rank 1",
                by="ann",
                messages=[told],
                links=["https://tickets.example/17"],
                missing=["first bad batch: no rank kept it"],
                override="the disk is full",
            ),
        ),
        (
            2004,
            s.RootCause(
                uid=uid(0x31),
                incident=incident,
                family="numerics",
                text="a sum in fp16 overflows",
                proof=s.CauseProof(
                    replay=uid(0x32),
                    control=uid(0x33),
                    condition="fp32",
                    argument="all",
                    in_effect="yes",
                    flips=True,
                ),
                by="ann",
                evidence=[uid(0x110)],
            ),
        ),
        (
            2004,
            s.Recovery(
                uid=uid(0x34),
                incident=incident,
                restart=s.RestartPoint(
                    checkpoint=checkpoint,
                    step=2000,
                    segment=segment,
                    path="/checkpoints/step-2000",
                    why="the last good checkpoint",
                    doubts=["a faithful resume would lack rng"],
                ),
                mitigations=[
                    s.PlannedMitigation(
                        uid=uid(0x35),
                        concept="grad_clip",
                        **{"class": "R"},
                        before=Scalar.of(1.0),
                        after=Scalar.of(0.3),
                        why="the norm spiked",
                        hypothesis="one shard",
                        smallest_justified="0.5 did not do",
                        effects=[effect],
                    )
                ],
                confounded=True,
                claims=[effect],
                cost=s.RecoveryCost(
                    step_time=11.5,
                    steps_measured=200,
                    devices=512,
                    steps_again=5,
                    steps_to_bad=4,
                    device_hours_again=8.18,
                    device_hours_failing=6.54,
                    waiting_per_hour=512.0,
                    break_even_hours=0.0128,
                    price=2.5,
                    currency="USD",
                    energy=0.7,
                    formula=["each hour of waiting: 512 devices x 1 h = 512 device-hours"],
                ),
                owner="ann",
                by="bo",
                messages=[told],
                evidence=[
                    s.EvidenceState(
                        what="rank files",
                        state="missing",
                        required=True,
                        text="not in the evidence store",
                        remedy="lineage incident preserve",
                        records=[uid(0x112)],
                    )
                ],
                override="a paper is due",
                note="agreed in the stand-up",
                policy=sha("policy"),
            ),
        ),
        (
            2100,
            s.Trajectory(
                incident=incident,
                recovery=uid(0x34),
                segment=uid(3),
                before=[uid(1), segment],
                from_step=2000,
                reached=2100,
                horizons=[
                    s.Horizon(
                        signal="loss",
                        steps=100,
                        at_step=2100,
                        window=20,
                        value=2.31,
                        start=2.34,
                        low=2.29,
                        high=2.35,
                        moves=10,
                        position="inside",
                        text="loss 2.31, from 2.34 at step 2,000",
                    )
                ],
                same_steps=[
                    s.SameSteps(
                        signal="loss",
                        steps=4,
                        first=2001,
                        last=2004,
                        equal=3,
                        median=0.0001,
                        largest=0.25,
                        text="3 of 4 steps that were made twice are equal to the last bit",
                    )
                ],
                parameters={"window": Scalar.of(20)},
                limits=["it says nothing of the cause"],
            ),
        ),
    ]
