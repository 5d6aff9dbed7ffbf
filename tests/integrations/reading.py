"""What the product says of a loop: each resume from the ledger, and the text that its commands print."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import schemas
from lineage.ledger import resumes
from lineage.ledger.reader import Ledger
from tests.warm import Warm


def only(folder: Path) -> Ledger:
    """The one ledger below a folder's `runs`."""
    (found,) = (p.parent for p in (folder / "runs").glob("*/journal"))
    return Ledger(found)


def newest(folder: Path, kind: str) -> Any:
    """The payload of the newest segment's last record of a kind."""
    ledger = only(folder)
    return ledger.of(kind, ledger.segments[-1].uid)[-1].payload


def resumed(folder: Path) -> resumes.Resumed:
    """What the newest segment restored."""
    ledger = only(folder)
    found = resumes.look(ledger, ledger.segments[-1])
    assert found is not None
    return found


def named(folder: Path) -> dict[str, str]:
    """Component -> its text, for what the newest resume did not restore, on whatever rank."""
    return {o.component: o.text for o in resumed(folder).outcomes if o.status in ("differs", "absent")}


def changes(folder: Path) -> dict[str, schemas.Change]:
    """Concept -> the change that the newest resume made."""
    return {c.concept: c for c in newest(folder, "drift").changes}


def claims(folder: Path) -> dict[str, str]:
    """Claim -> what the newest verdict says of it."""
    return {c.claim: c.status for c in newest(folder, "verdict").claims}


def warnings(folder: Path) -> list[str]:
    """What checks of the whole run found that is more than a note."""
    return [r.payload.text for r in only(folder).of("finding") if r.payload.severity != "note"]


def printed(warm: Warm, folder: Path, command: str, *more: str) -> str:
    """What a command prints of the run, on a wide terminal, whatever it exits with."""
    run = only(folder).path
    done = warm.run(
        ["-c", "from lineage.cli import main; main()", command, str(run), *more],
        cwd=folder,
        env={**os.environ, "LINEAGE_DIR": str(run.parent), "COLUMNS": "400"},
    )
    assert done.returncode in (0, 1, 4), (done.returncode, done.stdout[-1500:], done.stderr[-1500:])
    return done.stdout
