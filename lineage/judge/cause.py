"""What proves a cause: a replay in which exactly one condition was changed, was in effect, and flipped the symptom."""

from __future__ import annotations

from collections.abc import Sequence

from .._rooms import schemas


class NotAdmissible(Exception):
    """A replay proves no cause. The text says which requirement it does not meet."""


def proof(records: Sequence[schemas.Record], name: str) -> schemas.CauseProof:
    """The proof that a replay gives, by its uid (or the end of it) or its record. Raises `NotAdmissible`."""
    every = [r for r in records if r.kind == "replay"]
    found = [
        r.payload
        for r in every
        if name in (r.payload.uid, r.id) or (len(name) >= 6 and r.payload.uid.endswith(name))
    ]
    if not found:
        known = ", ".join(r.payload.uid[-8:] for r in every) or "none"
        raise NotAdmissible(f"no replay of this ledger is {name}; there are: {known}.")
    p: schemas.Replay = found[-1]
    if len(p.changes) != 1 or p.confounded:
        names = ", ".join(c.name for c in p.changes) or "nothing"
        raise NotAdmissible(
            f"in this replay {names} was changed; a cause needs exactly one condition, with all else as it was."
        )
    change = p.changes[0]
    if change.in_effect != "yes":
        raise NotAdmissible(f"that {change.name} was in effect is not shown by this replay: {change.text}.")
    controls = [r.payload for r in every if r.payload.uid == p.control]
    if p.control is None or not controls:
        raise NotAdmissible("this replay is held against no replay with nothing changed.")
    if controls[-1].changes:
        raise NotAdmissible("what this replay is held against has changes of its own.")
    if p.flips is not True:
        told = "cannot be told" if p.flips is None else "is no"
        raise NotAdmissible(f"whether {change.name} makes the symptom come or go {told}: {p.reason}.")
    return schemas.CauseProof(
        replay=p.uid,
        control=p.control,
        condition=change.name,
        argument=change.argument,
        in_effect="yes",
        flips=True,
        confounded=False,
    )
