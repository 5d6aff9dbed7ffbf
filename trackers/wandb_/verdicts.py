"""Verdicts and alarms: what must be seen without opening anything, and the only things that alert."""

from __future__ import annotations

import hashlib

from .. import text
from .._rooms import schemas
from ..base import PREFIX, Page, Shown
from . import words
from .checkpoints import lifted
from .handle import OUR_TAG, VERDICT, Handle, payload

ADVICE = f"{PREFIX}advice"
FIRST_NON_FINITE = f"{PREFIX}first_non_finite"
STATE = {"slow_rise": "rises slowly", "new_level": "has a new level"}
KIND = {"non_finite": "non-finite", "slow_rise": "slow rise of", "new_level": "new level of"}


def verdict(h: Handle, record: Shown, page: Page) -> str | None:
    """Show a verdict on this run: tag, summary, pinned text; an alert where something broke.

    The page has room for one verdict, the run's own. Of a comparison with another run, only the headline
    is shown; a verdict on a single checkpoint is not.
    """
    v: schemas.Verdict = payload(record)
    if not v.subject.startswith("run:"):
        return None
    if v.reference != "self":
        return _comparison(h, record, v)
    if h.outdated("verdict", record):
        return h.place(VERDICT)
    h.newest["verdict"] = record.id
    warnings = _warnings(h)
    h.config({VERDICT: text.warned(text.markdown(v), warnings)})
    broken = v.status == "broken"
    h.summary(
        {
            f"{PREFIX}status": v.status,
            ADVICE: text.advised(warnings, text.advice(v)),
            f"{PREFIX}broken_since_step": v.since_step if broken else None,
            **{f"{PREFIX}claims/{c.claim}": c.status for c in v.claims},
        }
    )
    h.tags([f"{OUR_TAG}{v.status}"] if v.status in ("broken", "not_shown") else [])
    h.pin()
    if broken and h.alert(_token(v), _title(v), text.warned(text.markdown(v), warnings), "ERROR"):
        h.config({})  # keeps that it was sent
    return h.place(VERDICT)


def warn(h: Handle) -> None:
    """Bring the pinned verdict, and what to do next, up to what the page says of quarantine now."""
    warnings = _warnings(h)
    shown = h.run.config.get(VERDICT) or ""
    told = text.warned(shown, warnings)
    if told == shown:
        return
    own = text.by_verdict(str(h.run.summary.get(ADVICE) or "")) if h.newest.get("verdict") else ""
    h.config({VERDICT: told})
    h.summary({ADVICE: text.advised(warnings, own)})
    h.pin()


def _warnings(h: Handle) -> list[str]:
    found = str(h.run.summary.get(f"{PREFIX}finding/{text.RESUMED_BAD}") or "")
    held = str(h.run.summary.get(f"{PREFIX}quarantined") or "")
    return text.warnings(found, held, lifted(h.run.config))


def alarm(h: Handle, record: Shown, page: Page) -> str | None:
    """Show the onset of an alarm: one alert per segment and kind, and the first non-finite value in words."""
    a: schemas.Alarm = payload(record)
    if a.phase != "onset":
        return None
    number = h.number(record, page)
    state = (
        f"is {words.number(a.value)}"
        if a.abnormal == "non_finite"
        else STATE.get(a.abnormal, "is out of its range")
    )
    line = f"{words.where(record.rank, record.step, number)}: {words.signal(a.signal)} {state}"
    shown = None
    if a.abnormal == "non_finite":
        cell = [number, -1 if record.step is None else record.step, record.rank]
        if not h.first or cell <= h.first:
            h.first = cell
            h.summary({FIRST_NON_FINITE: line})
        shown = h.place(FIRST_NON_FINITE)
    kind = KIND.get(a.abnormal, "out of range")
    title = f"Lineage: {kind} {words.signal(a.signal)}, {words.where(record.rank, record.step)}"
    more = f"\n{a.code}." + ("" if a.abnormal == "slow_rise" else " Where it began: `lineage first-bad`.")
    if h.alert(f"{a.abnormal}:{record.segment}", title, line + more, "WARN"):
        shown = shown or h.place("alert")
    h.config({})
    return shown


def first_bad(h: Handle, record: Shown, page: Page) -> str | None:
    """Show where it began, as a line in the run table."""
    key = f"{PREFIX}first_bad"
    if h.outdated("first_bad", record):
        return h.place(key)
    f: schemas.FirstBad = payload(record)
    if f.cell is None:
        line = "nothing abnormal is recorded"
    else:
        line = words.cell(f.cell, h.segments.get(f.cell.segment) or page.number(f.cell.segment))
        seen = text.symptoms(f)
        line += f"; seen {seen}" if seen else ""
        if f.last_good_step is not None:
            line += f"; last good step {f.last_good_step:,}"
    if f.gaps:
        line += f"; not shown: {len(f.gaps)} gap{'s' if len(f.gaps) > 1 else ''}"
    h.newest["first_bad"] = record.id
    h.summary({key: line})
    h.config({})
    return h.place(key)


def _comparison(h: Handle, record: Shown, v: schemas.Verdict) -> str:
    key = f"{PREFIX}compared/{words.key(v.reference)}"
    if not h.outdated(key, record):
        h.newest[key] = record.id
        h.summary({key: text.headline(v)})
        h.config({})
    return h.place(key)


def _token(v: schemas.Verdict) -> str:
    """Name a broken state: which claims are broken, and since when."""
    claims = sorted(c.claim for c in v.claims if c.status == "broken")
    return "broken:" + hashlib.sha256(f"{v.since_step} {claims}".encode()).hexdigest()[:16]


def _title(v: schemas.Verdict) -> str:
    count = sum(c.status == "broken" for c in v.claims)
    since = "" if v.since_step is None else f" since step {v.since_step:,}"
    return f"Lineage: {count} claim{'s' if count != 1 else ''} broken{since}"
