"""Who writes the series' rows: the training thread of a fast loop, else a thread of their own."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from lineage.recorder import rows as rows_
from lineage.recorder.rows import Rows


class Table:
    """A table that notes who wrote which rows, and does with each write what the test wants."""

    def __init__(self, act: Callable[[], None] = lambda: None) -> None:
        self.act = act
        self.wrote: list[tuple[int, list[dict[str, Any]]]] = []
        self.closed = False

    def write(self, found: list[dict[str, Any]]) -> None:
        self.act()
        self.wrote.append((threading.get_ident(), found))

    def close(self) -> None:
        self.closed = True


def make(table: Table, errors: list[Exception]) -> Rows:
    return Rows(lambda name: table, errors.append)  # type: ignore[arg-type, return-value]


ME = threading.get_ident


def test_a_fast_loop_writes_its_own_rows_at_once() -> None:
    table = Table()
    made = make(table, [])
    for step in range(3):
        made.put({"probes": [{"step": step}]})
        assert table.wrote[-1] == (ME(), [{"step": step}])


def test_a_slow_loop_leaves_its_rows_to_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_, "FAST", 0.0)
    table = Table()
    made = make(table, [])
    made.put({"probes": [{"step": 1}], "batches": [{"step": 1}]})
    assert made.drain(300)
    assert [found for _, found in table.wrote] == [[{"step": 1}], [{"step": 1}]]
    assert ME() not in {who for who, _ in table.wrote}


def test_the_training_thread_never_waits_for_a_write_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread hangs in a write: a fast step's rows wait in memory, in order, and its loop goes on."""
    hanging, release = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        assert release.wait(300)

    monkeypatch.setattr(rows_, "FAST", 0.0)
    table = Table(hang)
    made = make(table, [])
    made.put({"probes": [{"step": 1}]})
    assert hanging.wait(300)
    monkeypatch.setattr(rows_, "FAST", math.inf)
    for step in (2, 3):
        made.put({"probes": [{"step": step}]})
    assert table.wrote == []
    release.set()
    assert made.drain(300)
    assert [found[0]["step"] for _, found in table.wrote] == [1, 2, 3]


def test_a_disk_that_kept_the_training_thread_waiting_is_left_to_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rows_, "STALLED", -1.0)  # so that any write counts as one
    table = Table()
    made = make(table, [])
    made.put({"probes": [{"step": 1}]})
    made.put({"probes": [{"step": 2}]})
    assert made.drain(300)
    assert [who == ME() for who, _ in table.wrote] == [True, False]


def test_rows_that_the_disk_refuses_are_said_and_later_ones_are_written() -> None:
    refusals = [OSError("full"), None]

    def refuse() -> None:
        error = refusals.pop(0)
        if error:
            raise error

    errors: list[Exception] = []
    table = Table(refuse)
    made = make(table, errors)
    for step in (1, 2):
        made.put({"probes": [{"step": step}]})
    assert [str(e) for e in errors] == ["full"]
    assert [found for _, found in table.wrote] == [[{"step": 2}]]


def test_closing_writes_what_waits_and_seals_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_, "FAST", 0.0)
    table = Table()
    made = make(table, [])
    made.put({"probes": [{"step": 1}]})
    made.close(300, lambda name, error: pytest.fail(f"{name}: {error}"))
    assert table.closed
    assert len(table.wrote) == 1


def test_columns_that_come_close_together_are_written_though_no_more_come() -> None:
    """The last step before a loop hangs is the one that people want to see: it waits for no next one."""
    written = threading.Event()
    table = Table(lambda: len(table.wrote) == 1 and written.set())
    made = make(table, [])
    for step in (1, 2):
        made.put_columns("tensors", {"step": [step]})
        if step == 1:
            assert made.drain(300)
    assert written.wait(300)


def test_draining_takes_columns_that_are_kept_for_company(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_, "TOGETHER", 3600.0)
    table = Table()
    made = make(table, [])
    made._columns_at = time.monotonic()
    made.put_columns("tensors", {"step": [1]})
    assert made.drain(300)
    assert len(table.wrote) == 1
