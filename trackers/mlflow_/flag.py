"""What flags a run: the tags that people filter by, and the description."""

from __future__ import annotations

from collections.abc import Mapping

from .. import text
from .._rooms import schemas
from . import checkpoints, note
from .limits import fit_text, key
from .store import RunFacts, Store

_NO_ROOM = key("note", "description")


def flag(store: Store, facts: RunFacts, verdict: schemas.Verdict, headline: str) -> None:
    """Write the flags that people filter by, what to do next, and the description."""
    warnings = warnings_of(facts.tags)
    tags = {
        key("status"): verdict.status,
        key("verdict"): fit_text(headline),
        key("advice"): fit_text(text.advised(warnings, text.advice(verdict))),
        key("confounded"): str(verdict.confounded).lower(),
        **{key("claims", c.claim): c.status for c in verdict.claims},
    }
    gone = {n for n in facts.tags if n.startswith(key("claims") + "/") and n not in tags}
    since = key("broken_since_step")
    if verdict.since_step is not None:
        tags[since] = str(verdict.since_step)
    elif since in facts.tags:
        gone.add(since)
    before = facts.tags.get(note.NOTE_TAG, "")
    description = note.with_block(before, verdict, warnings)
    if description is None:
        tags[_NO_ROOM] = (
            f"The description leaves no room for the verdict ({len(before):,} of 8,000 characters are "
            f"taken). It stands in the tag {key('verdict')}; shorten the description to show it there."
        )
    elif _NO_ROOM in facts.tags:
        gone.add(_NO_ROOM)
    if description is not None and description != before:
        tags[note.NOTE_TAG] = description
    store.log(tags)
    for name in gone:
        store.delete_tag(name)


def warn(store: Store, facts: RunFacts) -> None:
    """Bring the description, and what to do next, up to what the tags say of quarantine now."""
    warnings = warnings_of(facts.tags)
    own = text.by_verdict(facts.tags.get(key("advice"), "")) if key("status") in facts.tags else ""
    tags = {
        note.NOTE_TAG: note.with_warnings(facts.tags.get(note.NOTE_TAG, ""), warnings),
        key("advice"): fit_text(text.advised(warnings, own)),
    }
    changed = {k: v for k, v in tags.items() if v is not None and v != facts.tags.get(k, "")}
    if changed:
        store.log(changed)


def warnings_of(tags: Mapping[str, str]) -> list[str]:
    """Return what a run's tags say of quarantine, as paragraphs of Markdown."""
    resumed = tags.get(key("finding", text.RESUMED_BAD), "")
    return text.warnings(resumed, tags.get(key("quarantined"), ""), checkpoints.lifted(tags))
