"""A resume judged tensor by tensor over all ranks, beside what each rank could tell by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .._rooms import schemas
from .resharded import Component, Resharded

DECIDED = ("restored", "differs", "absent")
MOST = 4
"""Tensors that a text names."""


def whole(restore: schemas.Restore, found: Resharded) -> schemas.Restore | None:
    """What the tensors of all ranks show of the components that one rank compared; None where they show nothing."""
    own = {c.component: c for c in restore.components}
    told = [
        schemas.ComponentRestore(component=name, status=c.status, text=_text(name, c, found))
        for name, c in found.components.items()
        if c.status in DECIDED and name in own
    ]
    if not told:
        return None
    return schemas.Restore(checkpoint=restore.checkpoint, scope="whole", components=told)


def merged(restore: schemas.Restore, told: schemas.Restore | None) -> schemas.Restore:
    """One rank's comparison, with what all ranks together show.

    They decide what the rank left open, and name the tensors of what it found to differ. What one rank found wrong of
    its own stays: the tensors of all ranks may be right where a type, or a tie between two names, is not.
    """
    every = {c.component: c for c in told.components} if told else {}
    return restore.model_copy(
        update={"components": [_one(c, every.get(c.component)) for c in restore.components]}
    )


@dataclass(frozen=True)
class Outcome:
    """What became of one component, on some ranks or on all of them together."""

    found: schemas.ComponentRestore
    ranks: tuple[int, ...]
    """() for all ranks together, tensor by tensor"""

    @property
    def component(self) -> str:
        """By its id."""
        return self.found.component

    @property
    def status(self) -> str:
        """`restored`, `differs`, `absent` or `not_recorded`."""
        return self.found.status

    @property
    def text(self) -> str:
        """The finding in words."""
        return self.found.text


def outcomes(own: Mapping[int, schemas.Restore], told: schemas.Restore | None) -> list[Outcome]:
    """Ranks with equal outcome in one, in the order of components; what all ranks show together comes first.

    It takes the place of what single ranks left open, and names the tensors of what all of them found wrong alike. Of
    one rank alone there is one comparison.
    """
    together = {c.component: c for c in told.components} if told else {}
    groups: dict[tuple[str, str, str], tuple[schemas.ComponentRestore, list[int]]] = {}
    for rank, restore in sorted(own.items()):
        of_rank = merged(restore, told) if len(own) == 1 else restore
        for c in of_rank.components:
            groups.setdefault((c.component, c.status, c.text), (c, []))[1].append(rank)
    out = []
    for c, ranks in groups.values():
        every = together.get(c.component)
        if every is None or len(own) == 1:
            out.append(Outcome(c, tuple(ranks)))
        elif len(ranks) == len(own) and c.status == every.status:
            together[c.component] = _in_one(c, every)
        elif c.status != "not_recorded":
            out.append(Outcome(c, tuple(ranks)))
    if len(own) > 1:
        out += [Outcome(c, ()) for c in together.values()]
    place = {name: n for n, name in enumerate(schemas.COMPONENTS)}
    return sorted(out, key=lambda o: (place.get(o.component, len(place)), len(o.ranks) > 0, o.ranks))


def _in_one(own: schemas.ComponentRestore, every: schemas.ComponentRestore) -> schemas.ComponentRestore:
    """One fact in one text, where each rank found by itself what all show together."""
    _, _, names = every.text.partition(": ")
    return (
        every
        if every.status == "restored" or not names
        else every.model_copy(update={"text": f"{own.text}: {names}"})
    )


def _one(own: schemas.ComponentRestore, every: schemas.ComponentRestore | None) -> schemas.ComponentRestore:
    if every is None:
        return own
    if own.status == "not_recorded":
        return own.model_copy(update={"status": every.status, "text": every.text})
    if own.status == "differs" and every.status != "restored":
        return _in_one(own, every)
    if own.status == "restored" and every.status != "restored":
        return every
    return own


def _text(name: str, c: Component, found: Resharded) -> str:
    title = schemas.catalogue().concept(name).title
    saved, live = len(found.saved_ranks), len(found.live_ranks)
    ranks = "" if saved == live == 1 else f" over {_ranks(live)}, saved on {saved}"
    if c.status == "restored":
        return f"{title} as at the save{ranks} ({c.equal:,} tensors equal bit for bit)"
    every = c.equal + len(c.differing) + len(c.absent) + len(c.unknown)
    said = [
        f"{len(names):,} of {every:,} tensors {word} ({_some(names)})"
        for word, names in (("differ", c.differing), ("are not there", c.absent))
        if names
    ]
    if c.zero:
        count = "all" if len(c.zero) == len(c.differing) else f"{len(c.zero):,}"
        said[0] += f", {count} of these hold nothing but zeros now"
    if c.new:
        said.append(f"{len(c.new):,} were not there at the save ({_some(c.new)})")
    if c.unknown:
        said.append(f"{len(c.unknown):,} cannot be compared")
    word = "not restored" if c.status == "absent" and not c.equal else "not as at the save"
    return f"{title} {word}{ranks}: {', '.join(said)}"


def _ranks(count: int) -> str:
    return f"{count:,} rank{'' if count == 1 else 's'}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MOST:,} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more
