"""Comparing ranks while the run goes on: it is not held up by who is silent, reads little, and says what it can."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist

from lineage.capture.placement import Group
from lineage.judge import agreement
from lineage.judge.agreement import State
from lineage.ledger import states
from lineage.ledger.reader import Ledger
from lineage.recorder import live_agreement
from lineage.recorder.live_agreement import PATIENCE, SHORT, Live

ALL = Group("declared", (0, 1, 2), "")
SAME, OTHER = b"s" * 16, b"o" * 16


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Side:
    """Rank 0's side of it, with a store of its own; its thread is not asked to do anything."""

    def __init__(self, ledger: Path) -> None:
        self.written: list[Any] = []
        tcp = dist.TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=5)
        )
        world = SimpleNamespace(rank=0, world_size=3, store=None)
        ids = SimpleNamespace(segment="s")
        w = SimpleNamespace(ledger=ledger, ids=ids, write=lambda r, **_: self.written.append(r))
        self.live = Live(SimpleNamespace(world=world), w)  # type: ignore[arg-type]
        self.live._thread.close(5.0)
        self.live._why_not, self.live._store = None, dist.PrefixStore("p", tcp)

    def others(self, step: int, roots: dict[int, bytes]) -> None:
        """What other ranks put into the store."""
        for rank, root in roots.items():
            self.live._store.set(live_agreement._key(step, ALL, rank), root.hex())

    def look(self, step: int, roots: dict[int, bytes]) -> None:
        """One digest, the others' roots first."""
        self.others(step, roots)
        self.live._exchange(step, {ALL: SAME})

    def of(self, kind: str) -> list[Any]:
        return [r for r in self.written if r.kind == kind]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(live_agreement, "time", made)
    return made


@pytest.fixture
def side(tmp_path: Path, clock: Clock) -> Side:
    return Side(tmp_path)


def rows_of(monkeypatch: pytest.MonkeyPatch, rows: list[State], there: set[int]) -> list[int]:
    """Let the ledger hold these rows; returns the steps from which it is read."""
    read: list[int] = []

    def compare(ledger: Ledger, segment: str, since: int) -> agreement.Compared:
        read.append(since)
        return agreement.compare([s for s in rows if s.step >= since], {"g": ALL.ranks})

    monkeypatch.setattr(states, "compare_since", compare)
    monkeypatch.setattr(states, "ranks_of", lambda *_: there)
    return read


def state(rank: int, step: int, value: int, tensor: str = "w") -> State:
    return State(rank, step, "weight", tensor, "whole", ("g",), (value, value))


def test_a_rank_that_stays_silent_holds_up_the_first_comparison_alone(side: Side, clock: Clock) -> None:
    side.look(1, {1: SAME})
    first = clock.now
    assert first >= PATIENCE
    side.look(2, {1: SAME})
    assert clock.now - first <= 2 * SHORT
    assert "rank 2 gave no digest" in side.live.gaps()[0]
    side.look(3, {1: SAME, 2: SAME})
    assert side.live._quiet == set()  # it is back, and is waited for again


def test_the_difference_of_others_is_told_while_one_rank_is_silent(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_of(monkeypatch, [state(0, 1, 5), state(1, 1, 6)], {0, 1})
    side.look(1, {1: OTHER})
    assert [f.code for f in side.of("finding")] == ["LIN-R002"]


def test_what_lasts_is_told_once_and_the_ledger_is_read_from_the_last_digest_on(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [state(r, s, s * 10 + (r == 2 and s > 2)) for r in ALL.ranks for s in range(1, 9)]
    rows += [state(r, s, s * 10 + (r == 2 and s > 6), "v") for r in ALL.ranks for s in range(1, 9)]
    since = rows_of(monkeypatch, rows, {0, 1, 2})
    for step in range(1, 9):
        side.look(step, {1: SAME, 2: OTHER if step > 2 else SAME})
    assert since == [2, 3, 4, 5, 6, 7]
    said = side.of("finding")
    assert [(f.names, f.values["first_step"].plain(), f.values["agreed_at"].plain()) for f in said] == [
        (["w"], 3, 2),
        (["v"], 7, 6),
    ]
    assert [a.code for a in side.of("alarm")] == ["LIN-A007", "LIN-A007"]


def test_the_odd_rank_hears_of_it_at_its_next_digest_and_the_others_do_not(
    side: Side, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Through the store, once, with the step of the digest: so that each can keep its own evidence."""
    rows = [state(r, s, s * 10 + (r == 2 and s > 1)) for r in ALL.ranks for s in (1, 2)]
    rows_of(monkeypatch, rows, {0, 1, 2})
    for step in (1, 2):
        side.look(step, {1: SAME, 2: OTHER if step > 1 else SAME})
    (raised,) = side.live.alarms()
    assert (raised.own, raised.step) == (True, 2)
    heard = {}
    for rank in (1, 2):
        other = Side(tmp_path)
        other.live._rank, other.live._store = rank, side.live._store
        other.live._exchange(3, {ALL: SAME})
        other.live._exchange(4, {ALL: SAME})
        heard[rank] = other.live.alarms()
        assert other.written == [], "the alarm is on record once"
    assert heard[1] == []
    (found,) = heard[2]
    assert (found.own, found.step, found.alarm.tensors) == (False, 2, ["w"])


def test_ranks_are_named_without_the_tensors_where_their_rows_are_elsewhere(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    since = rows_of(monkeypatch, [state(0, s, s) for s in (1, 2, 3)], {0})
    for step in (1, 2, 3):
        side.look(step, {1: SAME, 2: OTHER if step > 1 else SAME})
    (said,) = side.of("finding")
    assert (said.code, said.values["rank"].plain(), said.values["agreed_at"].plain()) == ("LIN-R001", 2, 1)
    assert "the rows of ranks 1-2 were not in this ledger" in said.text
    assert said.names == []
    assert since == []
    assert [a.code for a in side.of("alarm")] == ["LIN-A007"]


def test_a_rank_takes_its_old_roots_back_out_of_the_memory_of_the_store(side: Side, clock: Clock) -> None:
    side.look(1, {1: SAME, 2: SAME})
    clock.sleep(live_agreement.KEPT / 2)
    side.look(2, {1: SAME, 2: SAME})
    clock.sleep(live_agreement.KEPT / 2 + 1)
    side.look(3, {1: SAME, 2: SAME})
    there = [side.live._store.check([live_agreement._key(s, ALL, 0)]) for s in (1, 2, 3)]
    assert there == [False, True, True]
