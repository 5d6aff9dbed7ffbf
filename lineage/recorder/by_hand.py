"""What a person writes down from the training process: incidents, evaluations."""

from __future__ import annotations

import uuid

from uuid6 import uuid7

from .._rooms import schemas
from ..judge.incident_life import lives
from ..ledger.reader import Ledger
from .contain import log
from .mitigations import concept_of, text
from .writer import Writer


def open_incident(
    w: Writer, message: str, owner: str | None, concept: str | None, step: int | None, rank: int | None
) -> str:
    """Write the incident, durable at once, and seal the ledger as it stood then. Returns its uid."""
    incident = schemas.Incident(
        uid=str(uuid7()),
        title=text(message) or "",
        opened_by="person",
        owner=text(owner),
        concept=None if concept is None else concept_of(concept, "it stands there as it was written"),
        first_bad_step=step,
        first_bad_rank=rank,
    )
    w.write(incident)
    log.warning("lineage: incident %s is open: %s", incident.uid, incident.title)
    w.tasks.put(lambda: w.seal("incident"))
    return incident.uid


def evaluation(
    w: Writer,
    checkpoint: str,
    results: dict[str, float],
    evaluator: str,
    evaluator_version: str,
    data: str | None,
) -> None:
    """Write an evaluation. Raises `ValueError` where the checkpoint is named by anything but its uid."""
    try:
        uuid.UUID(str(checkpoint))
    except ValueError:
        raise ValueError(
            f"evaluation() takes the uid that rec.checkpoint() returned (lineage.json beside the checkpoint has it); "
            f"not {str(checkpoint)[:200]!r}"
        ) from None
    found = schemas.Evaluation(
        checkpoint=checkpoint,
        evaluator=evaluator,
        evaluator_version=evaluator_version,
        data=data,
        results=results,
    )
    w.write(found)


def close_incident(w: Writer, uid: str, why: str, owner: str | None) -> None:
    """Write the incident's last record. One that this ledger does not know is said and left alone."""
    known = [life for life in lives(Ledger(w.ledger).records) if life.uid == uid]
    if not known:
        log.warning(
            "lineage: no incident %s is on record in %s, so none was closed", text(str(uid)), w.ledger
        )
        return
    closed = known[0].adds("closed", note=text(why), owner=text(owner))
    w.write(closed, caused_by=known[0].records[-1:])
    w.tasks.put(lambda: w.seal("incident"))
