"""The ledger as a tracker may show it: without the words of exceptions."""

from __future__ import annotations

import copy
from dataclasses import replace

from .._rooms import schemas, trackers
from ..ledger.reader import Ledger

_KINDS = ("segment_end", "degraded")
"""Records whose `error` holds the class and the message of an exception."""
NOT_SHARED = "(its words stay in the ledger)"


def without_messages(ledger: Ledger) -> Ledger:
    """Return the same ledger, each exception reduced to its class. What persons wrote to be read stays."""
    quiet = copy.copy(ledger)
    quiet.records = [_quiet(r) for r in ledger.records]
    return quiet


def _quiet(record: schemas.Record) -> schemas.Record:
    if record.kind == "event":
        return _event(record)
    error = getattr(record.payload, "error", None)
    if record.kind not in _KINDS or not error:
        return record
    words = trackers.text.without_message(error)
    return replace(record, payload=record.payload.model_copy(update={"error": words}))


def _event(record: schemas.Record) -> schemas.Record:
    """An event without the words of its source, which may quote anything that a machine wrote down."""
    quiet = {"text": NOT_SHARED, "values": {}, "problems": []}
    return replace(record, payload=record.payload.model_copy(update=quiet))
