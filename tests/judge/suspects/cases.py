"""For each rule one incident at which it says something, and the incident next to it at which it must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import schemas
from lineage.judge.loss_continued import Continued, Same
from lineage.judge.suspects import Known, OneElement, SameBatch

from .build import (
    STEP,
    batch,
    batches,
    boundary,
    cell,
    change,
    differs,
    finding,
    known,
    near,
    outcome,
    parted,
    row,
)

NAN: dict[str, Any] = {"abnormal": "non_finite", "value": float("nan")}
RESUMED: dict[str, Any] = {"start": "resume", "parent_step": 50, "restores": ("restore-1",)}
RANKS: dict[str, Any] = {"world": 3}
FLIPPED = OneElement("w", "weight", 2, 0, STEP, 7, 16)
SAMPLE = schemas.BadSample(
    micro=0, place=3, loss=50.0, text="sample 3: loss is 50, the median of the batch is 2"
)
Case = tuple[Callable[[], Known], Callable[[], Known]]


def broken_output(kind: str = "activation", **over: Any) -> list[Any]:
    """Outputs of three blocks, the second of which is not finite, and weights that were finite."""
    return [
        row(50, "weight", "a.weight"),
        row(STEP, kind, "a", order=0),
        row(STEP, kind, "b", order=1, **{"n_nan": 4, **over}),
        row(STEP, kind, "c", order=2, n_nan=100),
    ]


def grown(factor: float) -> list[Any]:
    """An output whose norm grew by so much over forty steps."""
    steps = range(STEP - 40, STEP)
    return [row(s, "activation", "b", norm=1 + (factor - 1) * i / 39) for i, s in enumerate(steps)]


def copies(compared: Any, **over: Any) -> Known:
    """Three ranks whose copies parted."""
    return known(differs(), compared=compared, **{**RANKS, "looked_at_elements": True, **over})


def norms(*values: float) -> dict[str, Any]:
    """The reduced norm of each rank at the steps after copies agreed; they part in the third."""
    return {"grad_norm": {r: {57: 1.0, 58: 1.0, 59: v, 60: 1.0} for r, v in enumerate(values)}}


CASES: dict[str, Case] = {
    "data/ids-out-of-range": (
        lambda: known(batches=batches(batch(STEP, out_of_range=5, highest=999), out_of_range=0)),
        lambda: known(batches=batches(batch(STEP, out_of_range=5), out_of_range=5)),  # as it always was
    ),
    "data/read-again": (
        lambda: known(findings=[finding("LIN-B002", severity="warning")]),
        lambda: known(findings=[finding("LIN-B002", severity="note")]),
    ),
    "data/position-not-restored": (
        lambda: known(**RESUMED, outcomes=[outcome("loader_position", "differs")]),
        lambda: known(**RESUMED, outcomes=[outcome("loader_position", "restored")]),
    ),
    "data/same-batch-bad": (
        lambda: known(same=[SameBatch(1, 0, 20, 8.0, True)]),
        lambda: known(same=[SameBatch(2, 0, STEP, 8.0, True)]),  # the same state too
    ),
    "data/mixture": (
        lambda: known(boundaries=[boundary(change("data_mix", asked=True))]),
        lambda: known(boundaries=[boundary(change("data_mix", asked=True), step=STEP - 500)]),
    ),
    "data/one-sample": (lambda: known(samples=[SAMPLE]), known),
    "data/odd-batch": (
        lambda: known(batches=batches(batch(STEP, padding=400.0), padding=10.0)),
        lambda: known(batches=batches(batch(STEP, padding=14.0), padding=10.0)),
    ),
    "data/one-rank": (
        lambda: known(**RANKS, symptoms=["one_rank"]),
        lambda: known(differs(), **RANKS, symptoms=["one_rank"]),  # a batch parts no copies
    ),
    "data/same-batch-healthy": (
        lambda: known(same=[SameBatch(1, 0, STEP, 2.0, False)]),
        lambda: known(same=[SameBatch(1, 0, STEP, None, None)]),
    ),
    "data/replicas-differ": (lambda: copies(parted("weight")), lambda: known(**RANKS)),
    "data/state-first": (
        lambda: known(rows=[row(STEP, "moment2", "w", lowest=-1.0)]),
        lambda: known(rows=[row(STEP, "moment2", "w", lowest=0.0)]),
    ),
    "data/usual-batch": (
        lambda: known(
            batches=batches(batch(STEP, padding=11.0, out_of_range=0), padding=10.0, out_of_range=0)
        ),
        lambda: known(batches=[batch(STEP, padding=11.0)]),  # nothing to hold it against
    ),
    "numerics/overflow": (
        lambda: known(
            cell(signal="activation", tensor="b", **NAN),
            rows=broken_output(n_nan=0, infinite=4, dtype="float16", largest=60000.0),
        ),
        lambda: known(cell(signal="activation", tensor="b", **NAN), rows=broken_output()),
    ),
    "numerics/made-there": (
        lambda: known(cell(signal="activation", tensor="b", **NAN), rows=broken_output()),
        lambda: known(
            cell(signal="activation", tensor="a", **NAN), rows=[row(STEP, "activation", "a", n_nan=1)]
        ),
    ),
    "numerics/backward": (
        lambda: known(cell(signal="gradient", tensor="w", **NAN), signals={"loss": {0: {STEP: 2.0}}}),
        lambda: known(
            cell(signal="gradient", tensor="w", **NAN), signals={"loss": {0: {STEP: float("nan")}}}
        ),
    ),
    "numerics/loss-scale": (
        lambda: known(signals={"loss_scale": {0: {30: 65536.0, 59: 1024.0}}}),
        lambda: known(signals={"loss_scale": {0: {30: 65536.0, 59: 32768.0}}}),
    ),
    "numerics/precision-changed": (
        lambda: known(boundaries=[boundary(change("precision"))]),
        lambda: known(boundaries=[boundary(change("learning_rate"))]),
    ),
    "numerics/growth": (
        lambda: known(cell(signal="activation", tensor="b", **NAN), rows=grown(10.0)),
        lambda: known(cell(signal="activation", tensor="b", **NAN), rows=grown(1.5)),
    ),
    "numerics/made-by-updates": (
        lambda: known(
            cell(signal="loss", **NAN), signals={"weight_norm": {0: {59: 1.0}}, "update_norm": {0: {59: 0.2}}}
        ),
        lambda: known(
            cell(signal="loss", **NAN),
            signals={"weight_norm": {0: {59: 1.0}}, "update_norm": {0: {59: 0.02}}},
        ),
    ),
    "numerics/nothing-non-finite": (
        known,
        lambda: known(cells=[cell(signal="gradient", **NAN)]),
    ),
    "numerics/far-from-the-limit": (
        lambda: known(cell(signal="activation", tensor="b", **NAN), rows=broken_output()),
        lambda: known(cell(signal="activation", tensor="b", **NAN), rows=broken_output(largest=1e38)),
    ),
    "numerics/replicas-differ": (lambda: copies(parted("weight")), known),
    "optimizer/state-not-restored": (
        lambda: known(**RESUMED, outcomes=[outcome("optimizer_state", "absent")]),
        lambda: known(**RESUMED, outcomes=[outcome("optimizer_state", "not_recorded")]),
    ),
    "optimizer/impossible-moment": (
        lambda: known(
            rows=[row(50, "moment2", "w", norm=1.0), row(STEP, "moment2", "w", norm=0.5)],
            signals={"beta2 of group 0": {0: {1: 0.99}}},
        ),
        lambda: known(  # 0.99 ** 10 is 0.904
            rows=[row(50, "moment2", "w", norm=1.0), row(STEP, "moment2", "w", norm=0.91)],
            signals={"beta2 of group 0": {0: {1: 0.99}}},
        ),
    ),
    "optimizer/moment-first": (
        lambda: known(
            cell(signal="moment1", tensor="w", last_good=50, **NAN),
            rows=[row(s, "gradient", "w") for s in (55, STEP)],
        ),
        lambda: known(
            cell(signal="moment1", tensor="w", last_good=50, **NAN), rows=[row(55, "gradient", "w", n_nan=1)]
        ),
    ),
    "optimizer/edited": (
        lambda: known(boundaries=[boundary(change("optimizer_state"), moment="in_run")]),
        lambda: known(boundaries=[boundary(change("optimizer_state"))]),  # a resume's is told by its digests
    ),
    "optimizer/counters": (
        lambda: known(findings=[finding("LIN-C021")]),
        lambda: known(findings=[finding("LIN-C011")]),
    ),
    "optimizer/rate-unasked": (
        lambda: known(boundaries=[boundary(change("learning_rate"), moment="in_run")]),
        lambda: known(boundaries=[boundary(change("learning_rate", asked=True))]),
    ),
    "optimizer/update-first": (
        lambda: known(signals=updates(5.0)),
        lambda: known(signals=updates(1.5)),
    ),
    "optimizer/always-clipped": (
        lambda: known(findings=[finding("LIN-P008", severity="warning")]),
        lambda: known(findings=[finding("LIN-P008", step=STEP + 1, severity="warning")]),
    ),
    "optimizer/state-restored": (
        lambda: known(**RESUMED, outcomes=[outcome("optimizer_state", "restored")]),
        lambda: known(
            **RESUMED, outcomes=[outcome("optimizer_state", "restored"), outcome("lr_scheduler", "differs")]
        ),
    ),
    "optimizer/as-asked": (
        lambda: known(boundaries=[boundary(change("learning_rate", asked=True))]),
        lambda: known(boundaries=[boundary(change("learning_rate"))]),
    ),
    "optimizer/same-on-all": (
        lambda: copies(parted("weight")),
        lambda: copies(parted("weight", "moment1", "moment2")),
    ),
    "optimizer/no-restart": (lambda: known(compared_configs=True), lambda: known(compared_configs=False)),
    "distributed/gradients-not-same": (
        lambda: copies(parted("weight", "moment1", "moment2"), signals=norms(1.0, 1.0, 1.5)),
        lambda: copies(parted("weight", "moment1", "moment2"), signals=norms(1.0, 1.0, 1.0)),
    ),
    "distributed/whole-tensor": (
        lambda: copies(parted("weight")),
        lambda: copies(parted("weight"), elements=[FLIPPED]),
    ),
    "distributed/no-majority": (
        lambda: copies(parted("weight", classes=((0,), (1,), (2,)))),
        lambda: copies(parted("weight")),
    ),
    "distributed/starts": (
        lambda: known(**RANKS, findings=[finding("LIN-R005", step=None)]),
        lambda: known(**RANKS, findings=[finding("LIN-R004", step=None)]),
    ),
    "distributed/made-by-the-reduction": (
        lambda: known(
            cell(signal="grad_norm", **NAN),
            **RANKS,
            signals={"grad_norm_local": {r: {STEP: 1.0} for r in range(3)}},
        ),
        lambda: known(
            cell(signal="grad_norm", **NAN),
            **RANKS,
            signals={"grad_norm_local": {r: {STEP: 1.0} for r in range(2)}},
        ),
    ),
    "distributed/topology-changed": (
        lambda: known(boundaries=[boundary(change("world_size", cls="B"))]),
        lambda: known(boundaries=[boundary(change("save_policy", cls="H"))]),
    ),
    "distributed/links": (
        lambda: known(events=[near("network")]),
        lambda: known(events=[near("network", seconds=30.0)]),  # it came after
    ),
    "distributed/settings-differ": (
        lambda: known(**RANKS, findings=[finding("LIN-R003", severity="warning")]),
        lambda: known(**RANKS, findings=[finding("LIN-R003", step=STEP + 1, severity="warning")]),
    ),
    "distributed/replicas-agree": (
        lambda: known(**RANKS, compared=agreed()),
        lambda: copies(parted("weight")),
    ),
    "distributed/one-rank-only": (known, lambda: known(**RANKS)),
    "distributed/before-the-reduction": (
        lambda: known(cell(signal="loss"), **RANKS),
        lambda: known(cell(signal="grad_norm"), **RANKS),
    ),
    "distributed/one-element": (
        lambda: copies(parted("weight"), elements=[FLIPPED]),
        lambda: copies(parted("weight")),
    ),
    "distributed/reduced-alike": (
        lambda: copies(parted("weight", "moment1", "moment2"), signals=norms(1.0, 1.0, 1.0)),
        lambda: copies(
            parted("weight", "moment1", "moment2"), signals=norms(1.0, 1.0)
        ),  # of one it is not known
    ),
    "hardware/one-element": (
        lambda: copies(parted("weight"), elements=[FLIPPED]),
        lambda: copies(parted("weight")),
    ),
    "hardware/odd-rank-other-software": (
        lambda: copies(parted("weight"), **kernels("fused", rank=2)),
        lambda: copies(parted("weight"), **kernels("fused", rank=1)),  # not the odd one
    ),
    "hardware/other-forward": (
        lambda: known(
            **RESUMED,
            outcomes=[outcome("weights", "restored")],
            losses=Continued([Same(51, 2.0, 2.01)], 0.01),
            boundaries=[boundary(change("software", cls="C"), step=51)],
        ),
        lambda: known(
            **RESUMED,
            outcomes=[outcome("weights", "restored")],
            losses=Continued([Same(51, 2.0, 2.0)], 0.01),
            boundaries=[boundary(change("software", cls="C"), step=51)],
        ),
    ),
    "hardware/events": (
        lambda: known(events=[near("xid")]),
        lambda: known(events=[near("xid", severity="note")]),
    ),
    "hardware/software-changed": (
        lambda: known(boundaries=[boundary(change("software", cls="C"))]),
        lambda: known(boundaries=[boundary(change("software", cls="C"), step=STEP + 1)]),
    ),
    "hardware/same-device-again": (lambda: known(devices=[1]), known),
    "hardware/one-rank": (
        lambda: known(**RANKS, symptoms=["one_rank"]),
        lambda: known(**RANKS, symptoms=["global"]),
    ),
    "hardware/single-value": (
        lambda: known(cell(signal="gradient", tensor="w", **NAN), rows=[row(STEP, "gradient", "w", n_nan=1)]),
        lambda: known(cell(signal="gradient", tensor="w", **NAN), rows=[row(STEP, "gradient", "w", n_nan=2)]),
    ),
    "hardware/all-ranks-at-once": (
        lambda: known(**RANKS, ties=[cell(rank=1), cell(rank=2)]),
        lambda: known(**RANKS, ties=[cell(rank=1)]),
    ),
    "hardware/it-repeats": (
        lambda: known(same=[SameBatch(2, 0, STEP, 8.0, True)]),
        lambda: known(same=[SameBatch(2, 0, STEP, 2.0, False)]),
    ),
    "hardware/whole-tensor": (
        lambda: copies(parted("weight")),
        lambda: copies(parted("weight"), looked_at_elements=False),
    ),
    "hardware/nothing-happened": (
        lambda: known(watched="8 GPUs"),
        lambda: known(watched="8 GPUs", events=[near("xid")]),
    ),
    "hardware/same-software": (
        lambda: known(compared_configs=True),
        lambda: known(compared_configs=True, boundaries=[boundary(change("software", cls="C"))]),
    ),
    "code/config-changed": (
        lambda: known(boundaries=[boundary(change("learning_rate", asked=True))]),
        lambda: known(boundaries=[boundary(change("learning_rate", asked=True), step=STEP - 101)]),
    ),
    "code/code-changed": (
        lambda: known(boundaries=[boundary(change("code"))]),
        lambda: known(boundaries=[boundary(change("code"), step=STEP + 1)]),
    ),
    "code/edited": (
        lambda: known(boundaries=[boundary(change("weights"), moment="in_run")]),
        lambda: known(boundaries=[boundary(change("weights"))]),
    ),
    "code/unclassified-changed": (
        lambda: known(boundaries=[boundary(unclassified=[change("my_key", cls="unclassified")])]),
        lambda: known(boundaries=[boundary()]),
    ),
    "code/clip-would-have-cut": (
        lambda: known(
            boundaries=[boundary(change("grad_clip", asked=True))], signals={"grad_norm": {0: {58: 5.0}}}
        ),
        lambda: known(
            boundaries=[boundary(change("grad_clip", asked=True))], signals={"grad_norm": {0: {58: 0.5}}}
        ),
    ),
    "code/nothing-changed": (
        lambda: known(compared_configs=True),
        lambda: known(compared_configs=True, boundaries=[boundary(change("dropout", asked=True))]),
    ),
    "code/replicas-differ": (
        lambda: copies(parted("weight")),
        lambda: copies(parted("weight"), findings=[finding("LIN-R003", severity="warning")]),
    ),
}
"""rule -> (an incident at which it speaks, one next to it at which it is silent)."""


def updates(factor: float) -> dict[str, Any]:
    """Six updates of one size for their rate, and one that is so many times as large."""
    sizes = dict.fromkeys(range(10, 51, 10), 0.1) | {STEP: 0.1 * factor}
    return {"lr": {0: dict.fromkeys(sizes, 0.1)}, "update_norm": {0: sizes}}


def agreed() -> Any:
    """Copies that agreed whenever they were compared."""
    found = parted("weight")
    found.found = []
    return found


def kernels(value: str, rank: int) -> dict[str, Any]:
    """Three ranks, one of which runs other kernels."""
    held = {r: {"fused_kernels": value if r == rank else "plain"} for r in range(3)}
    return {"held": held, "held_by": {r: f"effective-{r}" for r in range(3)}}
