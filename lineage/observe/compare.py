"""Drift as the observer can see it: what was asked for, before and after."""

from __future__ import annotations

from .._rooms import schemas
from ..capture import plain, secrets
from ..judge import drift as drift_
from ..recorder import boundary
from ..recorder.writer import Writer


def at_boundary(
    w: Writer, before: drift_.Side, after: drift_.Side, from_step: int, parent: str | None
) -> schemas.Drift:
    """Compare the old side with what runs now, and write what differs and the verdict."""
    found = drift_.drift(before, after, from_step=from_step, parent=parent)
    found = found.model_copy(update={"changes": [_asked_only(c) for c in found.changes]})
    w.write(found, step=from_step)
    boundary.write_verdict(w)
    return found


def in_run(w: Writer, before: schemas.Config, after: schemas.Config, step: int) -> schemas.Drift | None:
    """A config was changed while the run went on: write which values differ, None where only keys were added."""
    kept = {k: v for k, v in after.values.items() if k in before.values}
    held = {k: v for k, v in before.values.items() if k in kept}
    found = drift_.drift(
        drift_.Side(config=before.model_copy(update={"values": held})),
        drift_.Side(config=after.model_copy(update={"values": kept})),
        from_step=step,
        moment="in_run",
    )
    changes = [*found.changes, *found.unclassified]
    if not changes:
        return None
    why = "only the request was seen: lineage.attach(run, optimizer=optimizer) shows the value in effect"
    found = found.model_copy(
        update={
            "changes": [_asked_only(c) for c in found.changes],
            "not_shown": {c.concept: why for c in found.changes},
        }
    )
    w.write(found, step=step)
    boundary.write_verdict(w)
    return found


def _asked_only(change: schemas.Change) -> schemas.Change:
    """Say of a change that only its request was seen."""
    if change.keys and change.effective_before is None and change.effective_after is None:
        return change.model_copy(update={"text": f"{change.text}; the value in effect is not shown"})
    return change


def refused(w: Writer, kind: str, values: dict[str, object], error: str) -> None:
    """The tracker kept an older value and refused the one that was asked for now."""
    held = {str(k): plain.scalar(str(k), v)[0] for k, v in values.items()}
    names = ", ".join(f"{k}={v.text()}" for k, v in list(held.items())[:6])
    text = f"{kind} refused {names}; its page goes on showing the first value ({secrets.mask(error)[0]})"
    w.write(schemas.TrackerNote(code="LIN-D008", tracker=kind, text=text[:1000], values=held))
