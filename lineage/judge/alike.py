"""Changes that two branches made alike: they are no difference between them, however much they changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .._rooms import schemas
from .graph import latest


@dataclass(frozen=True)
class Mirrored:
    """One change that both branches made: of one step, one kind, to one value."""

    a: schemas.ChainLink
    b: schemas.ChainLink


class Alike:
    """Tells whether a change on one branch is the very same as one on another, from the records behind both.

    Words are not enough: a state restored to something else is the same on both sides only where its digests
    are, and a dirty tree only where its diff is.
    """

    def __init__(self, records: Sequence[schemas.Record]) -> None:
        self._by_id: Mapping[str, schemas.Record] = {r.id: r for r in records}
        self._segments: dict[str, list[schemas.Record]] = {}
        for r in records:
            self._segments.setdefault(r.segment, []).append(r)

    def change(self, link: schemas.ChainLink) -> schemas.Change | None:
        """The change behind a link, where it rests on a drift."""
        record = self._by_id.get(link.records[0]) if link.records else None
        if record is None or record.kind != "drift":
            return None
        all_ = [*record.payload.changes, *record.payload.unclassified]
        return next((c for c in all_ if c.concept == link.concept and c.text == link.text), None)

    def match(self, ours: Sequence[schemas.ChainLink], theirs: Sequence[schemas.ChainLink]) -> list[Mirrored]:
        """Pair the links of two branches that stand for the same change, each at most once."""
        left = list(theirs)
        out = []
        for a in ours:
            b = next((x for x in left if self._same(a, x)), None)
            if b is not None:
                left.remove(b)
                out.append(Mirrored(a, b))
        return out

    def _same(self, a: schemas.ChainLink, b: schemas.ChainLink) -> bool:
        if (a.step, a.concept, a.text) != (b.step, b.concept, b.text):
            return False
        if a.records and a.records == b.records:
            return True
        back = self._of_rank(a), self._of_rank(b)
        if back[0] is not None and back[1] is not None:
            return back[0] == back[1] and back[0][2] is not None
        one, two = self.change(a), self.change(b)
        if one is None or two is None or _values(one) != _values(two):
            return False
        if any(v is not None and v.type == "masked" for v in _values(one)):
            return False  # two masked values are never shown to be one
        if a.concept in schemas.COMPONENTS or a.concept == "batch_skip":
            return self._same_state(a, b)
        return a.concept != "code" or self._same_code(a, b)

    def _of_rank(self, link: schemas.ChainLink) -> tuple[int, str, str | None] | None:
        """(rank, status, what it became) where a link says what one rank did not restore."""
        record = self._by_id.get(link.records[0]) if link.records else None
        if record is None or record.kind != "restore":
            return None
        found = next((c for c in record.payload.components if c.component == link.concept), None)
        if found is None:
            return None
        became = "absent" if found.status == "absent" and found.live is None else found.live
        return record.rank, found.status, became

    def _same_state(self, a: schemas.ChainLink, b: schemas.ChainLink) -> bool:
        component = "loader_position" if a.concept == "batch_skip" else a.concept
        one, two = (self._restored(x.segment, component) for x in (a, b))
        return bool(one) and one == two and None not in one.values()

    def _restored(self, segment: str | None, component: str) -> dict[int, str | None]:
        """rank -> digest of what a component became on a resume; one that is empty on both sides is alike."""
        out: dict[int, str | None] = {}
        for r in self._segments.get(segment or "", ()):
            for c in r.payload.components if r.kind == "restore" and r.payload.scope == "rank" else ():
                if c.component == component:
                    out[r.rank] = "absent" if c.status == "absent" and c.live is None else c.live
        return out

    def _same_code(self, a: schemas.ChainLink, b: schemas.ChainLink) -> bool:
        one, two = (latest(self._segments.get(x.segment or "", []), "code", x.segment or "") for x in (a, b))
        if one is None or two is None or one.payload.unread or two.payload.unread:
            return False
        return all(
            getattr(one.payload, f) == getattr(two.payload, f)
            for f in ("revision", "diff", "modules", "submodules")
        )


def _values(c: schemas.Change) -> tuple[schemas.Scalar | None, ...]:
    return c.requested_before, c.requested_after, c.effective_before, c.effective_after
