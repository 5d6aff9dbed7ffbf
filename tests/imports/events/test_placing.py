"""Events get their place by device, process, node or time; what cannot be known is said."""

from __future__ import annotations

import sys
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import schemas
from lineage.capture.pseudonym import node as pseudonym
from lineage.imports.events import Told, into_ledger, read
from lineage.judge.events_clock import clock_doubt, duration_words
from lineage.judge.events_placing import ranks_of
from lineage.judge.events_run import Placed, RankPlace, Run
from lineage.ledger import events as ledger_events
from lineage.ledger.reader import Ledger
from lineage.report import events as words

from .run import BEGAN, GPUS, LATER, RUN, XID, Clock, at, syslog, write


def imported(ledger: Ledger, path: Path, text: str, told: Told | None = None, **more: Any) -> list[Placed]:
    """Import one file, and give all events of the ledger in their places."""
    path.write_text(text)
    into_ledger(ledger, [(path, read(path, **more))], told or Told())
    return list(ledger_events.read(Ledger(ledger.path)).placed)


def test_an_event_stands_between_two_steps_of_the_rank_whose_process_it_names(
    ledger: Ledger, tmp_path: Path
) -> None:
    """The process of an Xid line is rank 0 of the second segment, though that node had ranks 2 and 3 in the first."""
    (found,) = imported(ledger, tmp_path / "messages", syslog(at(20, LATER) + timedelta(seconds=3), XID))
    assert (found.number, found.ranks, found.by) == (2, (0,), "process")
    assert found.steps() == "between step 20 and 21"
    assert "how far its clock is from the run's is not known" in found.notes
    assert found.event.code == "79"
    assert found.event.severity == "fault"
    assert "fallen off the bus" in str(found.event.meaning)
    assert "docs.nvidia.com" in str(found.event.meaning)


def test_ranks_do_not_survive_a_restart_and_devices_do(ledger: Ledger, tmp_path: Path) -> None:
    """One device is rank 2 in the first segment and rank 0 in the second."""
    rows = "time,node,gpu_uuid,category,message\n" + "".join(
        f"{when.isoformat()},node002,GPU-{GPUS[2]},ecc,double bit error\n" for when in (at(5), at(5, LATER))
    )
    first, second = imported(ledger, tmp_path / "site.csv", rows)
    assert (first.number, first.ranks, first.by) == (1, (2,), "device")
    assert (second.number, second.ranks, second.by) == (2, (0,), "device")


def test_a_node_without_a_device_means_all_its_ranks(ledger: Ledger, tmp_path: Path) -> None:
    """A link that went down concerns both ranks of its node."""
    line = syslog(at(7), "mlx5_core 0000:5e:00.0 ib0: Link down", "node001.cluster.example")
    (found,) = imported(ledger, tmp_path / "messages", line)
    assert (found.number, found.ranks, found.by) == (1, (0, 1), "node")
    assert (found.event.category, found.event.code) == ("network", "link down")


def test_an_index_is_only_taken_for_a_local_rank_and_said_to_be(ledger: Ledger, tmp_path: Path) -> None:
    """CUDA_VISIBLE_DEVICES may reorder devices, so index 1 need not be local rank 1."""
    rows = f"time,node,gpu,category,message\n{at(5).isoformat()},node001,1,ecc,error\n"
    (found,) = imported(ledger, tmp_path / "site.csv", rows)
    assert (found.ranks, found.by) == ((1,), "local rank")
    assert any("is not shown" in n for n in found.notes)


def test_an_index_is_no_rank_s_where_the_ranks_trained_on_the_cpu() -> None:
    """GPU 1 of a node is not local rank 1 there: it is an event of the node, and of all its ranks alike."""
    place = schemas.Place(node="n-1", device="cpu", pid=1)
    ranks = [RankPlace("s", n, place.model_copy(update={"local_rank": n})) for n in range(2)]
    event = schemas.Event(
        key="sha256:" + "0" * 64,
        zone="stated",
        category="xid",
        severity="fault",
        text="Xid 79",
        nodes=["n-1"],
        device_index=1,
        source=schemas.EventSource(format="table"),
    )
    found, by, notes = ranks_of(event, Run(ranks, ()))
    assert ([p.rank for p in found], by, notes) == ([0, 1], "node", [])


