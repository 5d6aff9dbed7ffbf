"""For each rule of the audit a history in which it finds something, and the one next to it in which it must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import schemas
from lineage.judge.audit import Weakened
from tests.judge.builders import uid

from .build import BAD, Case, change, drift, first_bad, healthy

Made = Callable[[], Case]


def kept_first() -> Case:
    case = Case()
    case.keep()
    return case.restarted()


def at_once(*concepts: str) -> Case:
    return Case().restarted(2, *(change(c) for c in concepts))


def lower_rate(*, replayed: bool = False, after: float = 0.5) -> Case:
    case = Case()
    if replayed:
        case.replay("fp32")
    return case.restarted(2, change("learning_rate", 1.0, after))


def ranks(own: set[int]) -> Case:
    case = healthy()
    for r in range(2):
        info = case.history.records[0].payload.model_copy(update={"world_size": 2})
        case.add(info, rank=r)
    case.extra["signals"] = {
        uid(1): {r: frozenset({"loss"} if r in own else {"grad_norm"}) for r in range(2)}
    }
    return case


def skipped(concept: str, *, shown: bool = False) -> Case:
    """Two segments broke, and each was answered by a change of one concept."""
    case = Case()
    case.restarted(2, change(concept, "none", "14-15"))
    case.bads[uid(2)] = first_bad(2)
    if shown:
        case.replay("without-sample")
    case.history.segment(3, parent=50, at=10)
    case.history.drift(3, drift(change(concept, "none", "14-16")))
    return case


def horizon(position: Any) -> schemas.Trajectory:
    at = schemas.Horizon(signal="loss", steps=10, at_step=20, window=3, position=position, text="as told")
    return schemas.Trajectory(
        incident=uid(70), segment=uid(2), before=[uid(1)], from_step=10, reached=20, horizons=[at]
    )


def recovered(position: Any = None) -> Case:
    case = Case()
    case.incident()
    case.keep()
    case.restarted()
    if position:
        case.add(horizon(position))
    case.incident("recovered", reached="recovered")
    return case


def mitigation(in_effect: Any = None, **over: Any) -> Case:
    case = healthy()
    m = schemas.Mitigation(
        uid=uid(60), concept="grad_clip", after=schemas.Scalar.of(0.5), why="spikes", **over
    )
    case.add(m)
    if in_effect:
        case.add(schemas.MitigationEffect(mitigation=uid(60), in_effect=in_effect, text="the live value"))
    return case


def said_step(step: int) -> Case:
    case = Case()
    case.incident(opened_by="person", first_bad_step=step)
    return case


def said_before(value: float) -> Case:
    case = mitigation("yes", before=schemas.Scalar.of(value))
    case.history.segment(2, parent=50, at=10)
    case.history.drift(2, drift(change("grad_clip", 1.0, 0.5, mitigation=uid(60))))
    return case


def logbook(person: float) -> Case:
    case = healthy()
    for n, (authority, value) in enumerate((("machine", 0.5), ("person", person))):
        entry = schemas.Reported(
            uid=uid(61 + n),
            order=n,
            step=12,
            concept="grad_clip",
            before=schemas.Scalar.of(1.0),
            after=schemas.Scalar.of(value),
            source=schemas.Source(name=f"{authority}.md", authority=authority),
        )
        case.add(entry)
    return case


def weakened(*cells: Weakened) -> Case:
    case = healthy()
    case.extra["weakened"] = cells
    return case


def verdicts(then: Any, now: Any) -> Case:
    case = healthy()

    def verdict(status: Any) -> schemas.Verdict:
        claim = schemas.ClaimVerdict(claim="loss_curve", status=status, reason="as told")
        return schemas.Verdict(
            subject="run:r", status=status, claims=[claim], path=[uid(1)], policy="sha256:" + "2" * 64
        )

    case.add(verdict(then))
    case.extra |= {"today": verdict(now), "policy": "sha256:" + "2" * 64}
    return case


def gone(*paths: str) -> Case:
    case = healthy()
    case.extra["vanished"] = [(uid(50), p) for p in paths]
    return case


def bare(*, whole: bool) -> Case:
    """A segment that broke, with everything on record, or with the first of it missing."""
    case = Case()
    case.add(schemas.Config(source="dict", values={}, digest="sha256:" + "3" * 64))
    bundle = schemas.Bundle(
        root="sha256:" + "1" * 64, location="evidence/b", first_bad_step=BAD, files=1, bytes=1, limit=10
    )
    if whole:
        case.add(bundle)
    return case


def evaluated(step: int) -> Case:
    case = Case()
    case.history.checkpoint(51, 1, step)
    case.add(schemas.Evaluation(checkpoint=uid(51), evaluator="e", evaluator_version="1", results={"x": 1.0}))
    return case


def went_on(last: int) -> Case:
    case = Case()
    case.history.checkpoint(51, 1, BAD + 1)
    case.add(schemas.SegmentEnd(last_step=last), step=last)
    return case


def opened(**over: Any) -> Case:
    case = Case()
    case.incident(**over)
    return case


def closed(note: str | None) -> Case:
    case = Case()
    case.incident()
    case.incident("closed", reached="closed", note=note)
    return case


def rewound(*, told: bool) -> Case:
    case = healthy()
    if told:
        case.incident()
    case.history.segment(2, parent=50, at=10, start="rewind")
    return case


def damage(*places: str) -> Case:
    case = healthy()
    case.extra["damage"] = places
    return case


def anchored(*anchors: str, sealed: int = 1) -> Case:
    case = healthy()
    case.extra |= {"anchors": anchors, "sealed": sealed}
    return case


def failed(*parts: str) -> Case:
    case = healthy()
    for part in parts:
        case.add(schemas.Degraded(code="LIN-L001", part=part, error="OSError", consequence="nothing is read"))
    return case


def silent(*there: int) -> Case:
    case = healthy()
    for r in there:
        case.add(case.history.records[0].payload.model_copy(update={"world_size": 3}), rank=r)
    return case


def unseen(*what: str) -> Case:
    case = healthy()
    case.add(schemas.Coverage(gaps=list(what)))
    return case


def killed(*, ended: bool) -> Case:
    case = healthy()
    if not ended:
        case.history.records = [r for r in case.history.records if r.kind != "segment_end"]
    return case.restarted()


CELL = Weakened("learning_rate", "loss_curve", "caveat", "broken", "ana", "we always do", "site.toml")
CASES: dict[str, tuple[Made, Made]] = {
    "LIN-U001": (lambda: Case().restarted(), kept_first),
    "LIN-U002": (lambda: at_once("learning_rate", "grad_clip"), lambda: at_once("grad_clip")),
    "LIN-U003": (lower_rate, lambda: lower_rate(replayed=True)),
    "LIN-U004": (lambda: ranks({0}), lambda: ranks({0, 1})),
    "LIN-U005": (
        lambda: Case().restarted(2, change("grad_clip"), undeclared=["grad_clip"]),
        lambda: Case().restarted(2, change("grad_clip")),
    ),
    "LIN-U006": (lambda: skipped("batch_skip"), lambda: skipped("batch_skip", shown=True)),
    "LIN-U007": (recovered, lambda: recovered("inside")),
    "LIN-U010": (lambda: mitigation("no"), lambda: mitigation("yes")),
    "LIN-U011": (lambda: said_step(BAD + 3), lambda: said_step(BAD)),
    "LIN-U012": (lambda: weakened(CELL), weakened),
    "LIN-U013": (lambda: verdicts("holds", "broken"), lambda: verdicts("not_shown", "broken")),
    "LIN-U020": (lambda: gone("/ck/10"), gone),
    "LIN-U021": (lambda: bare(whole=False), lambda: bare(whole=True)),
    "LIN-U022": (lambda: evaluated(BAD + 1), lambda: evaluated(BAD - 1)),
    "LIN-U023": (lambda: went_on(BAD + 150), lambda: went_on(BAD + 20)),
    "LIN-U030": (Case, opened),
    "LIN-U031": (lambda: opened(owner=None), opened),
    "LIN-U032": (lambda: closed(None), lambda: closed("the cause is not known")),
    "LIN-U033": (lambda: rewound(told=False), lambda: rewound(told=True)),
    "LIN-U040": (lambda: damage("a.jsonl line 3: chain broken"), damage),
    "LIN-U041": (anchored, lambda: anchored("mlflow: tag")),
    "LIN-U042": (lambda: failed("probes"), failed),
    "LIN-U043": (lambda: silent(0, 2), lambda: silent(0, 1, 2)),
    "LIN-U044": (lambda: unseen("attached after the first forward"), unseen),
    "LIN-U045": (lambda: killed(ended=False), lambda: killed(ended=True)),
}
"""code -> (a history in which the rule finds something, one next to it in which it must not)."""
