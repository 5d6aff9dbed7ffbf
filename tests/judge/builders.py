"""Sides, records and small histories for the judge: pure data, no files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import schemas
from lineage.judge.drift import Side

START = datetime(2026, 1, 1, tzinfo=UTC)


def uid(n: int) -> str:
    """A uid by number."""
    return f"00000000-0000-7000-8000-{n:012d}"


def config(**values: Any) -> schemas.Config:
    """A requested config."""
    return schemas.Config(
        source="dict",
        values={k.replace("__", "."): schemas.Scalar.of(v) for k, v in values.items()},
        digest="sha256:00",
    )


LIVE = {
    "learning_rate": 1e-3,
    "lr_schedule": "LambdaLR(a)",
    "optimizer": "AdamW",
    "weight_decay": 0.1,
    "grad_clip": 1.0,
    "global_batch": 32,
    "data_mix": "web",
    "data_order": "seed 1",
    "precision": "float32",
    "model": "1 parameter",
}


def effective(moment: Any = "after_first_step", **changed: Any) -> schemas.Effective:
    """Live values; None leaves a concept out."""
    values = {**LIVE, **changed}
    return schemas.Effective(
        moment=moment,
        values={
            k: schemas.EffectiveValue(value=schemas.Scalar.of(v), read_from=f"live {k}")
            for k, v in values.items()
            if v is not None
        },
        unseen={k: f"{k} was not given" for k, v in values.items() if v is None},
    )


def environment(**packages: str) -> schemas.Environment:
    """An environment with some packages."""
    return schemas.Environment(python="3.11", platform="linux", packages=packages, digest="sha256:00")


CODE = schemas.CodeState(repository=True, revision="a" * 40)


def side(
    asked: schemas.Config | None = None,
    live: schemas.Effective | None = None,
    ahead: Mapping[int, Sequence[float]] | None = None,
    code: schemas.CodeState | None = CODE,
    env: schemas.Environment | None = None,
) -> Side:
    """One side of a boundary."""
    return Side(
        config=asked or config(learning_rate=1e-3),
        effective=live or effective(),
        code=code,
        environment=env or environment(torch="2.13"),
        lr_ahead={k: list(v) for k, v in (ahead or {}).items()},
    )


RESTORED = tuple(c for c in schemas.COMPONENTS if c not in ("grad_scaler", "buffers"))


def restore(checkpoint: str, **status: str) -> schemas.Restore:
    """A restore record: everything restored but what is named."""
    return schemas.Restore(
        checkpoint=checkpoint,
        components=[
            schemas.ComponentRestore(
                component=c, status=status.get(c, "restored"), text=f"{c} {status.get(c, 'as saved')}"
            )  # type: ignore[arg-type]
            for c in RESTORED
        ],
    )


class History:
    """A ledger's records, one after the other; each run's ledger numbers its records in a range of its own."""

    def __init__(self, run: str = "r", first: int = 100_000) -> None:
        self.records: list[schemas.Record] = []
        self.run, self.first = run, first

    def add(self, payload: Any, segment: int, *, step: int | None = None, rank: int = 0) -> schemas.Record:
        """Add a record to a segment."""
        n = len(self.records)
        record = schemas.Record(
            id=uid(self.first + n),
            run=self.run,
            segment=uid(segment),
            rank=rank,
            step=step,
            at=START + timedelta(seconds=n + self.first),
            mono=float(n),
            seq=n,
            prev=None,
            payload=payload,
            raw=b"",
            file=f"{segment}-{rank}",
            line=n,
        )
        self.records.append(record)
        return record

    def segment(
        self,
        n: int,
        *,
        parent: int | None = None,
        at: int | None = None,
        steps: int = 10,
        start: str | None = None,
    ) -> None:
        """A segment with live values, from a checkpoint (its number and step) or from nothing."""
        self.add(
            schemas.Segment(
                uid=uid(n),
                start=start or ("resume" if parent else "fresh"),  # type: ignore[arg-type]
                parent_checkpoint=uid(parent) if parent else None,
                parent_step=at,
                place=schemas.Place(node="n-1", pid=1),
            ),
            n,
            step=at or 0,
        )
        self.add(CODE, n, step=at or 0)
        self.add(environment(torch="2.13"), n, step=at or 0)
        self.add(effective(), n, step=(at or 0) + 1)
        self.add(schemas.SegmentEnd(last_step=(at or 0) + steps), n, step=(at or 0) + steps)

    def checkpoint(self, n: int, segment: int, step: int, parents: Sequence[int] = (), **fields: Any) -> None:
        """A complete checkpoint."""
        saved = schemas.Checkpoint(
            uid=uid(n), step=step, status="complete", parents=[uid(p) for p in parents], **fields
        )
        self.add(saved, segment, step=step)

    def drift(self, segment: int, found: schemas.Drift, *, rank: int = 0) -> None:
        """What changed at a segment's beginning."""
        self.add(found, segment, step=found.from_step, rank=rank)


def statuses(verdict: schemas.Verdict) -> dict[str, str]:
    """claim -> status."""
    return {c.claim: c.status for c in verdict.claims}
