"""Comparing ranks while the run goes on, through the key-value store that the process group has already.

A thread of its own puts one root of 16 bytes per group and digest into the store, through a connection of its own
with time limits; the lowest rank of each group reads those of the others. Nothing here is a collective, and nothing
of it is on the training thread: a rank that is frozen or gone is silent, and that is said. Only where roots differ
are digests of tensors compared, and those are read from the ledger, from the last agreement on; where it does not
have the rows of all of them, the ranks are named without the tensors. The ranks that are named hear of it at their
next digest, so that each keeps its own evidence.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .._rooms import schemas
from ..capture.placement import Group
from ..judge import agreement_findings, rank_sets
from ..judge.agreement import Disagreement
from ..ledger import states
from ..ledger.reader import Ledger
from . import findings
from .contain import describe
from .worker import Worker
from .writer import Writer

if TYPE_CHECKING:
    from .recorder import Recorder

TIMEOUT = timedelta(seconds=5)
"""For one operation of the store."""
PATIENCE = 30.0
"""Seconds for which the roots of the others are waited for, on this thread alone."""
SHORT = 1.0
"""Seconds for a rank that was silent at the digest before: one that is gone must not hold up the comparison of the
others."""
KEPT = 300.0
"""Seconds after which a rank takes its own root back from a TCPStore, which holds everything in memory."""
PAUSE = 0.1
AGREEMENT = ("LIN-R001", "LIN-R002")
"""Findings that are an alarm."""
SETTLING = 5.0
"""Seconds given to the other ranks' rows to reach the ledger before tensors are named from it."""


MOST_TOLD = 16
"""Alarms of one group that the other ranks are told of through the store."""
NAMED = 8
"""Ranks that are told where no majority says which ones are odd."""


@dataclass(frozen=True)
class Raised:
    """An alarm of a group of ranks, as one of them knows it."""

    alarm: schemas.Alarm
    step: int
    """of the digest that differed"""
    record: str | None
    """the id of the alarm's record, which the group's lowest rank has written"""
    own: bool
    """whether this rank raised it; the others only keep their evidence"""


