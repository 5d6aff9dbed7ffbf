"""Importing adds to a ledger by a writer of its own, each event once, masked, and touches no other file."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from pathlib import Path

import pytest

import schemas
from lineage.imports import ImportTrouble
from lineage.imports.events import Done, Told, into_ledger, read
from lineage.ledger import chunks, scan
from lineage.ledger import events as ledger_events
from lineage.ledger.reader import Ledger
from lineage.ledger.verify import verify
from tests.secret_samples import SAMPLES, planted

from .run import XID, at, syslog

REAL = Path(__file__).parents[4] / "shared" / "files"
needs_real = pytest.mark.skipif(not (REAL / "nvrx").exists(), reason="the real files are not at hand")


def files(folder: Path) -> dict[str, str]:
    """Every file with its digest."""
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def imported(ledger: Ledger, path: Path, told: Told | None = None) -> Done:
    (done,) = into_ledger(Ledger(ledger.path), [(path, read(path))], told or Told())
    return done


def test_the_same_line_twice_is_one_event_with_a_count_and_the_same_file_twice_writes_nothing(
    ledger: Ledger, tmp_path: Path
) -> None:
    path = tmp_path / "messages"
    line = syslog(at(5), XID)
    path.write_text(f"{line}\n{line}\n{syslog(at(6), XID)}\n")
    done = imported(ledger, path)
    assert (done.read, done.events, done.new, done.known) == (3, 2, 2, 0)
    before = files(ledger.path)
    done = imported(ledger, path)
    assert (done.events, done.new, done.corrected, done.known) == (2, 0, 0, 2)
    assert files(ledger.path) == before
    counts = [p.event.count for p in ledger_events.read(Ledger(ledger.path)).placed]
    assert counts == [2, 1]


def test_a_log_that_has_grown_adds_what_is_new_and_corrects_a_count(ledger: Ledger, tmp_path: Path) -> None:
    """The later record supersedes the earlier one, which stays in the ledger."""
    path = tmp_path / "messages"
    line = syslog(at(5), XID)
    path.write_text(f"{line}\n")
    imported(ledger, path)
    path.write_text(f"{line}\n{line}\n{syslog(at(9), XID)}\n")
    done = imported(ledger, path)
    assert (done.new, done.corrected, done.known) == (1, 1, 0)
    found = Ledger(ledger.path)
    first, correction, _ = found.of("event")
    assert correction.supersedes == first.id
    assert [p.event.count for p in ledger_events.read(found).placed] == [2, 1]


def test_an_import_has_a_file_of_its_own_and_leaves_every_other_as_it_was(
    ledger: Ledger, tmp_path: Path
) -> None:
    """The chain is whole, its header names all other heads, and a seal covers it."""
    path = tmp_path / "messages"
    path.write_text(syslog(at(5), XID) + "\n")
    before = files(ledger.path)
    imported(ledger, path)
    after = files(ledger.path)
    assert {k: v for k, v in after.items() if k in before} == before
    (new,) = set(after) - set(before)
    records, damage = scan.read_file(ledger.path / new, ledger.path)
    assert damage == []
    assert [r.kind for r in records] == ["journal_header", "event", "seal"]
    assert len(records[0].payload.previous) == 8
    assert verify(ledger.path).damage == []
    assert (ledger.path / new).stat().st_mode & 0o777 == 0o600


def test_an_import_does_not_make_the_run_longer_or_another_one(ledger: Ledger, tmp_path: Path) -> None:
    """Segments, ranks and their lives are the same with events in the ledger, imported a day later."""
    path = tmp_path / "messages"
    path.write_text(syslog(at(5), XID) + "\n")
    lives = ledger_events.read(ledger, also=[(ledger.segments[0].uid, 0)]).run.lives
    imported(ledger, path)
    found = Ledger(ledger.path)
    assert [(s.uid, s.ranks) for s in found.segments] == [(s.uid, s.ranks) for s in ledger.segments]
    assert [(x.first, x.last) for x in ledger_events.read(found).run.lives] == [
        (x.first, x.last) for x in lives
    ]


def test_a_ledger_without_a_segment_takes_no_events(tmp_path: Path) -> None:
    (tmp_path / "empty" / "journal").mkdir(parents=True)
    path = tmp_path / "messages"
    path.write_text(syslog(at(5), XID) + "\n")
    with pytest.raises(ImportTrouble, match="holds no segment"):
        into_ledger(Ledger(tmp_path / "empty"), [(path, read(path))], Told())


def test_secrets_in_words_values_and_codes_are_masked_before_anything_is_hashed(
    ledger: Ledger, tmp_path: Path
) -> None:
    """Every kind of credential that the layer knows, in each field that a site's table may hold."""
    rows = [
        {
            "time": at(5).isoformat(),
            "node": "node001",
            "message": f"job said {s}",
            "code": s,
            "more": s,
            "inner": [s],
        }
        for s in map(planted, SAMPLES)
    ]
    path = tmp_path / "site.json"
    path.write_text(json.dumps(rows))
    imported(ledger, path)
    whole = b"".join(p.read_bytes() for p in ledger.path.rglob("*.jsonl"))
    assert [
        name for name, s in SAMPLES.items() if s.encode() in whole or json.dumps(s)[1:-1].encode() in whole
    ] == []
    assert len(ledger_events.read(Ledger(ledger.path)).placed) >= 1


