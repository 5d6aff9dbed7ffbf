"""MLflow away in the middle of a run and back before its end: training goes on, and the page has each thing once."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from sqlalchemy import event
from sqlalchemy.engine import Engine

from lineage.cli.sync import sync
from tests.connections import connecting, mine
from tests.ledger.helpers import fill, small_disk
from tests.recorder.loop import Loop, only
from tests.trackers.mlflow.servers import Faulty, Server
from trackers.mlflow_ import rest

from .conftest import Store
from .test_outage_mlflow import page_of
from .test_resume_mlflow import tagged
from .training import CHANGED, FIRST, attach, resumed, settle, train


def once(client: MlflowClient, run_id: str, root: Path) -> None:
    """Everything of two segments is on the page, and nothing twice; a sync finds nothing to show, and changes nothing.

    The segments are of five steps and up to step eight, with a checkpoint at their ends.
    """
    page = page_of(client, run_id)
    tags = page["tags"]
    assert [s["start"] for s in tagged(tags, "segment").values()] == ["fresh", "resume"]
    assert len(tagged(tags, "drift")) == 1
    assert [r["index"] for r in tagged(tags, "regime").values()] == [0, 1]
    assert set(page["regime"]) == {(1, 0.0), (5, 0.0), (6, 1.0), (8, 1.0)}
    assert sorted(step for _, step in page["models"]) == [5, 8]
    assert (tags["lineage/status"], tags["lineage/broken_since_step"]) == ("broken", "6")
    ledger = only(root)
    assert f'"{ledger.of("seal")[-1].payload.root}"' in tags["lineage/anchor"]
    assert ledger.damage == []
    aliases = [a for r in ledger.of("run") for a in r.payload.aliases]
    again = sync(ledger, aliases[0], uri=client.tracking_uri)
    assert again.problems == []
    # notes that were lost make it show a thing once more, which changes nothing
    after = page_of(client, run_id)
    assert {k: v for k, v in after["tags"].items() if tags.get(k) != v} == {}
    assert after == page


def second_segment(root: Path, ck: Path, run: Any, away: Any, back: Any) -> None:
    """A resumed segment in the middle of which the tracker goes away; it is back before the end."""
    loop = resumed(ck)
    with attach(loop, root, run=run, config=CHANGED, resumed_from=ck) as rec:
        train(loop, rec, 6)
        away()
        with connecting() as threads:
            train(loop, rec, 8, slow=False)
            rec.checkpoint(loop.save(ck.with_name("ck8")), step=8)
        assert mine(threads) == 0  # the training thread asks nobody
        back(rec)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["slow", "503", "hang", "lost", "refused"])
def test_whatever_a_server_does_in_the_middle_the_page_is_whole_and_each_thing_stands_there_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """lost: the server does what it is asked, and its answer never arrives."""
    monkeypatch.setattr(rest, "TIMEOUT", (3.0, 2.0))
    faulty = Faulty(server.uri)
    client = MlflowClient(server.uri)
    run_id = client.create_run(client.create_experiment(f"recovery-{fault}")).info.run_id
    root, ck, run = tmp_path / "runs", tmp_path / "ck", (MlflowClient(faulty.uri), run_id)
    loop = Loop()
    with attach(loop, root, run=run, config=FIRST) as rec:
        train(loop, rec, 5, slow=False)
        rec.checkpoint(loop.save(ck), step=5)

    def away() -> None:
        if fault == "refused":
            faulty.close()
        else:
            faulty.fail(fault)

    def back(rec: Any) -> None:
        if fault == "refused":
            faulty.open()
        elif fault == "lost":
            faulty.fail("lost", times=2)
        elif fault != "slow":
            faulty.fail(None)
            faulty.release.set()

    second_segment(root, ck, run, away, back)
    once(client, run_id, root)
    faulty.close()


@contextmanager
def statements() -> Iterator[list[int]]:
    """The threads that execute SQL from here on, one entry for each statement."""
    threads: list[int] = []

    def hear(*_: object) -> None:
        threads.append(threading.get_ident())

    event.listen(Engine, "before_cursor_execute", hear)
    try:
        yield threads
    finally:
        event.remove(Engine, "before_cursor_execute", hear)


def test_a_locked_database_holds_up_no_step_and_the_page_is_whole_afterwards(
    store: Store, tmp_path: Path
) -> None:
    """Whoever waits for the database waits for the end of the lock, which comes after the last step."""
    run_id = store.client.create_run(store.experiment).info.run_id
    root, ck, run = tmp_path / "runs", tmp_path / "ck", (MlflowClient(store.uri), run_id)
    loop = Loop()
    with attach(loop, root, run=run, config=FIRST) as rec:
        train(loop, rec, 5, slow=False)
        rec.checkpoint(loop.save(ck), step=5)
    lock = sqlite3.connect(store.uri.removeprefix("sqlite:///"), isolation_level=None)
    with statements() as threads:
        second_segment(
            root, ck, run, lambda: lock.execute("BEGIN EXCLUSIVE"), lambda rec: lock.execute("ROLLBACK")
        )
        assert mine(threads) == 0
        assert threads
    lock.close()
    once(store.client, run_id, root)


@pytest.mark.parametrize("full", ["ledger", "tracker"])
def test_a_full_disk_stops_nothing_and_the_page_is_whole_when_there_is_room_again(
    store: Store, tmp_path: Path, full: str
) -> None:
    """The disk of the ledger, on which also is noted what was shown; or that of MLflow's database."""
    with small_disk(tmp_path / "disk", "24m") as disk:
        if full == "tracker":
            database = Path(store.uri.removeprefix("sqlite:///"))
            copy = disk / database.name
            copy.write_bytes(database.read_bytes())
            store = Store.__new__(Store)
            store.uri = f"sqlite:///{copy}"
            store.client = MlflowClient(store.uri)
            artifacts = (tmp_path / "artifacts2").as_uri()
            store.experiment = store.client.create_experiment("e2", artifact_location=artifacts)
        run_id = store.client.create_run(store.experiment).info.run_id
        root = (disk if full == "ledger" else tmp_path) / "runs"
        ck, run = tmp_path / "ck", (MlflowClient(store.uri), run_id)
        loop = Loop()
        with attach(loop, root, run=run, config=FIRST) as rec:
            train(loop, rec, 5, slow=False)
            rec.checkpoint(loop.save(ck), step=5)
        filler: list[Path] = []

        def room(rec: Any) -> None:
            filler[0].unlink()
            settle(rec)

        second_segment(root, ck, run, lambda: filler.append(fill(disk)), room)
        ledger = only(root)
        assert "refused" not in " ".join(r.payload.consequence for r in ledger.of("degraded"))
        once(store.client, run_id, root)
        del rec, loop, ledger
