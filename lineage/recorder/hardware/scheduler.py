"""The nodes that Slurm gave to this job, from its environment, else from `scontrol`."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping

from ..._rooms import schemas
from ...imports import ImportTrouble
from ...imports.events import slurm
from ...imports.events.draft import Draft, Written

PATIENCE = 10.0
_LISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST")
_TOLD = {
    "SLURM_JOB_ID": "job",
    "SLURM_RESTART_COUNT": "restarts",
    "SLURM_JOB_PARTITION": "partition",
    "SLURM_JOB_NUM_NODES": "nodes",
}


def nodes(environ: Mapping[str, str] = os.environ) -> tuple[Draft | None, str | None]:
    """(the event that names the nodes, why there is none). Both are None outside a job of Slurm."""
    job = environ.get("SLURM_JOB_ID")
    written = next((environ[name] for name in _LISTS if environ.get(name)), None)
    if written is None and job is None:
        return None, None
    why = None
    if written is None:
        written, why = _asked(str(job))
    if written is None:
        return None, f"Slurm's nodes of job {job}: {why}"
    try:
        found = tuple(dict.fromkeys(slurm.expand(written)))
    except ImportTrouble as e:
        return None, str(e)
    at = schemas.now()
    return (
        Draft(
            "scheduler",
            "note",
            f"node list of {len(found)} nodes" if len(found) != 1 else "node list of 1 node",
            code="nodes",
            nodes=found,
            when=Written(at.isoformat(), at, 1.0),
            values={told: environ[name] for name, told in _TOLD.items() if environ.get(name)},
        ),
        None,
    )


def _asked(job: str) -> tuple[str | None, str | None]:
    """The list as `scontrol` has it, or why there is none."""
    try:
        done = subprocess.run(
            ["scontrol", "--oneliner", "show", "job", job],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return None, f"scontrol gave no answer within {PATIENCE:g} s"
    except OSError as e:
        return None, f"not in the environment, and scontrol cannot be run ({e.strerror or e})"
    found = re.search(r"(?:^|\s)NodeList=(\S+)", done.stdout)
    if done.returncode != 0 or found is None or found[1] in ("(null)", "None"):
        said = (done.stderr or done.stdout).strip().splitlines()
        return None, f"scontrol did not name them ({said[0][:120] if said else 'no output'})"
    return found[1], None
