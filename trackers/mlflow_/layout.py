"""How each record reads in a tag: plain JSON values, and first of all a line that a person reads.

MLflow's page shows the first forty characters or so of a tag, and opens the rest on a click.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .. import text
from .._rooms import schemas
from ..base import Shown
from .limits import TAG_LIMIT, fit_text, size
from .numbered import held

STANDING = ("LIN-T004",)
"""Codes of notes that tell how things stand: a newer one takes the place of the older."""


def value(scalar: schemas.Scalar) -> Any:
    """Return a config value as plain JSON; NaN, infinities and masked values in words."""
    if scalar.type == "masked":
        return scalar.text()
    plain = scalar.plain()
    if scalar.type == "list":
        return [value(v) for v in scalar.value]
    return schemas.float_to_json(plain) if isinstance(plain, float) else plain


def _sides(before: schemas.Scalar | None, after: schemas.Scalar | None) -> dict[str, Any]:
    """Return what is known of two sides; a side that is not known is absent, which null is not."""
    sides = {"before": before, "after": after}
    return {k: value(v) for k, v in sides.items() if v is not None}


def _change(change: schemas.Change) -> dict[str, Any]:
    out: dict[str, Any] = {"concept": change.concept, "title": change.title, "class": change.cls}
    requested = _sides(change.requested_before, change.requested_after)
    effective = _sides(change.effective_before, change.effective_after)
    out |= {"requested": requested} if requested else {}
    out |= {"effective": effective} if effective else {}
    return {**out, "declared": change.mitigation is not None, "text": change.text}


def drift(record: Shown, segment: int) -> dict[str, Any]:
    """Return a drift: requested beside effective, before and after, concept by concept."""
    payload: Any = record.payload
    every = [*payload.changes, *payload.unclassified]
    return {
        "text": "; ".join(c.text for c in every) or "no change is known",
        "segment": segment,
        "moment": payload.moment,
        "from_step": payload.from_step,
        "confounded": payload.confounded,
        "changes": [_change(c) for c in payload.changes],
        "unclassified": [_change(c) for c in payload.unclassified],
        "undeclared": list(payload.undeclared),
        "unproven": list(payload.unproven),
        "not_shown": dict(payload.not_shown),
        "record": record.id,
    }


def regime(record: Shown, segment: int) -> dict[str, Any]:
    """Return a regime with the values that make it."""
    payload: Any = record.payload
    because = ": " + "; ".join(payload.because) if payload.because else ""
    return {
        "text": f"regime {payload.index} from step {payload.from_step:,}{because}",
        "segment": segment,
        "index": payload.index,
        "from_step": payload.from_step,
        "id": payload.id,
        "previous": payload.previous,
        "because": list(payload.because),
        "values": {k: value(v) for k, v in payload.values.items()},
        "record": record.id,
    }


def verdict(record: Shown, headline: str) -> dict[str, Any]:
    """Return a verdict in short; the whole stands in the description."""
    payload: Any = record.payload
    return {
        "text": headline,
        "status": payload.status,
        "since_step": payload.since_step,
        "confounded": payload.confounded,
        "claims": {c.claim: c.status for c in payload.claims},
        "reference": payload.reference,
        "policy": payload.policy,
        "record": record.id,
    }


def alarm(record: Shown, segment: int) -> dict[str, Any]:
    """Return an alarm. Its value is text where it is not finite."""
    payload: Any = record.payload
    return {
        "text": payload.text,
        "segment": segment,
        "step": record.step,
        "rank": record.rank,
        "code": payload.code,
        "phase": payload.phase,
        "signal": payload.signal,
        "scope": payload.scope,
        "abnormal": payload.abnormal,
        "value": schemas.float_to_json(payload.value),
        "tensors": list(payload.tensors),
        "record": record.id,
    }


def seal(record: Shown) -> dict[str, Any]:
    """Return the root that anchors the ledger."""
    payload: Any = record.payload
    return {
        "root": payload.root,
        "why": payload.why,
        "journals": len(payload.heads),
        "at": record.at.isoformat(),
        "record": record.id,
    }


def mitigation(record: Shown) -> dict[str, Any]:
    """Return a declared intervention without its free text, which stays on the machine."""
    payload: Any = record.payload
    sides = _sides(payload.before, payload.after)
    return {"concept": payload.concept, **sides, "uid": payload.uid, "record": record.id}


def mitigation_effect(record: Shown) -> dict[str, Any]:
    """Return the evidence for or against an intervention being in effect."""
    payload: Any = record.payload
    return {
        "text": payload.text,
        "mitigation": payload.mitigation,
        "in_effect": payload.in_effect,
        "from_step": payload.from_step,
        "to_step": payload.to_step,
        "record": record.id,
    }


def checkpoint(payload: schemas.Checkpoint, segment: int) -> dict[str, Any]:
    """Return a checkpoint in short: the params of its LoggedModel, or a tag where there are none."""
    facts: dict[str, Any] = {
        "uid": payload.uid,
        "step": payload.step,
        "segment": segment,
        "status": payload.status,
        "path": payload.path,
        "manifest": payload.manifest.root if payload.manifest else None,
        "files": len(payload.manifest.files) if payload.manifest else None,
        "bytes": sum(f.size for f in payload.manifest.files) if payload.manifest else None,
        "regime": payload.regime,
        "samples": payload.samples,
        "tokens": payload.tokens,
        "transformation": payload.transformation,
        "missing": ", ".join(payload.missing) or None,
        "parents": ", ".join(payload.parents) or None,
    }
    return {k: v for k, v in facts.items() if v is not None}


def segment_facts(record: Shown, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of a segment, with what one more record tells: itself, its config, its code."""
    payload: Any = record.payload
    facts = {"text": "start not known", "uid": record.segment, **before}
    if payload.kind == "segment":
        after = "" if payload.parent_step is None else f" after step {payload.parent_step:,}"
        start = {
            "text": f"{payload.start}{after}, world size {payload.world_size}",
            "start": payload.start,
            "parent_checkpoint": payload.parent_checkpoint,
            "parent_step": payload.parent_step,
            "parent_evidence": payload.parent_evidence,
            "world_size": payload.world_size,
        }
        return {**facts, **start}
    if payload.kind == "config":
        known = list(facts.get("config", []))
        entry = {"digest": payload.digest, "source": payload.source}
        return {**facts, "config": known if entry in known else [*known, entry]}
    code = {
        "repository": payload.repository,
        "revision": payload.revision,
        "branch": payload.branch,
        "dirty": payload.dirty,
        "diff": payload.diff,
        "submodules": dict(payload.submodules),
    }
    return {**facts, "code": {k: v for k, v in code.items() if v not in (None, {})}}