def test_a_tracker_gets_an_event_without_the_words_of_its_source(ledger: Ledger, tmp_path: Path) -> None:
    """Kernel logs may quote anything, so text and values stay on this machine unless text is shared."""
    path = tmp_path / "messages"
    path.write_text(syslog(at(5), XID) + "\n")
    imported(ledger, path)
    (record,) = Ledger(ledger.path).of("event")
    shared = json.loads(chunks.without_text(record.raw))
    payload = shared["record"]["payload"]
    assert (payload["text"], payload["values"]) == ("(not shared)", {})
    assert payload["category"] == "xid"
    assert b"fallen off the bus." not in chunks.without_text(record.raw)
    schemas.read_line(json.dumps(shared["record"]).encode())


def test_seconds_since_boot_become_times_when_the_boot_is_given(ledger: Ledger, tmp_path: Path) -> None:
    """Without it the event is kept, has no time, and says what would give it one."""
    path = tmp_path / "dmesg"
    path.write_text(f"[  203.000000] {XID}\n")
    done = imported(ledger, path, Told(node="node002"))
    assert done.problems == [
        "LIN-E002: its times count from the boot; --booted says when that was (`uptime -s`)"
    ]
    (found,) = ledger_events.read(Ledger(ledger.path)).placed
    assert found.event.when is None
    booted = at(0)
    done = imported(ledger, path, Told(node="node002", booted=booted, offset=0.0))
    assert (done.corrected, done.problems) == (1, [])
    (found,) = ledger_events.read(Ledger(ledger.path)).placed
    assert found.event.when == booted + timedelta(seconds=203)
    assert found.steps() == "between step 20 and 21"
    assert found.notes == ()


def test_a_year_that_is_not_written_is_the_one_closest_to_the_run(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "messages"
    path.write_text(f"Nov 29 16:03:23 node002 kernel: {XID}\n")
    done = imported(ledger, path)
    assert any("no year" in p for p in done.problems)
    (found,) = ledger_events.read(Ledger(ledger.path)).placed
    assert found.event.when == at(20) + timedelta(seconds=3)


def test_a_file_without_times_is_placed_at_the_time_that_is_given(ledger: Ledger, tmp_path: Path) -> None:
    """Two samples of one tool at two times are two events."""
    path = tmp_path / "dmon"
    path.write_text("#Entity   XIDER\nID\nGPU 0     79\n")
    for step in (5, 6):
        imported(ledger, path, Told(node="node001", at=at(step) + timedelta(seconds=5), offset=0.0))
    placed = ledger_events.read(Ledger(ledger.path)).placed
    assert [(p.ranks, p.event.zone) for p in placed] == [((0,), "given"), ((0,), "given")]
    assert [p.steps() for p in placed] == ["between step 5 and 6", "between step 6 and 7"]


@needs_real
def test_the_real_files_are_imported_once_and_said_to_be_of_another_time(ledger: Ledger) -> None:
    """A dump, a note of faults and a query of 2023 and 2025: kept, in no segment, none given to what ran nearby."""
    names = ("nvrx/_dump_0", "nvrx/fault_injection.log", "m4/gpu.query.0.txt")
    found = [(REAL / n, read(REAL / n)) for n in names]
    first = into_ledger(Ledger(ledger.path), found, Told())
    assert [(d.format, d.new) for d in first] == [("flight-recorder", 6), ("nvrx", 2), ("nvidia-smi-q", 2)]
    again = into_ledger(Ledger(ledger.path), found, Told())
    assert [(d.new, d.known) for d in again] == [(0, 6), (0, 2), (0, 2)]
    placed = ledger_events.read(Ledger(ledger.path)).placed
    assert {p.segment for p in placed} == {None}
    assert {p.why for p in placed if p.event.source.format == "nvrx"} == {
        "no segment of this run has a rank 12",
        "no segment of this run has a rank 14",
    }
    (gpu,) = [p.event for p in placed if p.event.category == "ecc"]
    assert gpu.device_uuid is None
    assert gpu.device_pci == "00000000:07:00.0"
    assert gpu.problems == ["its device has a UUID of zeros, which names no device"]
    assert verify(ledger.path).damage == []
