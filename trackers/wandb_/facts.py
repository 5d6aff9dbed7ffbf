"""Segments, configs, drift and regimes as config keys that are only ever added to; notes as quiet text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import text
from .._rooms import schemas
from ..base import PREFIX, Page, Shown
from . import words
from .handle import Handle, payload

ALERTS = {"LIN-C006": "resumed from a quarantined checkpoint"}
"""Findings that are worth waking somebody: code -> title."""


def run(h: Handle, record: Shown, page: Page) -> str | None:
    """Show under which lineage run id this page stands."""
    r: schemas.Run = payload(record)
    key = f"{PREFIX}run"
    before = h.run.config.get(key)
    # A later segment of a fork does not say it again, and W&B itself loses its branch point on a resume.
    fork_of = r.fork_of or (before.get("fork_of") if isinstance(before, Mapping) else None)
    h.config({key: {"record": record.id, "id": r.uid, **({"fork_of": fork_of} if fork_of else {})}})
    return h.place(key)


def segment(h: Handle, record: Shown, page: Page) -> str | None:
    """Show how a segment began and from which checkpoint."""
    s: schemas.Segment = payload(record)
    return _of_segment(
        h,
        record,
        page,
        "segments/{}/start",
        {
            "segment": s.uid,
            "start": s.start,
            "parent_checkpoint": s.parent_checkpoint or "none",
            "parent_step": "none" if s.parent_step is None else s.parent_step,
            "parent_evidence": s.parent_evidence,
            "world_size": s.world_size,
        },
    )


def config(h: Handle, record: Shown, page: Page) -> str | None:
    """Show a segment's config by its digest, beside those of the other segments."""
    c: schemas.Config = payload(record)
    return _of_segment(
        h,
        record,
        page,
        "segments/{}",
        {"config": c.digest, "source": c.source, "keys": len(c.values), "masked": c.masked},
    )


def code(h: Handle, record: Shown, page: Page) -> str | None:
    """Show the revision that a segment ran, which W&B's own field keeps for one segment only."""
    c: schemas.CodeState = payload(record)
    revision = (c.revision or "unknown") if c.repository else "no repository"
    facts = {"revision": revision, "dirty": c.dirty, "diff": c.diff or "none"}
    return _of_segment(h, record, page, "segments/{}/code", facts)


def environment(h: Handle, record: Shown, page: Page) -> str | None:
    """Show the digest of a segment's environment and the builds in it."""
    e: schemas.Environment = payload(record)
    builds = {words.key(k): v for k, v in e.builds.items()}
    facts = {"digest": e.digest, "python": e.python, **builds}
    return _of_segment(h, record, page, "segments/{}/environment", facts)


def restore(h: Handle, record: Shown, page: Page) -> str | None:
    """Show what became of each component on a resume: on rank 0, on others, and over all of them together."""
    r: schemas.Restore = payload(record)
    facts = {"checkpoint": r.checkpoint, **{c.component: c.status for c in r.components}}
    suffix = "together" if r.scope == "whole" else f"rank-{record.rank}"
    return _of_segment(h, record, page, "restore/{}", facts, suffix=suffix)


def drift(h: Handle, record: Shown, page: Page) -> str | None:
    """Show both sides of every change: W&B itself keeps only the later one."""
    d: schemas.Drift = payload(record)
    facts: dict[str, Any] = {
        "from_step": d.from_step,
        "moment": d.moment,
        "confounded": d.confounded,
        **_changes(d.changes, d),
    }
    if d.unclassified:
        facts["unclassified"] = _changes(d.unclassified, d)
    if d.not_shown:
        facts["not_shown"] = {words.key(k): v for k, v in d.not_shown.items()}
    return _of_segment(h, record, page, "drift/{}", facts, suffix=f"step-{d.from_step}")


def regime(h: Handle, record: Shown, page: Page) -> str | None:
    """Show a regime as a point of the series `lineage/regime` and as a small config value."""
    r: schemas.Regime = payload(record)
    h.points.begin(r.from_step, r.index, record.id)
    facts = {
        "id": r.id,
        "index": r.index,
        "from_step": r.from_step,
        "previous": r.previous or "none",
        "because": list(r.because),
    }
    return _of_segment(h, record, page, "regime/{}", facts, suffix=f"step-{r.from_step}")


def mitigation(h: Handle, record: Shown, page: Page) -> str | None:
    """Show a declared mitigation. Its reasons are free text and stay in the ledger."""
    m: schemas.Mitigation = payload(record)
    key = f"{PREFIX}mitigation/{m.uid}"
    before, after = words.scalar(m.before), words.scalar(m.after)
    h.config({key: {"record": record.id, "concept": m.concept, "before": before, "after": after}})
    return h.place(key)


