"""Records as the layer writes them, for the tests of the MLflow adapter."""

from __future__ import annotations

from typing import Any

import uuid6

from schemas import (
    Alarm,
    ChainLink,
    Change,
    Checkpoint,
    ClaimVerdict,
    CodeState,
    Config,
    Drift,
    Envelope,
    FileEntry,
    Manifest,
    Model,
    Place,
    Regime,
    Scalar,
    Seal,
    Segment,
    Status,
    Verdict,
    now,
)

SHA = "sha256:" + "ab" * 32
RUN = "run-7"


def uid() -> str:
    return str(uuid6.uuid7())


def record(payload: Model, *, segment: str, step: int | None = None, rank: int = 0, **more: Any) -> Envelope:
    return Envelope(
        id=uid(),
        run=RUN,
        segment=segment,
        rank=rank,
        step=step,
        at=now(),
        mono=1.0,
        seq=0,
        prev=None,
        payload=payload,
        **more,
    )


def segment(segment_uid: str, *, parent: str | None = None, parent_step: int | None = None) -> Segment:
    return Segment(
        uid=segment_uid,
        start="resume" if parent else "fresh",
        parent_checkpoint=parent,
        parent_evidence="declared" if parent else "none",
        parent_step=parent_step,
        world_size=2,
        place=Place(node="node-a", pid=1),
    )


def config(digest: str = SHA, **values: Any) -> Config:
    return Config(source="dict", values={k: Scalar.of(v) for k, v in values.items()}, digest=digest)


def code(revision: str) -> CodeState:
    return CodeState(repository=True, revision=revision, branch="main", dirty=True, diff=SHA)


def change(concept: str, before: Any, after: Any, *, cls: str = "R", text: str | None = None) -> Change:
    old, new = Scalar.of(before), Scalar.of(after)
    return Change(
        concept=concept,
        **{"class": cls},
        title=concept.replace("_", " "),
        keys=[concept],
        requested_before=old,
        requested_after=new,
        effective_before=old,
        effective_after=new,
        read_from="optimizer.param_groups[0]",
        text=text or f"{concept}: {old.text()} -> {new.text()}",
    )


def drift(*changes: Change, from_step: int = 2001) -> Drift:
    return Drift(
        from_step=from_step,
        changes=list(changes),
        confounded=len(changes) > 1,
        undeclared=[c.concept for c in changes],
    )


def regime(index: int, from_step: int, *, previous: str | None = None, **values: Any) -> Regime:
    return Regime(
        id=f"sha256:{index:064x}",
        index=index,
        from_step=from_step,
        previous=previous,
        values={k: Scalar.of(v) for k, v in values.items()},
        because=[] if previous is None else ["learning_rate: 0.0003 -> 0.0001"],
    )


def verdict(
    status: Status = "broken", since: int | None = 2001, *, subject: str = f"run:{RUN}", reason: str = "why"
) -> Verdict:
    link = ChainLink(
        code="LIN-D002",
        concept="learning_rate",
        step=since or 0,
        effect=status,
        text="learning_rate: 0.0003 -> 0.0001",
    )
    chain = [link] if since is not None else []
    return Verdict(
        subject=subject,
        status=status,
        since_step=since,
        confounded=status == "broken",
        claims=[
            ClaimVerdict(claim="loss_curve", status=status, reason=reason, chain=chain),
            ClaimVerdict(claim="throughput", status="holds", reason="nothing operational changed"),
        ],
        policy=SHA,
    )


def alarm(value: float, *, signal: str = "loss", phase: str = "onset") -> Alarm:
    return Alarm(
        code="LIN-A001",
        phase=phase,
        signal=signal,
        scope="rank",
        abnormal="non_finite",
        value=value,
        text=f"{signal} is {value}",
    )


def checkpoint(step: int, *, checkpoint_uid: str | None = None, **more: Any) -> Checkpoint:
    more = {"status": "complete", **more}
    return Checkpoint(
        uid=checkpoint_uid or uid(),
        step=step,
        path=f"/ckpt/step-{step}",
        samples=step * 64,
        manifest=Manifest(root=SHA, files=[FileEntry(path="model.pt", size=10, digest=SHA)]),
        **more,
    )


def seal(root: str = SHA) -> Seal:
    return Seal(why="checkpoint", heads=[], root=root)
