"""Evidence: what was there and is gone, and what was never recorded of a step that went bad."""

from __future__ import annotations

from collections.abc import Iterable

from .audited import Audited
from .rules import Told, rule

NEEDED = {
    "code": ("the code and its uncommitted changes", "start from a git checkout"),
    "environment": ("packages, drivers and devices", "lineage.attach(run, ...) on rank 0"),
    "config": ("the requested config", "lineage.attach(run, config=config)"),
    "effective": ("the values in effect", "lineage.attach(run, model=model, optimizer=optimizer)"),
}
"""Kind of record -> (what it is, the line that records it)."""


@rule(
    "LIN-U020",
    "checkpoint-vanished",
    "warning",
    "look for it in copies; `lineage checkpoint preserve` keeps those that are left out of the rotation's reach",
)
def checkpoint_vanished(a: Audited) -> Iterable[Told]:
    """A checkpoint that was complete, and that no record says was deleted, is not where it was."""
    good = {bad.last_good_checkpoint for bad in a.bads.values()}
    first = {bad.first_bad_checkpoint for bad in a.bads.values()}
    for uid, path in a.vanished:
        node = a.graph.nodes[uid]
        what = (
            "the last good checkpoint"
            if uid in good
            else "the first bad checkpoint"
            if uid in first
            else "a checkpoint"
        )
        yield Told(
            f"{what} (step {node.checkpoint.step:,}, {path}) is not there, and no record says that it was deleted",
            (node.record,),
            a.number(node.segment),
            node.checkpoint.step,
            severity="fault" if uid in good else None,
        )


@rule(
    "LIN-U021",
    "evidence-missing",
    "warning",
    "add what the lines name for the next segment; what is still there can be held: lineage incident preserve {run}",
)
def evidence_missing(a: Audited) -> Iterable[Told]:
    """Of a segment that broke, something is not on record that telling a cause would need."""
    for segment, bad in a.bads.items():
        if a.imported(segment) or bad.cell is None:
            continue
        missing = [f"{what} ({line})" for kind, (what, line) in NEEDED.items() if not a.of(kind, segment)]
        if bad.last_good_checkpoint is None:
            missing.append("a good checkpoint from before it (rec.checkpoint(path, step) at each save)")
        if not a.of("bundle", segment):
            missing.append(
                "the batch and state of the bad step (a bundle: `bundle_bytes` above 0, and an alarm)"
            )
        told = a.of("coverage", segment)
        missing += [
            f"{what} ({line})" for r in told[:1] for what, line in list(r.payload.missing.items())[:4]
        ]
        if missing:
            yield Told(
                f"of segment {a.number(segment)}, which broke at step {bad.cell.step:,}, is not on record: "
                f"{'; '.join(dict.fromkeys(missing))}",
                tuple(r.id for r in told[:1] or a.of("segment", segment)[:1]),
                a.number(segment),
                bad.cell.step,
            )


@rule(
    "LIN-U022",
    "evaluated-bad-state",
    "fault",
    "evaluate the last good checkpoint again, and take back what was published of this one",
)
def evaluated_bad_state(a: Audited) -> Iterable[Told]:
    """An evaluation of a checkpoint that is quarantined, or was saved at or after the first bad step of
    its segment."""
    for r in a.of("evaluation"):
        node = a.graph.nodes.get(r.payload.checkpoint)
        if node is None:
            continue
        marks = {m.mark for m in node.standing}
        bad = a.bads.get(node.segment)
        after = bad is not None and bad.cell is not None and node.checkpoint.step >= bad.cell.step
        if "quarantined" in marks or (after and "quarantine_lifted" not in marks):
            why = "is quarantined" if "quarantined" in marks else "was saved after the first bad step"
            yield Told(
                f"{r.payload.evaluator} evaluated the checkpoint of step {node.checkpoint.step:,}, which {why}",
                (r.id, node.record),
                a.number(node.segment),
                node.checkpoint.step,
            )


@rule(
    "LIN-U023",
    "went-on-broken",
    "warning",
    'stop at such an alarm: on_alarm="request_stop" sets rec.should_stop; gate=True leaves the weights '
    "as they were",
)
def went_on_broken(a: Audited) -> Iterable[Told]:
    """A segment went on for a hundred steps or more after a value that is not finite, and checkpoints were saved."""
    for segment, bad in a.bads.items():
        cell = bad.cell
        if cell is None or cell.abnormal != "non_finite" or a.imported(segment):
            continue
        last = a.graph.last_step.get(segment, 0)
        saved = [n for n in a.graph.nodes.values() if n.segment == segment and n.checkpoint.step >= cell.step]
        if last - cell.step >= LONG and saved:
            steps = ", ".join(f"{n.checkpoint.step:,}" for n in saved[:4])
            yield Told(
                f"segment {a.number(segment)} went on for {last - cell.step:,} steps after step {cell.step:,} "
                f"({cell.text}), and saved {len(saved)} checkpoints from then on (step {steps}"
                f"{', ...' if len(saved) > 4 else ''})",
                tuple(n.record for n in saved[:4]),
                a.number(segment),
                cell.step,
            )


LONG = 100
"""Steps for which a broken run may go on before that is a finding."""