def mitigation_effect(h: Handle, record: Shown, page: Page) -> str | None:
    """Show whether a declared mitigation is in effect, from which step to which."""
    m: schemas.MitigationEffect = payload(record)
    key = f"{PREFIX}mitigation/{m.mitigation}/effect"
    if h.outdated(key, record):
        return h.place(key)
    h.newest[key] = record.id
    facts = {"record": record.id, "in_effect": m.in_effect, "effective": words.scalar(m.effective)}
    steps = {"from_step": m.from_step, "to_step": m.to_step}
    h.config({key: {**facts, **{k: v for k, v in steps.items() if v is not None}}})
    return h.place(key)


def incident(h: Handle, record: Shown, page: Page) -> str | None:
    """Show the state of an incident in the run table. Its title may be free text and stays in the ledger."""
    i: schemas.Incident = payload(record)
    line = i.status.replace("_", " ")
    if i.first_bad_step is not None:
        line += f": first bad step {i.first_bad_step:,}"
        line += "" if i.first_bad_rank is None else f" on rank {i.first_bad_rank}"
    return _text(h, record, "incident", line)


def degraded(h: Handle, record: Shown, page: Page) -> str | None:
    """Show what is no longer recorded, without the exception's own words."""
    return _text(h, record, "degraded", text.degraded(record, message="text" in page.share))


def tracker_note(h: Handle, record: Shown, page: Page) -> str | None:
    """Show something about this page that its reader must know."""
    n: schemas.TrackerNote = payload(record)
    return _text(h, record, f"notes/{n.code}", n.text)


def coverage(h: Handle, record: Shown, page: Page) -> str | None:
    """Show what is recorded and what is not."""
    c: schemas.Coverage = payload(record)
    parts = ["recorded: " + (", ".join(c.recorded) or "nothing")]
    if c.missing:
        parts.append("not recorded: " + ", ".join(c.missing))
    if c.gaps:
        parts.append("gaps: " + "; ".join(c.gaps))
    return _text(h, record, "coverage", " | ".join(parts))


def finding(h: Handle, record: Shown, page: Page) -> str | None:
    """Show what a check found, under its code. A resume from a quarantined checkpoint alerts, once per segment."""
    f: schemas.Finding = payload(record)
    name, line = text.finding(record)
    if f.code in ALERTS:
        h.alert(f"{f.code}:{record.segment}", f"Lineage: {ALERTS[f.code]}", line, "ERROR")
    return _text(h, record, name, line)


def seal(h: Handle, record: Shown, page: Page) -> str | None:
    """Anchor the root of all chains; returns its place. An older root never replaces a newer one: None then."""
    s: schemas.Seal = payload(record)
    key = f"{PREFIX}anchor"
    if h.outdated("anchor", record):
        return None
    h.newest["anchor"] = record.id
    facts = {"root": s.root, "seq": record.seq, "record": record.id, "segment": record.segment}
    h.config({key: facts if record.step is None else {**facts, "step": record.step}})
    return h.place(key)


def _of_segment(
    h: Handle, record: Shown, page: Page, form: str, facts: dict[str, Any], *, suffix: str = "more"
) -> str:
    base = PREFIX + form.format(f"{h.number(record, page):03}")
    key = h.own_key(base, record, suffix)
    h.config({key: {"record": record.id, **facts}})
    return h.place(key)


def _changes(changes: Sequence[schemas.Change], d: schemas.Drift) -> dict[str, Any]:
    sides: dict[str, Any] = {}
    for c in changes:
        sides[_free(sides, c)] = {
            "requested_before": words.scalar(c.requested_before),
            "requested_after": words.scalar(c.requested_after),
            "effective_before": words.scalar(c.effective_before),
            "effective_after": words.scalar(c.effective_after),
            "declared": c.concept not in d.undeclared,
        }
    return sides


def _free(taken: Mapping[str, Any], c: schemas.Change) -> str:
    """A change's key: its concept, or of an unclassified one its own key in the config; no two are alike."""
    name = c.keys[0] if c.concept == "unclassified" and c.keys else c.concept
    base = words.key(name)
    return next(k for n in range(1, len(taken) + 2) if (k := base if n == 1 else f"{base}/{n}") not in taken)


def _text(h: Handle, record: Shown, name: str, line: str) -> str:
    key = f"{PREFIX}{name}"
    if not h.outdated(name, record):
        h.newest[name] = record.id
        h.summary({key: line})
        h.config({})
    return h.place(key)