def first_non_finite(tags: Mapping[str, str], data: Mapping[str, Any]) -> str | None:
    """Return, in words, the first non-finite value among the alarms shown and one more, if there is any.

    In words, because MLflow's page leaves out a metric that is only NaN and shows infinities as 1.797e308.
    """
    alarms = [*held(tags, "alarm").values(), data]
    found = [a for a in alarms if a.get("abnormal") == "non_finite" and a.get("phase") == "onset"]
    if not found:
        return None
    first = min(found, key=lambda a: (a.get("segment", 0), _step(a), a.get("rank", 0)))
    where = "an unknown step" if first.get("step") is None else f"step {first['step']:,}"
    return (
        f"First non-finite value: {first['signal']} was {first['value']} at {where}, rank {first['rank']} "
        f"(segment {first['segment']}, {first['code']}): {first['text']}"
    )


def _step(alarm: Mapping[str, Any]) -> float:
    step = alarm.get("step")
    return float("inf") if step is None else float(step)


def first_bad(payload: schemas.FirstBad) -> str:
    """Return the first bad cell in words."""
    if payload.cell is None:
        line = "No abnormal value is in the ledger."
    else:
        c = payload.cell
        of = f", tensor {c.tensor}" if c.tensor else f", layer {c.layer}" if c.layer else ""
        line = f"First bad: step {c.step:,}, rank {c.rank}{of}, {c.signal} ({c.abnormal}): {c.text}"
    seen = text.symptoms(payload)
    line += f". Seen {seen}." if seen else ""
    if payload.ties:
        more = f" and {len(payload.ties) - 16} more" if len(payload.ties) > 16 else ""
        line += f" At the same step: ranks {', '.join(str(t.rank) for t in payload.ties[:16])}{more}."
    if payload.last_good_step is not None:
        line += f" Last good step: {payload.last_good_step:,}."
    if payload.last_good_checkpoint:
        line += f" Last good checkpoint: {payload.last_good_checkpoint}."
    return line + (f" Not seen: {'; '.join(payload.gaps)}." if payload.gaps else "")


def coverage(payload: schemas.Coverage) -> str:
    """Return what is recorded and what is not, with the line that would add it."""
    parts = ["Recorded: " + (", ".join(payload.recorded) or "nothing")]
    if payload.missing:
        parts.append("Not recorded: " + "; ".join(f"{k} (add: {v})" for k, v in payload.missing.items()))
    if payload.gaps:
        parts.append("Gaps: " + "; ".join(payload.gaps))
    return ". ".join(parts)


def note(present: str, payload: schemas.TrackerNote) -> str:
    """Return the tag of a note's code with one more: a line of its own, once."""
    line = re.sub(r"\s+", " ", fit_text(payload.text, 1000 if payload.code not in STANDING else TAG_LIMIT))
    if payload.code in STANDING:
        return line
    lines = present.splitlines()
    more = "(more of this code are in the ledger: lineage show)"
    if line in lines or more in lines:
        return present
    return "\n".join([*lines, line if size("\n".join([*lines, line, more])) <= TAG_LIMIT else more])
