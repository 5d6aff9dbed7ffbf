"""What a bundle does not hold because the loop never gave it or nothing was there, named with the line that would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._rooms import schemas
from .held import Held

DIFF = "the code's difference from its revision"
DIFFERING = "the tensors that differ between ranks"
_GIVEN = "`lineage.attach(run, {0}={0})`"
_HOLDERS = {
    "learning rates and parameter groups": ("optimizer", "groups"),
    "gradient scaler": ("scaler", "scaler"),
}
"""What is read when a step begins: its words -> (the argument, the key of the facts)"""


def of_step(held: Held) -> dict[str, str]:
    """What the facts and random states of the bad step lack."""
    kept = next((k for k in held.steps if k.step == held.step), None)
    if kept is None:
        return {"facts of the step as it began": "no longer in memory: the alarm came too many steps later"}
    out: dict[str, str] = {}
    unread = kept.facts.get("not_read", {})
    for what, (argument, key) in _HOLDERS.items():
        if argument in unread:
            out[what] = f"the {argument} could not be read ({unread[argument]})"
        elif key not in kept.facts:
            training = ", where training uses one" if argument == "scaler" else ""
            out[what] = f"none was given{training}: {_GIVEN.format(argument)}"
    if not kept.rng and kept.start is None:
        out["random states"] = "none were taken at this step"
    return out


def of_rows(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str]:
    """Which statistics of tensors stand in no row around the step."""
    kinds = {r["kind"] for r in rows.get("tensors", ())}
    out: dict[str, str] = {}
    if "gradient" not in kinds:
        out["gradients by layer"] = f"no row of them around this step; the model: {_GIVEN.format('model')}"
    if "activation" not in kinds:
        out["activations by layer"] = "not measured: `lineage.attach(..., activations=True)` reads them"
    return out


def of_records(records: Sequence[schemas.Record]) -> dict[str, str]:
    """Which conditions of the run no record tells, and why there is no difference of the code."""
    newest = {r.kind: r.payload for r in records}
    out: dict[str, str] = {}
    for kind, argument in (("config", "config"), ("effective", "optimizer")):
        if kind not in newest:
            out[f"{kind} of the run"] = f"not on record at the alarm: {_GIVEN.format(argument)}"
    if "environment" not in newest:
        out["environment of the run"] = "not on record at the alarm yet; the ledger has it when it is read"
    code = newest.get("code")
    if code is None:
        out["code of the run"] = "not on record at the alarm yet; the ledger has it when it is read"
    elif not code.repository:
        out[DIFF] = "the code runs from no git repository"
    elif code.diff is None:
        said = "it does not differ" if not code.dirty else code.note or "it was not kept"
        out[DIFF] = f"{said} (revision {code.revision or 'unknown'})"
    return out


def no_event(watched: str) -> str:
    """That no event stands near the alarm, with what was watched for some."""
    return (
        f"none is on record within ten minutes of the alarm ({watched}); a site's own: "
        "`lineage events import FILE --into RUN`"
    )


NO_FIRST_BAD = "none was saved yet at the alarm; `lineage first-bad` names it once there is one"
NO_LAST_GOOD = "none is recorded before this step"
