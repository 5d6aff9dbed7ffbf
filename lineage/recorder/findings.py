"""How a finding goes to the ledger and to the log."""

from __future__ import annotations

from collections.abc import Sequence

from .._rooms import schemas
from .contain import log
from .writer import Writer


def say(w: Writer, finding: schemas.Finding, step: int | None, caused_by: Sequence[str] = ()) -> None:
    """Write a finding down, and log it where it is more than a note."""
    w.write(finding, step=step, caused_by=caused_by)
    if finding.severity != "note":
        names = f" ({', '.join(finding.names[:3])})" if finding.names else ""
        log.warning("lineage: %s: %s: %s%s", finding.code, finding.subject, finding.text, names)