def test_an_event_of_no_node_is_not_said_to_be_of_all_ranks(ledger: Ledger, tmp_path: Path) -> None:
    """Its time tells the segment; which rank it is of, nothing tells."""
    rows = f"time,category,message\n{at(5).isoformat()},ecc,error\n"
    (found,) = imported(ledger, tmp_path / "site.csv", rows)
    assert (found.ranks, found.by) == ((), "time")
    assert words.place(found).endswith("/ not known")
    assert words.place_words(found).endswith("by its time alone, of no known rank")


def test_a_time_that_cannot_be_read_is_no_missing_one(ledger: Ledger, tmp_path: Path) -> None:
    """A time given for a source without times does not take the place of one that stands there."""
    rows = "time,node,category,message\n30/11/2026 14:40,node001,ecc,error\n,node001,ecc,other\n"
    odd, without = imported(ledger, tmp_path / "site.csv", rows, Told(at=at(5), offset=0.0))
    if odd.event.text != "error":
        odd, without = without, odd
    assert odd.event.when is None
    assert "written '30/11/2026 14:40', is not known" in (odd.why or "")
    assert without.event.when == at(5)


def test_of_a_very_long_file_only_what_is_around_the_run_is_taken(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[into_ledger.__module__], "MANY", 3)
    days = [at(5) + timedelta(days=n) for n in (-9, -2, 0, 2, 9)]
    path = tmp_path / "site.csv"
    path.write_text(
        "time,node,message\n" + "".join(f"{d.isoformat()},node001,x{n}\n" for n, d in enumerate(days))
    )
    (done,) = into_ledger(ledger, [(path, read(path))], Told(offset=0.0))
    assert (done.read, done.new) == (5, 1)
    assert any("4 of 5 are more than a day from the run and were left out" in p for p in done.problems)


def test_an_index_is_a_device_where_another_event_of_the_node_names_both(
    ledger: Ledger, tmp_path: Path
) -> None:
    """Index 1 of node001 is the device of rank 0: what names both decides, and not the local rank."""
    rows = (
        "time,node,gpu,gpu_uuid,category,message\n"
        f"{at(4).isoformat()},node001,1,GPU-{GPUS[0]},ecc,error\n"
        f"{at(5).isoformat()},node001,1,,ecc,another error\n"
    )
    placed = imported(ledger, tmp_path / "site.csv", rows)
    assert [(p.ranks, p.by) for p in placed] == [((0,), "device"), ((0,), "device")]


def test_an_event_of_a_node_in_no_segment_is_kept_and_said_to_be_unplaced(
    ledger: Ledger, tmp_path: Path
) -> None:
    """Its record is there, with the reason; it is not given to whatever ran at that time."""
    (found,) = imported(ledger, tmp_path / "messages", syslog(at(5), XID, "node999"))
    assert found.segment is None
    assert found.ranks == ()
    assert "no segment of this run has a rank on n-" in str(found.why)
    assert "segment 1 ran at that time" in str(found.why)


def test_an_event_between_two_segments_is_unplaced_and_says_how_far_it_is_from_both(
    ledger: Ledger, tmp_path: Path
) -> None:
    """An hour after the begin nothing ran."""
    (found,) = imported(ledger, tmp_path / "messages", syslog(BEGAN + timedelta(hours=1), XID))
    assert found.segment is None
    assert "54 min 55 s after the last record of segment 1 and 1 h before segment 2 began" in str(found.why)
    assert "rank 2 of segment 1, rank 0 of segment 2" in str(found.why)


def test_a_killed_segment_is_taken_to_have_run_on_for_a_while(tmp_path: Path, clock: Clock) -> None:
    """A hang writes nothing: an event minutes after the last step belongs to it, and says by how much."""
    ledger = write(tmp_path / "runs", clock, second=False)
    for file in (ledger.path / "journal").glob("*/*.jsonl"):
        file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))  # no word of its end
    line = syslog(at(30) + timedelta(minutes=9), XID)
    (found,) = imported(Ledger(ledger.path), tmp_path / "messages", line)
    assert found.number == 1
    assert found.steps() == "after step 30, the last on record"
    assert any(n.startswith("9 min after the last record of the segment") for n in found.notes)


