"""What a ledger may hold around a bad cell, in plain values, for the tests of the rules."""

from __future__ import annotations

from typing import Any

import schemas
from lineage.judge.agreement import Compared, Disagreement
from lineage.judge.events_near import LABEL, Near
from lineage.judge.events_run import Placed
from lineage.judge.restored_whole import Outcome
from lineage.judge.suspects import BatchRow, Boundary, Found, Known, ProbeRow

STEP = 60
SEGMENT = "00000000-0000-7000-8000-0000000000a1"


def cell(**over: Any) -> schemas.Cell:
    """The first bad cell: a loss out of range, unless told otherwise."""
    values: dict[str, Any] = {
        "segment": SEGMENT,
        "rank": 0,
        "step": STEP,
        "signal": "loss",
        "abnormal": "out_of_range",
        "value": 9.0,
        "text": "loss is 9, 2 was usual (4.5 times)",
    }
    return schemas.Cell(**{**values, **over})


def known(at: schemas.Cell | None = None, **over: Any) -> Known:
    """What is known around it: one rank, a fresh start, nothing else."""
    c = at or cell()
    symptom = over.pop("symptoms", ())
    first = schemas.FirstBad(
        cell=c,
        last_good_step=c.step - 1 if c.last_good is None else c.last_good,
        ties=over.pop("ties", []),
        samples=over.pop("samples", []),
        place=over.pop("place", None),
        symptoms=[schemas.Symptom.model_validate({"class": s, "reason": "as told"}) for s in symptom],
    )
    values: dict[str, Any] = {
        "run": "run",
        "first": first,
        "cell": c,
        "segment": 1,
        "world": 1,
        "start": "fresh",
        "parent_step": None,
    }
    return Known(**{**values, **over})


def batch(step: int, **stats: float) -> BatchRow:
    """One micro-batch of rank 0."""
    return BatchRow(0, step, 0, f"d{step}", stats)


def batches(here: BatchRow, **usual: float) -> list[BatchRow]:
    """Forty usual batches, a little different from each other, and one at the bad step."""
    return [
        *(batch(s, **{k: v and v + s % 3 for k, v in usual.items()}) for s in range(STEP - 40, STEP)),
        here,
    ]


def row(step: int, kind: str, tensor: str, **over: Any) -> ProbeRow:
    """One row of a probe: 100 elements, finite and of usual size."""
    values: dict[str, Any] = {
        "step": step,
        "kind": kind,
        "tensor": tensor,
        "order": None,
        "elements": 100,
        "norm": 1.0,
        "largest": 0.5,
        "lowest": None,
        "n_nan": 0,
        "infinite": 0,
        "dtype": "float32",
        "scale": 1.0,
    }
    return ProbeRow(**{**values, **over})


def change(
    concept: str, text: str = "it is another one", *, asked: bool = False, cls: str = "R"
) -> schemas.Change:
    """A change in effect; `asked`: a config asks for it."""
    values: dict[str, Any] = {
        "class": cls,
        "title": concept,
        "effective_before": schemas.Scalar.of(1.0),
        "effective_after": schemas.Scalar.of(2.0),
        "text": text,
    }
    if asked:
        values |= {"requested_before": schemas.Scalar.of(1.0), "requested_after": schemas.Scalar.of(2.0)}
    return schemas.Change(concept=concept, **values)


def boundary(*changes: schemas.Change, step: int = 55, moment: Any = "resume", **over: Any) -> Boundary:
    """A drift before the bad step."""
    drift = schemas.Drift(moment=moment, from_step=step, changes=list(changes), confounded=False, **over)
    return Boundary("drift-1", 1, drift)


def finding(
    code: str, text: str = "as found", step: int | None = 50, severity: Any = "fault", **values: Any
) -> Found:
    """A finding of a check."""
    found = schemas.Finding(
        code=code,
        check="some/1",
        severity=severity,
        subject="it",
        text=text,
        values={k: schemas.Scalar.of(v) for k, v in values.items()},
    )
    return Found("finding-1", 1, 0, step, found)


def outcome(component: str, status: Any) -> Outcome:
    """What became of one component at a resume."""
    text = f"{component} {status}"
    return Outcome(schemas.ComponentRestore(component=component, status=status, text=text), ())


def parted(
    *kinds: str, tensor: str = "w", classes: Any = ((0, 1), (2,)), agreed: int | None = 56, held: Any = None
) -> Compared:
    """Copies of a tensor that parted by the bad step: all of these kinds of it."""
    every = frozenset(held or ("weight", "moment1", "moment2"))
    found = [Disagreement(k, tensor, "whole", STEP, agreed, classes, True, "g", None, every) for k in kinds]
    return Compared(found=found, tensors=3, steps=[52, 56, 60])


def differs(**over: Any) -> schemas.Cell:
    """A cell of copies that differ."""
    return cell(signal="replica:w", tensor="w", abnormal="differs", rank=2, value=2.0, last_good=56, **over)


def near(category: Any, seconds: float = -30.0, severity: Any = "fault", label: str = LABEL) -> Near:
    """An event near the bad step."""
    event = schemas.Event(
        key="sha256:" + "0" * 64,
        category=category,
        severity=severity,
        text="something happened",
        source=schemas.EventSource(format="kernel"),
    )
    return Near(Placed(event, "event-1", SEGMENT, 1, (0,), "node"), seconds, label)


def replay(**over: Any) -> tuple[str, schemas.Replay]:
    """A replay of the bad step with one change, as `lineage replay` records it."""
    values: dict[str, Any] = {
        "uid": "00000000-0000-7000-8000-000000000001",
        "bundle": "sha256:" + "1" * 64,
        "first_bad_step": STEP,
        "first_bad_rank": 0,
        "world_size": 1,
        "device": "cpu",
        "result": "not_reproduced",
        "reason": "the loss is finite",
        "changes": [
            {"name": "fp32", "in_effect": "yes", "text": "parameters are float32"},
        ],
        "start": {"source": "bundle", "text": "the state in the bundle"},
    }
    return "replay-1", schemas.Replay.model_validate({**values, **over})


def effect(family: str, direction: str, aspect: str | None = None) -> dict[str, Any]:
    """What a replay does to a family."""
    return {
        "family": family,
        "direction": direction,
        "aspect": aspect,
        "text": f"{direction} {family}",
        "rule": "rule-1",
        "source": "a source",
    }
