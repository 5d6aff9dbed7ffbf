"""Incidents that a person opens and closes from the training process."""

from __future__ import annotations

from uuid6 import uuid7

from .._rooms import schemas
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


def close_incident(w: Writer, uid: str, why: str, owner: str | None) -> None:
    """Write the incident's last record. One that this ledger does not know is said and left alone."""
    known = [r for r in Ledger(w.ledger).of("incident") if r.payload.uid == uid]
    if not known:
        log.warning(
            "lineage: no incident %s is on record in %s, so none was closed", text(str(uid)), w.ledger
        )
        return
    latest: schemas.Incident = known[-1].payload
    closed = latest.model_copy(
        update={"status": "closed", "note": text(why), "owner": text(owner) or latest.owner}
    )
    w.write(closed, caused_by=[known[-1].id])
    w.tasks.put(lambda: w.seal("incident"))
