"""Edits of live objects between two updates, as they stand in a drift record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .._rooms import schemas
from ..capture.edits import Found
from ..judge.change import effective_change
from ..judge.drift import Declared
from .contain import log
from .writer import Writer

READ_FROM = "counters on the live objects"


@dataclass
class Told:
    """The parts of a drift record that edits make."""

    changes: list[schemas.Change] = field(default_factory=list)
    unclassified: list[schemas.Change] = field(default_factory=list)
    not_shown: dict[str, str] = field(default_factory=dict)


def told(found: Sequence[Found], declared: Sequence[Declared] = ()) -> Told:
    """Certain edits are changes. Of others nothing shows what they did, so that is not shown.

    Where a person declared an edit of the state, a write to it that was seen is that edit.
    """
    out = Told()
    by_hand = {d.mitigation.concept for d in declared} & {"weights", "state_edit"}
    for f in found:
        if f.certain or (f.concept == "weights" and by_hand):
            out.changes.append(_change(f, next(iter(by_hand), "state_edit") if not f.certain else f.concept))
            continue
        title = schemas.catalogue().concept(f.concept).title
        out.unclassified.append(
            schemas.Change(concept="unclassified", cls="unclassified", title=title, text=f.text)
        )
        out.not_shown |= dict.fromkeys(f.unseen, f.text)
    return out


def _change(f: Found, concept_id: str) -> schemas.Change:
    before, after = f.before or "as the last update left it", f.after or "written to"
    return effective_change(concept_id, f.text, before, after, READ_FROM)


def of_rank(w: Writer, found: Sequence[Found], step: int) -> None:
    """What only this rank sees of its own, such as its loader: it writes that itself. Not on rank 0."""
    changes = [_change(f, f.concept) for f in found]
    changes = [c.model_copy(update={"text": f"rank {w.world.rank}: {c.text}"}) for c in changes]
    w.write(
        schemas.Drift(
            moment="in_run",
            from_step=step,
            changes=changes,
            confounded=False,
            undeclared=[c.concept for c in changes],
        ),
        step=step,
    )
    log.warning("lineage: step %d: %s", step, "; ".join(c.text for c in changes))