def test_a_time_without_a_zone_is_said_and_a_zone_that_is_given_moves_it(
    ledger: Ledger, tmp_path: Path
) -> None:
    """The same file, imported again with its zone, corrects the time of the same event."""
    local = (at(20, LATER) + timedelta(seconds=3)).astimezone(timezone(timedelta(hours=1)))
    rows = f"time,node,category,message\n{local.strftime('%Y-%m-%d %H:%M:%S')},node002,ecc,error\n"
    (found,) = imported(ledger, tmp_path / "site.csv", rows)
    assert found.event.zone == "assumed"
    assert any("zone is not stated" in n for n in found.notes)
    (found,) = imported(
        Ledger(ledger.path), tmp_path / "site.csv", rows, Told(zone=timezone(timedelta(hours=1)))
    )
    assert found.event.zone == "given"
    assert found.steps() == "between step 20 and 21"


def test_a_clock_that_is_off_by_hours_is_said_and_an_offset_brings_it_back(
    ledger: Ledger, tmp_path: Path
) -> None:
    """All events lie hours outside the run; with the offset they lie in it."""
    text = "\n".join(syslog(at(s) - timedelta(hours=5, seconds=-3), XID) for s in (3, 9)) + "\n"
    placed = imported(ledger, tmp_path / "messages", text)
    lives = ledger_events.read(Ledger(ledger.path)).run.lives
    doubt = clock_doubt(placed, lives)
    assert doubt is not None
    assert doubt.startswith("LIN-E003: all 2 times lie outside the run, by 4 h 58 min or more")
    assert "--clock-offset" in doubt
    placed = imported(Ledger(ledger.path), tmp_path / "messages", text, Told(offset=5 * 3600.0))
    assert [p.steps() for p in placed] == ["between step 3 and 4", "between step 9 and 10"]
    assert clock_doubt(placed, lives) is None
    assert all(p.event.shift == 18_000.0 for p in placed)


def test_a_rank_without_a_time_is_placed_only_in_a_run_of_one_segment(
    ledger: Ledger, tmp_path: Path, clock: Clock
) -> None:
    """Ranks are numbered anew at each restart, so of two segments neither is taken."""
    text = "Fault ranks: [3]\nFault delay: 180.0\nRank 3, fault_type: GPU_ERROR\n"
    (found,) = imported(ledger, tmp_path / "fault.log", text)
    assert found.segment is None
    assert "more than one segment fits" in str(found.why)
    nobody = "Fault ranks: [12]\nRank 12, fault_type: GPU_ERROR\n"
    *_, last = imported(Ledger(ledger.path), tmp_path / "other.log", nobody)
    assert last.why == "no segment of this run has a rank 12"
    one = write(tmp_path / "other", clock, second=False)
    (found,) = imported(one, tmp_path / "fault.log", text)
    assert (found.number, found.ranks, found.steps()) == (1, (3,), None)
    assert any("it has no time" in n for n in found.notes)


def test_host_names_become_the_pseudonyms_of_the_run(ledger: Ledger, tmp_path: Path) -> None:
    """Neither the node, nor the words, nor the name of the file keeps a host's name."""
    line = syslog(at(5), "nfs: server node777 not responding, says node002", "node002.cluster.example")
    (found,) = imported(ledger, tmp_path / "messages-node002", line)
    assert found.event.nodes == [pseudonym(RUN, "node002")]
    assert "node002" not in found.event.model_dump_json()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "0.00 s"), (12, "12 s"), (65, "1 min 5 s"), (7_200, "2 h"), (90_000, "1 d 1 h")],
)
def test_a_length_of_time_is_told_in_its_two_largest_units(seconds: float, words: str) -> None:
    assert duration_words(timedelta(seconds=seconds)) == words
