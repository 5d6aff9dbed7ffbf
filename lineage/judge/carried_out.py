"""Whether a resume did what was decided: changes that were decided and not made, and made and not decided."""

from __future__ import annotations

from collections.abc import Sequence

from .._rooms import schemas
from .values import same


def carried_out(
    records: Sequence[schemas.Record], decision: schemas.Recovery, segment: str, *, silent: bool = True
) -> list[str]:
    """What of a decision the segment that resumed does otherwise, in words; empty where nothing shows any.

    `silent`: name what was decided and made, and not declared in the training code, too.
    """
    mine = [r for r in records if r.segment == segment]
    declared = {r.payload.concept for r in mine if r.kind == "mitigation"}
    changed = {
        c.concept: c
        for r in mine
        if r.kind == "drift" and r.payload.moment == "resume"
        for c in r.payload.changes
    }
    compared = any(r.kind == "drift" and r.payload.moment == "resume" for r in mine)
    out = []
    for m in decision.mitigations:
        title = schemas.catalogue().concept(m.concept).title
        after = "" if m.after is None else f" ({m.after.text()})"
        change = changed.get(m.concept)
        if change is None:
            if compared:
                out.append(f"decided and not in effect there: {title}{after}")
        elif (
            m.after is not None
            and change.effective_after is not None
            and not same(change.effective_after, m.after)
        ):
            out.append(f"decided as{after}, and in effect as {change.effective_after.text()}: {title}")
        if silent and change is not None and m.concept not in declared:
            out.append(f"made without rec.mitigate(...): {title}")
    decided = {m.concept for m in decision.mitigations}
    also = [c.title for name, c in changed.items() if name not in decided and c.cls in ("R", "C")]
    if also:
        out.append(f"changed there and not decided: {', '.join(also)}")
    return out
