"""Digests of this rank's state every some steps, so that ranks can be compared: rows of the table `states`.

Each rank writes its own down. Nothing is gathered, and nothing waits: on a device the digests are on their way to
the host like any other value. Where all ranks reach one key-value store, one root per group is put there too, and
compared on a thread of its own, see `live_agreement`; which tensors differ is then read from the ledger.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .._rooms import schemas
from ..capture import digest, digest_many, later, placement
from ..capture.later import Later
from ..capture.placement import Group, Placed
from ..judge import rank_sets
from . import incidents
from .contain import contained
from .live_agreement import Live
from .writer import Writer

if TYPE_CHECKING:
    from .recorder import Recorder

MOST = 64
"""Tensors that the record lists as left out."""


AGREE, SAVE, RESUME = "agree", "save", "resume"
PATIENCE = 60.0
"""Seconds that a save waits for its digests to come off the device."""


@dataclass
class _Taken:
    """One look: what was digested at a step, and the digests on their way."""

    step: int
    placed: list[Placed]
    lanes: list[Later]
    """int64[2] of each tensor, stacked by device"""
    order: list[int]
    """places of `placed` in the order of the stacks"""
    moment: str = AGREE

    def ready(self) -> bool:
        return all(part.ready() for part in self.lanes)

    def values(self) -> list[tuple[int, int]]:
        flat = [v for part in self.lanes for v in part.values()]
        out: list[tuple[int, int]] = [(0, 0)] * len(self.placed)
        for n, at in enumerate(self.order):
            out[at] = (flat[2 * n], flat[2 * n + 1])
        return out


class Agreeing:
    """Takes the digests of one process and hands them on when they have arrived."""

    def __init__(self, rec: Recorder) -> None:
        self._rec = rec
        self._on_their_way: deque[_Taken] = deque()
        self._recorded: schemas.Agreement | None = None
        self._live: Live | None = None
        self._replicas: list[Sequence[int]] = []

    def declare(self, replicas: Sequence[Sequence[int]] | str | None) -> None:
        """Take the groups of ranks that the user declares as copies of one another; "all" is one of all ranks."""
        self._replicas = [range(self._rec.world.world_size)] if replicas == "all" else list(replicas or ())  # type: ignore[arg-type]

    def trouble(self, part: str, error: BaseException, consequence: str) -> None:
        """Hand a failure to the recorder."""
        self._rec.trouble(part, error, consequence)

    @property
    def on(self) -> bool:
        """Whether there is anything to compare: several ranks, a model, and digests asked for."""
        s, rec = self._rec.settings, self._rec
        return bool(
            s.agree_every and s.digests and rec.world.world_size > 1 and rec.watched.model is not None
        )

    @contained("agreement", "the state of some steps is not compared between ranks")
    def after(self, w: Writer, step: int, first: bool) -> None:
        """After an update. All ranks digest at the same steps: the first one, and those that `agree_every` divides."""
        if self.on and (first or step % self._rec.settings.agree_every == 0):
            self.take(w, step)

    @contained("agreement", "the state of this moment is not compared tensor by tensor", dict)
    def at(self, w: Writer, step: int, moment: str) -> dict[int, tuple[int, int]]:
        """At a save, or before the first step after a load: digest the state, and give what was found by tensor.

        The rows are what tells, whatever the number of ranks on either side, which tensor was not restored.
        """
        if not self._rec.settings.digests or self._rec.watched.model is None:
            return {}
        taken = self.take(w, step, moment)
        if taken is None or not later.wait(taken.ready, PATIENCE):
            return {}
        return {p.source: lanes for p, lanes in zip(taken.placed, taken.values(), strict=True) if p.whole}

    def take(self, w: Writer, step: int, moment: str = AGREE) -> _Taken | None:
        """Digest the state now; the values are taken later."""
        found = placement.look(self._rec.watched, self._replicas)
        by_device: dict[Any, list[int]] = {}
        for i, p in enumerate(found.placed):
            if digest.has_digest(p.tensor):
                by_device.setdefault(p.tensor.device, []).append(i)
            else:
                found.left_out[p.name] = f"no digest is made of {p.tensor.dtype}"
        order = [i for places in by_device.values() for i in places]
        lanes = [Later(_lanes([found.placed[i] for i in p])) for p in by_device.values()]
        if moment == AGREE:
            self._record(w, found)
        if not order:
            return None
        kept = {i: n for n, i in enumerate(sorted(order))}
        bare = [replace(found.placed[i], tensor=None) for i in sorted(order)]  # it holds no tensor back
        taken = _Taken(step, bare, lanes, [kept[i] for i in order], moment)
        self._on_their_way.append(taken)
        return taken

    def _record(self, w: Writer, found: placement.Placements) -> None:
        """Write down which ranks must agree, at first and whenever that changes."""
        groups: dict[Group, int] = {}
        for p in found.placed:
            for g in p.groups:
                groups[g] = groups.get(g, 0) + 1
        record = schemas.Agreement(
            every=self._rec.settings.agree_every,
            groups=[
                schemas.AgreementGroup(
                    id=g.id, how=g.how, ranks=rank_sets.text(g.ranks), text=g.text, tensors=n
                )
                for g, n in groups.items()
            ],
            undeclared=sum(
                not p.groups and p.part == placement.WHOLE and p.kind != "buffer" for p in found.placed
            ),
            left_out=dict(list(found.left_out.items())[:MOST]),
        )
        alike = self._recorded is not None and (
            [g.id for g in record.groups] == [g.id for g in self._recorded.groups]
        )
        if not alike:
            self._recorded = record
            w.write(record)

    @contained("agreement", "digests of the state are not kept")
    def drain(self, w: Writer) -> None:
        """Take what has arrived: to the table, and to the comparison while the run goes on."""
        while self._on_their_way and self._on_their_way[0].ready():
            taken = self._on_their_way.popleft()
            values = taken.values()
            rank = self._rec.world.rank
            w.columns("states", columns(w.ids.segment, rank, taken.step, taken.placed, values, taken.moment))
            if taken.moment != AGREE:  # other ranks need not save at this step
                continue
            if self._live is None:
                self._live = Live(self._rec, w)
            self._live.put(taken.step, roots(taken.placed, values))
        for raised in self._live.alarms() if self._live is not None else ():
            incidents.of_group(self._rec, w, raised)

    def close(self) -> None:
        """Stop comparing."""
        if self._live is not None:
            self._live.close()

    def gaps(self) -> list[str]:
        """What was not compared while the run went on, in words."""
        return self._live.gaps() if self._live is not None else []


def _lanes(placed: list[Placed]) -> Any:
    """int64[n, 2] on their device: what each part adds to its whole tensor, or its own lanes."""
    return digest_many.lanes(
        [p.tensor for p in placed], [None if p.held is None else (p.shape, p.held) for p in placed]
    )


def columns(
    segment: str,
    rank: int,
    step: int,
    placed: list[Placed],
    lanes: list[tuple[int, int]],
    moment: str = AGREE,
) -> dict[str, Any]:
    """The rows of one look."""
    return {
        "segment": segment,
        "rank": rank,
        "step": step,
        "kind": [p.kind for p in placed],
        "tensor": [p.name for p in placed],
        "part": [p.part for p in placed],
        "groups": [" ".join(dict.fromkeys(g.id for g in p.groups)) for p in placed],
        "lane1": [a for a, _ in lanes],
        "lane2": [b for _, b in lanes],
        "whole": [p.whole for p in placed],
        "elements": [p.elements for p in placed],
        "moment": moment,
    }


def roots(placed: list[Placed], lanes: list[tuple[int, int]]) -> dict[Group, bytes]:
    """Group -> 16 bytes over everything that its ranks must hold alike. A rank's part is no part of it."""
    found: dict[str, tuple[Group, Any]] = {}
    for p, pair in zip(placed, lanes, strict=True):
        line = f"{p.kind} {p.name} {p.part} {pair[0]:x} {pair[1]:x}\n".encode()
        for g in p.groups:
            if g.id not in found:
                found[g.id] = Group("declared", g.ranks, ""), hashlib.sha256(b"lineage-agreement-v1\n")
            found[g.id][1].update(line)
    return {g: sha.digest()[:16] for g, sha in found.values()}
