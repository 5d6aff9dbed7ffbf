"""Small and big ledgers are judged alike: the queries before the detectors leave out nothing that matters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("numpy")

from lineage.fleet import files, find, sql
from lineage.judge import firstbad
from lineage.ledger import cells, reader
from tests.fleet.drawn import Drawn


def key(c: Any) -> tuple[Any, ...]:
    return (
        c.segment,
        c.rank,
        c.step,
        c.signal,
        c.abnormal,
        c.layer,
        c.tensor,
        c.order,
        c.last_good,
        str(c.value),
        c.text,
    )


def early(found: list[Any]) -> set[tuple[Any, ...]]:
    """The cells of each segment before the steps with non-finite values get thinned."""
    out = set()
    for segment in {c.segment for c in found}:
        mine = [c for c in found if c.segment == segment]
        broken = sorted({c.step for c in mine if c.abnormal == "non_finite"})
        end = broken[0] if broken else 1 << 40
        out |= {key(c) for c in mine if c.step <= end}
    return out


@pytest.mark.parametrize("seed", range(24))
def test_a_ledger_drawn_at_random_has_the_same_answer_both_ways(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faults, gaps, twin writers, searches for the scale, seldom kinds, hot and torn files; one portion or many."""
    Drawn(tmp_path, seed)
    monkeypatch.setattr(files, "ROWS", 4000 if seed % 2 else 10**7)
    ledger = reader.open_ledger(tmp_path)
    one, other = cells.find_small(ledger), find.find(ledger)
    assert early(list(other.found)) == early(list(one.found))
    assert {key(c)[:7] for c in other.found} <= {key(c)[:7] for c in one.found}
    assert {key(c)[:2] for c in other.found} == {key(c)[:2] for c in one.found}
    for uid, s in one.seen.items():
        assert other.seen[uid].ranks == s.ranks
        assert sorted(x.split(" (")[0] for x in other.seen[uid].unread) == sorted(
            x.split(" (")[0] for x in s.unread
        )
    answers = [
        {
            uid: b.model_dump_json(exclude={"gaps"} if any(s.unread for s in f.seen.values()) else None)
            for uid, b in f.first_bads.items()
        }
        for f in (one, other)
    ]
    assert answers[0] == answers[1]


def test_the_ledgers_drawn_have_something_to_find(tmp_path: Path) -> None:
    """The comparison above means something: most have a first bad cell, of several kinds."""
    found = []
    for seed in range(8):
        (tmp_path / str(seed)).mkdir()
        Drawn(tmp_path / str(seed), seed)
        mine = cells.find_small(reader.open_ledger(tmp_path / str(seed)))
        found += [(b.cell.signal, b.cell.abnormal) for b in mine.first_bads.values() if b.cell]
        assert any(firstbad.is_certain(c) for c in mine.found)
    assert len(set(found)) >= 3


def test_the_bound_of_the_query_is_that_of_the_rules() -> None:
    """A rule that another window fitted would have to be asked for apart."""
    assert "9 PRECEDING" in sql.odd_values("r")
