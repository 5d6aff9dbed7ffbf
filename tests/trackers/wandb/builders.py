"""Records as the layer would write them, built by hand."""

from __future__ import annotations

import itertools
import time
from typing import Any

import uuid6

import schemas

RUN = "run-7f3a"
ROOT = "sha256:" + "a1" * 32
POLICY = "sha256:" + "b2" * 32
REGIME_ONE = "sha256:" + "c3" * 32
REGIME_TWO = "sha256:" + "d4" * 32

_seq = itertools.count()


def uid() -> str:
    return str(uuid6.uuid7())


FIRST_SEGMENT, SECOND_SEGMENT = uid(), uid()


def record(
    payload: Any, *, segment: str = FIRST_SEGMENT, step: int | None = None, rank: int = 0, **more: Any
):
    return schemas.Envelope(
        id=uid(),
        run=RUN,
        segment=segment,
        rank=rank,
        step=step,
        at=schemas.now(),
        mono=time.monotonic(),
        seq=next(_seq),
        prev=ROOT,
        payload=payload,
        **more,
    )


def scalar(value: Any) -> schemas.Scalar:
    return schemas.Scalar.of(value)


def config(**values: Any) -> schemas.Config:
    scalars = {k: scalar(v) for k, v in values.items()}
    return schemas.Config(source="dict", values=scalars, digest=f"sha256:{abs(hash(str(values))):064x}")


def change(concept: str, before: Any, after: Any, **more: Any) -> schemas.Change:
    return schemas.Change(
        concept=concept,
        cls="R",
        title=concept.replace("_", " "),
        requested_before=scalar(before),
        requested_after=scalar(after),
        effective_before=scalar(before),
        effective_after=scalar(after),
        text=f"{concept} {before} -> {after}",
        **more,
    )


def drift(*changes: schemas.Change, from_step: int = 101, **more: Any) -> schemas.Drift:
    return schemas.Drift(from_step=from_step, changes=list(changes), confounded=len(changes) > 1, **more)


def regime(
    index: int, from_step: int, digest: str = REGIME_ONE, because: tuple[str, ...] = ()
) -> schemas.Regime:
    return schemas.Regime(id=digest, index=index, from_step=from_step, values={}, because=list(because))


def verdict(since: int | None = None, subject: str = f"run:{RUN}", **claims: str) -> schemas.Verdict:
    """A verdict with these claims, such as `loss_curve="broken"`."""
    status = max(claims.values(), key=schemas.STATUS_ORDER.index)
    return schemas.Verdict(
        subject=subject,
        status=status,
        since_step=since,
        claims=[
            schemas.ClaimVerdict(claim=c, status=s, reason="the learning rate changed")
            for c, s in claims.items()
        ],
        policy=POLICY,
    )


def alarm(
    abnormal: str = "non_finite", signal: str = "grad_norm", value: float = float("nan"), phase: str = "onset"
):
    return schemas.Alarm(
        code="LIN-A002" if abnormal == "non_finite" else "LIN-A004",
        phase=phase,
        signal=signal,
        scope="rank",
        abnormal=abnormal,
        value=value,
        text="abnormal",
    )


def checkpoint(step: int, *, parents: tuple[str, ...] = (), status: str = "complete", digest: str = ROOT):
    entry = schemas.FileEntry(path="model.pt", size=1024, digest="blake3:" + "e5" * 32)
    return schemas.Checkpoint(
        uid=uid(),
        step=step,
        status=status,
        path=f"/data/ckpt-{step}",
        parents=list(parents),
        manifest=schemas.Manifest(root=digest, files=[entry]) if status == "complete" else None,
    )


def segment(segment_uid: str, **more: Any) -> schemas.Segment:
    return schemas.Segment(uid=segment_uid, place=schemas.Place(node="n1", pid=1), **more)


def seal(root: str = ROOT) -> schemas.Seal:
    return schemas.Seal(why="checkpoint", heads=[], root=root)
