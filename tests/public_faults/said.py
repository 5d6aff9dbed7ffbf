"""What the product says of a run: the records it wrote, and the text that its commands print."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import schemas
from lineage.ledger import health
from lineage.ledger.reader import Ledger
from tests.warm import Warm

Prints = Callable[..., str]


def newest(ledger: Ledger, kind: str) -> Any:
    """The payload of the newest segment's last record of a kind."""
    return ledger.of(kind, ledger.segments[-1].uid)[-1].payload


def components(ledger: Ledger) -> dict[str, schemas.ComponentRestore]:
    """What the newest resume says of each component, on rank 0; what all ranks show together counts last."""
    records = [r.payload for r in ledger.of("restore", ledger.segments[-1].uid) if r.rank == 0]
    return {c.component: c for restore in records for c in restore.components}


def component(ledger: Ledger, name: str) -> schemas.ComponentRestore:
    """What the newest resume says of one component."""
    return components(ledger)[name]


def changes(ledger: Ledger) -> dict[str, schemas.Change]:
    """Concept -> the change that the newest resume found."""
    return {c.concept: c for c in newest(ledger, "drift").changes}


def findings(ledger: Ledger, code: str | None = None) -> list[schemas.Finding]:
    """What checks find in the newest segment, notes left out where no code is asked for; each once."""
    found = [s.payload for s in health.findings(ledger) if s.segment == ledger.segments[-1].uid]
    wanted = [f for f in found if f.code == code or (code is None and f.severity != "note")]
    return list({(f.code, f.subject, f.text): f for f in wanted}.values())


def number(finding: schemas.Finding, name: str) -> float:
    """One of the numbers that a finding rests on."""
    value = finding.values[name].plain()
    assert isinstance(value, int | float)
    return float(value)


def nothing_is_named(ledger: Ledger, prints: Prints) -> None:
    """A healthy resume: all that was recorded is restored, nothing changed, no check has found anything."""
    assert {c.status for c in components(ledger).values()} == {"restored"}
    assert changes(ledger) == {}
    assert [f.text for f in findings(ledger)] == []
    assert "what was recorded is restored" in prints("resume", ledger)
    text = prints("show", ledger)
    assert f"segment {ledger.segments[-1].number}: nothing differs from the state at the save" in text
    assert "LIN-" not in text


def printed(warm: Warm, command: str, run: Path, *more: str) -> str:
    """What a command prints, on a wide terminal, whatever it exits with."""
    done = warm.run(
        ["-c", "from lineage.cli import main; main()", command, str(run), *more],
        cwd=run.parent,
        env={**os.environ, "LINEAGE_DIR": str(run.parent), "COLUMNS": "600"},
    )
    assert done.returncode in (0, 1, 4), (done.returncode, done.stdout[-1500:], done.stderr[-1500:])
    return done.stdout
