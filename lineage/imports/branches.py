"""From reported entries to segments and branches: each restart begins a segment that names its parent state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from .._rooms import schemas
from ..judge.restarts import same_restart


@dataclass
class Branch:
    """One segment of an imported run: where it started, and the entries that fall into it."""

    number: int
    start: Literal["fresh", "resume", "rewind"] = "fresh"
    from_step: int = 0
    parent: int | None = None
    """number of the branch that held the state restarted from; None at a fresh start"""
    entries: list[int] = field(default_factory=list)
    """places in the list of entries"""
    head: int = 0
    """the last step that an entry of it names"""


def branches(entries: Sequence[schemas.Reported]) -> list[Branch]:
    """Cut placed entries into segments: a new one at each restart that an entry names.

    Entries of one restart share a segment. A restart from 0 is a fresh start. The parent of a restart is the
    newest branch that had come far enough to hold that state; where none has, the branch before.
    """
    out = [Branch(0)]
    for i, entry in enumerate(entries):
        if (
            entry.restart_from is not None
            and not _first(out, entries, i)
            and not _same(out[-1], entries, entry)
        ):
            out.append(_restarted(out, entry.restart_from))
        here = out[-1]
        here.entries.append(i)
        here.head = max(here.head, entry.placed_at or 0, here.from_step)
    return out


def _first(out: Sequence[Branch], entries: Sequence[schemas.Reported], i: int) -> bool:
    """The launch itself: a restart from 0 before anything was seen to run."""
    return len(out) == 1 and out[0].head == 0 and entries[i].restart_from == 0 and not out[0].entries


def _same(branch: Branch, entries: Sequence[schemas.Reported], entry: schemas.Reported) -> bool:
    if branch.number == 0 or branch.from_step != entry.restart_from or not branch.entries:
        return False
    return all(same_restart(entries[i], entry) for i in branch.entries)


def _restarted(out: Sequence[Branch], step: int) -> Branch:
    number = len(out)
    if step == 0:
        return Branch(number)
    parent = _holder(out, step)
    parent.head = max(parent.head, step)  # that restart shows how far it had come
    rewinds = step < out[-1].head
    return Branch(number, "rewind" if rewinds else "resume", step, parent.number, head=step)


def _holder(out: Sequence[Branch], step: int) -> Branch:
    """The branch whose own updates led to the state after `step`.

    A branch that started from exactly that state did not make it: an earlier attempt from it is no parent.
    """
    made = [b for b in reversed(out) if b.from_step < step <= b.head]
    if made:
        return made[0]
    started = [b for b in reversed(out) if b.from_step == step and b.parent is not None]
    return out[started[0].parent or 0] if started else out[-1]
