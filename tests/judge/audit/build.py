"""Small histories with good and bad habits in them, as records, for the tests of the audit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import schemas
from lineage.judge import graph
from lineage.judge.audit import Audited
from tests.judge.builders import History, uid

BAD = 15


def change(concept: str, before: Any = 1.0, after: Any = 2.0, **over: Any) -> schemas.Change:
    """A change in effect of class R, asked for."""
    values: dict[str, Any] = {
        "class": "R",
        "title": concept,
        "effective_before": schemas.Scalar.of(before),
        "effective_after": schemas.Scalar.of(after),
        "requested_before": schemas.Scalar.of(before),
        "requested_after": schemas.Scalar.of(after),
        "text": f"{concept} {before} -> {after}",
    }
    return schemas.Change(concept=concept, **{**values, **over})


def drift(
    *changes: schemas.Change, step: int = 11, undeclared: Sequence[str] = (), **over: Any
) -> schemas.Drift:
    """What changed at a restart."""
    return schemas.Drift(
        from_step=step,
        changes=list(changes),
        confounded=len(changes) > 1,
        undeclared=list(undeclared),
        **over,
    )


def first_bad(segment: int, step: int = BAD, abnormal: Any = "non_finite", **over: Any) -> schemas.FirstBad:
    """A first bad cell of a segment."""
    cell = schemas.Cell(
        segment=uid(segment),
        rank=0,
        step=step,
        signal="loss",
        abnormal=abnormal,
        value=float("nan"),
        text="loss is NaN",
    )
    return schemas.FirstBad(cell=cell, last_good_step=step - 1, **over)


class Case:
    """A run that broke at step 15 of segment 1, saved at step 10 before; what follows is for the test to say."""

    def __init__(self) -> None:
        self.history = History()
        self.history.segment(1, steps=20)
        self.history.checkpoint(50, 1, 10, path="/ck/10")
        self.bads = {uid(1): first_bad(1, last_good_checkpoint=uid(50))}
        self.extra: dict[str, Any] = {}

    def restarted(self, n: int = 2, *changes: schemas.Change, **over: Any) -> Case:
        """It was restarted from the checkpoint of step 10, with some changes."""
        self.history.segment(n, parent=50, at=10)
        if changes:
            self.history.drift(n, drift(*changes, **over))
        return self

    def add(self, payload: Any, segment: int = 1, **over: Any) -> schemas.Record:
        """One more record."""
        return self.history.add(payload, segment, **over)

    def incident(self, status: Any = "open", **over: Any) -> schemas.Record:
        """An incident of segment 1, or what is said of it."""
        values = {"uid": uid(70), "title": "loss is NaN", "owner": "ana", **over}
        return self.add(schemas.Incident(status=status, **values))

    def keep(self) -> None:
        """The evidence is kept."""
        held = schemas.Preserved(
            what="rank files",
            source="/l",
            location="evidence/x",
            root="sha256:" + "0" * 64,
            files=1,
            bytes=1,
            method="copy",
            verified=True,
        )
        self.add(held)

    def replay(self, *names: str, flips: bool = True) -> schemas.Record:
        """A replay of the bad step."""
        changes = [{"name": n, "in_effect": "yes", "text": "it did something"} for n in names]
        made = schemas.Replay.model_validate(
            {
                "uid": uid(80),
                "bundle": "sha256:" + "1" * 64,
                "first_bad_step": BAD,
                "first_bad_rank": 0,
                "world_size": 1,
                "device": "cpu",
                "result": "not_reproduced",
                "reason": "the loss is finite",
                "changes": changes,
                "flips": flips,
                "start": {"source": "bundle", "text": "the state in the bundle"},
            }
        )
        return self.add(made)

    @property
    def audited(self) -> Audited:
        """What the rules look at."""
        records = self.history.records
        values: dict[str, Any] = {
            "run": "run",
            "records": records,
            "graph": graph.build(records),
            "bads": self.bads,
            "anchors": ["local: x"],
            "sealed": 1,
        }
        return Audited(**{**values, **self.extra})


def healthy() -> Case:
    """A run in which nothing broke: one segment, resumed once."""
    case = Case()
    case.bads = {}
    return case
