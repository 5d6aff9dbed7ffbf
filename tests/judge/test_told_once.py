"""One fact of a resume on many ranks stands in one finding, at the step it is of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import schemas
from lineage.judge import agreement_findings, starts_ranks
from lineage.judge.series_health import Health
from lineage.ledger import health

from .builders import History, uid

NAMED = 900


def generators(mark: str) -> schemas.ComponentDigest:
    detail = {name: schemas.Scalar.of(f"{name}-{mark}") for name in ("python", "numpy", "torch")}
    return schemas.ComponentDigest(
        component="rng",
        digest=f"sha256:{mark * 64}",
        scope="rank",
        detail=detail | {"unused": schemas.Scalar.of("")},
    )


def test_random_numbers_of_another_rank_are_one_finding_for_all_generators_at_the_first_update() -> None:
    h = History()
    for rank, mark in ((0, "a"), (1, "b")):
        live = [generators(mark)]
        h.add(schemas.Checkpoint(uid=uid(NAMED), step=16, status="complete", live=live), 1, rank=rank)
    taken = generators("a")
    parts = {name: value for name, value in taken.detail.items() if name != "unused"}
    held = schemas.ComponentRestore(
        component="rng", status="differs", live=taken.digest, text="x", parts=parts
    )
    h.add(schemas.Restore(checkpoint=uid(NAMED), components=[held]), 2, rank=1)
    (found,) = starts_ranks.findings(h.records, uid(2))
    assert found.text == (
        "rank 1 has, after the load, the random numbers that rank 0 saved (python, numpy, torch)"
    )
    assert found.values["first_step"].plain() == 17


def disagreement(step: int, *tensors: str) -> health.Said:
    """What the run said of roots, or, with tensors, what the rows of all ranks show."""
    of_roots = agreement_findings.of_roots(step, None, {0: "a", 1: "b"}, [1])
    (said,) = health.said(uid(1), Health(findings=[of_roots.model_copy(update={"names": list(tensors)})]))
    return said


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ([disagreement(17)], [[]]),
        ([disagreement(17), disagreement(17, "w")], [["w"]]),
        ([disagreement(20), disagreement(17, "w")], [["w"]]),
        ([disagreement(5), disagreement(17, "w")], [[], ["w"]]),
    ],
    ids=["alone", "of one step", "of an earlier step", "of a later step"],
)
def test_replicas_that_differ_are_told_once_when_the_tensors_are_known(
    said: list[health.Said], left: list[list[str]], monkeypatch: Any
) -> None:
    """What the run said before it could name a tensor stands only while nothing names one at that step or before."""
    monkeypatch.setattr(health, "findings", lambda ledger: said)
    found: Any = health.gathered(SimpleNamespace(), [uid(1)])  # type: ignore[arg-type]
    assert sorted(g.first.payload.names for g in found) == left