class Live:
    """One rank's side of it. Everything but `put` and `close` runs on its own thread."""

    def __init__(self, rec: Recorder, w: Writer) -> None:
        self._rec, self._w = rec, w
        self._rank = rec.world.rank
        self._thread = Worker("lineage-agreement", self._failed)
        self._store: Any = None
        self._why_not: str | None = None
        self._silent: dict[int, int] = {}
        self._quiet: set[int] = set()
        """ranks that were silent when they were asked last"""
        self._mine: deque[tuple[float, str]] = deque()
        """(when, key) of what this rank put into a store that holds it in memory"""
        self._since: dict[Group, int] = {}
        """the last step at which a group's roots agreed, or up to which its differences are told"""
        self._agreed: dict[Group, int] = {}
        self._told: set[tuple[object, ...]] = set()
        self._closing = False
        self._alarms: deque[Raised] = deque()
        self._told_of: Counter[str] = Counter()
        """group -> its alarms that this rank has told the others of, or has heard of"""
        self._thread.put(self._connect)

    def _failed(self, error: Exception) -> None:
        self._why_not = describe(error)

    def _connect(self) -> None:
        self._store, self._why_not = connect(self._rec.world.store, f"lineage/agree/{self._w.ids.segment}")

    def put(self, step: int, roots: Mapping[Group, bytes]) -> None:
        """Take the roots of a step. Never waits."""
        if roots:
            self._thread.put(lambda: self._exchange(step, roots))

    def _exchange(self, step: int, roots: Mapping[Group, bytes]) -> None:
        if self._store is None or self._why_not is not None:
            return
        for group, root in roots.items():
            self._store.set(_key(step, group, self._rank), root.hex())
            self._mine.append((time.monotonic(), _key(step, group, self._rank)))
        self._take_back()
        for group, root in roots.items():
            if self._rank == group.ranks[0]:
                self._compare(step, group, root)
            else:
                self._hear(group)

    def _take_back(self) -> None:
        """Delete old roots of this rank: whoever reads them has done so long ago."""
        old = time.monotonic() - KEPT
        while self._mine and self._mine[0][0] < old:
            _, key = self._mine.popleft()
            if isinstance(self._store.underlying_store, sys.modules["torch"].distributed.TCPStore):
                self._store.delete_key(key)

    def _compare(self, step: int, group: Group, mine: bytes) -> None:
        others = [r for r in group.ranks if r != self._rank]
        found = self._collect(step, group, others)
        if not self._closing:  # at the end of a run the others are ending too
            self._silent.update({rank: step for rank in others if rank not in found})
        if not found:
            return
        found[self._rank] = mine.hex()
        if len(set(found.values())) > 1:
            self._name(step, group, found)
        else:
            self._since[group] = self._agreed[group] = step

    def _collect(self, step: int, group: Group, ranks: list[int]) -> dict[int, str]:
        """Rank -> its root, of those that give it in time."""
        begin = time.monotonic()
        missing, found = list(ranks), dict[int, str]()
        while missing and not self._closing:
            there = self._there(step, group, missing)
            patience = SHORT if self._quiet.issuperset(missing) else PATIENCE
            if there:
                for rank in there:
                    found[rank] = self._store.get(_key(step, group, rank)).decode()
                missing = [r for r in missing if r not in found]
            elif time.monotonic() >= begin + patience:
                break
            else:
                time.sleep(PAUSE)
        self._quiet = (self._quiet - found.keys()) | set(missing)
        return found

    def _there(self, step: int, group: Group, ranks: list[int]) -> list[int]:
        """Those that have put their root: one question where all have, else one for each."""
        if self._store.check([_key(step, group, r) for r in ranks]):
            return ranks
        return [r for r in ranks if self._store.check([_key(step, group, r)])]

    def _name(self, step: int, group: Group, roots: Mapping[int, str]) -> None:
        """Roots differ: say which tensors, from the ledger, each once; without it say which ranks."""
        ledger, segment = self._w.ledger, self._w.ids.segment
        there = self._wait_for_rows(step, roots.keys())
        since = self._since.get(group, 0)
        new: list[Disagreement] = []
        if there >= roots.keys():
            compared = states.compare_since(Ledger(ledger), segment, since)
            new = [d for d in compared.found if d.declared and _place(d) not in self._told]
            self._told.update(map(_place, new))
            compared.found = new
            for f in agreement_findings.findings(compared):
                self._say(f, step, group)
        if new or there >= roots.keys():
            self._since[group] = step  # what is read again is one digest, not all of the run
        else:
            key = (group, frozenset(r for r, v in roots.items() if v != roots[self._rank]))
            if key not in self._told:
                self._told.add(key)
                absent = sorted(roots.keys() - there)
                self._say(
                    agreement_findings.of_roots(step, self._agreed.get(group), roots, absent), step, group
                )

    def _say(self, f: schemas.Finding, step: int, group: Group) -> None:
        findings.say(self._w, f, step)
        if f.severity == "fault" and f.code in AGREEMENT:
            self._raise(f, step, group)

    def _raise(self, f: schemas.Finding, step: int, group: Group) -> None:
        alarm = schemas.Alarm(
            code="LIN-A007",
            phase="onset",
            signal="replicas",
            scope="group",
            abnormal="differs",
            value=float(f.count or 0),
            tensors=f.names,
            detector={"check": schemas.Scalar.of(f.check), **f.values},
            text=f.text,
        )
        written = self._w.write(alarm, step=step)
        raised = Raised(alarm, step, getattr(written, "id", None), own=True)
        self._alarms.append(raised)
        self._tell(raised, f, group)

    def _tell(self, raised: Raised, f: schemas.Finding, group: Group) -> None:
        """Let the ranks that are named hear of it: the odd ones, or some of those that differ."""
        if self._told_of[group.id] >= MOST_TOLD:
            return
        written = {k: str(f.values[k].plain()) for k in ("odd_ranks", "ranks") if k in f.values}
        ranks = (
            rank_sets.parse(written.get("odd_ranks", "")) or rank_sets.parse(written.get("ranks", ""))[:NAMED]
        )
        told = {
            "alarm": raised.alarm.model_dump(mode="json"),
            "step": raised.step,
            "record": raised.record,
            "ranks": list(ranks),
        }
        self._store.set(_told_key(group, self._told_of[group.id]), json.dumps(told))
        self._told_of[group.id] += 1

    def _hear(self, group: Group) -> None:
        """Take what the group's lowest rank has told since the last digest: one question where it is nothing."""
        while self._told_of[group.id] < MOST_TOLD:
            key = _told_key(group, self._told_of[group.id])
            if not self._store.check([key]):
                return
            told = json.loads(self._store.get(key))
            self._told_of[group.id] += 1
            if self._rank in told["ranks"]:
                alarm = schemas.Alarm.model_validate(told["alarm"])
                self._alarms.append(Raised(alarm, told["step"], told["record"], own=False))

    def alarms(self) -> list[Raised]:
        """Alarms since the last call: whoever asked is told, and evidence is kept, on the training thread."""
        return [self._alarms.popleft() for _ in range(len(self._alarms))]

    def _wait_for_rows(self, step: int, ranks: Set[int]) -> set[int]:
        """The ranks whose rows of a step are in the ledger, which takes them some seconds."""
        end = time.monotonic() + SETTLING
        while True:
            there = states.ranks_of(self._w.ledger, self._w.ids.segment, step)
            if there >= ranks or self._closing or time.monotonic() >= end:
                return there
            time.sleep(0.25)

    def close(self) -> None:
        """Finish what is at hand, within a second."""
        self._closing = True
        self._thread.close(1.0)

    def gaps(self) -> list[str]:
        """What could not be compared while the run went on."""
        if self._why_not is not None:
            return [
                f"replicas were not compared while the run went on ({self._why_not}); lineage ranks compares them"
            ]
        if self._silent:
            last = max(self._silent.values())
            return [
                f"{rank_sets.words(self._silent)} gave no digest of the state in time (last at step {last:,})"
            ]
        return []


def _place(d: Disagreement) -> tuple[object, ...]:
    """A tensor is told once: a moment that differs moves its weight some steps later."""
    return d.tensor, d.part, d.group


def _key(step: int, group: Group, rank: int) -> str:
    return f"{step}/{group.id}/{rank}"


def _told_key(group: Group, number: int) -> str:
    return f"told/{group.id}/{number}"


def connect(store: Any, prefix: str) -> tuple[Any, str | None]:
    """A connection of our own to the process group's store; None, and why, where there can be none."""
    if store is None:
        return None, "there is no process group"
    dist = sys.modules["torch"].distributed
    inner = store
    while hasattr(inner, "underlying_store"):
        inner = inner.underlying_store
    opened: Callable[[], Any]
    if isinstance(inner, dist.TCPStore):
        opened = lambda: dist.TCPStore(inner.host, inner.port, is_master=False, timeout=TIMEOUT)  # noqa: E731
    elif isinstance(inner, dist.FileStore) and os.path.exists(inner.path):
        opened = lambda: dist.FileStore(inner.path, -1)  # noqa: E731
    else:
        return None, f"a {type(inner).__name__} takes no further connection"
    try:
        own = opened()
        own.set_timeout(TIMEOUT)
        return dist.PrefixStore(prefix, own), None
    except Exception as e:
        return None, describe(e)
