"""A site's own tables, and Slurm's lists and rows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage.imports import ImportTrouble
from lineage.imports.events import read, slurm, times


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("node[001-004,007]", ["node001", "node002", "node003", "node004", "node007"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("gpu-a,gpu-b1,c[1-2]", ["gpu-a", "gpu-b1", "c1", "c2"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("n[3]-ib", ["n3-ib"]),
    ],
)
def test_a_node_list_is_expanded_with_its_zeros(text: str, nodes: list[str]) -> None:
    assert slurm.expand(text) == nodes


@pytest.mark.parametrize(
    "text", ["n[1-2", "n[2-1]", "n[a-b]", "n]1[", "n[1-999999999]", "n[1-9999]m[1-9999]", "a b"]
)
def test_a_node_list_that_is_damaged_or_boundless_is_refused(text: str) -> None:
    with pytest.raises(ImportTrouble, match=r"LIN-E00[46]"):
        slurm.expand(text)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=30, unique=True))
def test_any_set_of_numbered_nodes_survives_being_written_as_a_list(numbers: list[int]) -> None:
    """Names of four digits, written singly and as ranges, give the same nodes."""
    assert slurm.expand(f"n[{','.join(f'{n:04d}' for n in numbers)}]") == [f"n{n:04d}" for n in numbers]


def test_hostnames_line_by_line_are_one_list_and_a_doubled_one_is_said(tmp_path: Path) -> None:
    """The output of `scontrol show hostnames`."""
    path = tmp_path / "hosts"
    path.write_text("node001\nnode002\nnode002\n")
    (event,) = read(path).drafts
    assert event.nodes == ("node001", "node002")
    assert event.problems == ["1 nodes stand twice in the list"]


def test_rows_of_sacct_tell_the_end_of_a_job_with_its_nodes(tmp_path: Path) -> None:
    """A job that lost a node, one that still runs, a row that was cut off, and a list that was."""
    path = tmp_path / "sacct"
    path.write_text(
        "JobID|JobName|State|ExitCode|Start|End|NodeList\n"
        "12|train|NODE_FAIL|1:0|2026-11-29T15:00:00|2026-11-29T16:00:00|node[001-002]\n"
        "13|train|CANCELLED by 1000|0:9|2026-11-29T16:10:00|Unknown|node[001\n"
        "14|train|RUN"
    )
    found = read(path)
    first, second = found.drafts
    assert (first.code, first.severity, first.nodes) == ("NODE_FAIL", "fault", ("node001", "node002"))
    assert first.until is not None
    assert first.until.text == "2026-11-29T16:00:00"
    assert (second.code, second.severity, second.nodes) == ("CANCELLED", "warning", ())
    assert any("cut off inside its brackets" in p for p in second.problems)
    assert any("1 rows have fewer cells" in p for p in found.problems)


def test_a_table_is_read_by_the_names_of_its_columns_and_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "monitor.csv"
    path.write_text(
        "timestamp;hostname;gpu_index;event_type;xid;level;message;rack\n"
        "2026-11-29T16:00:00Z;node001:9100;3;xid;79;critical;GPU lost;r7\n"
        "yesterday;node001;GPU-3;link;;warn;ib0 link down;r7\n"
        "2026-11-29T16:00:00Z;node001\n"
    )
    found = read(path)
    first, second, third = found.drafts
    assert (first.category, first.code, first.severity, first.nodes) == ("xid", "79", "fault", ("node001",))
    assert (first.device_index, first.values["rack"], first.values["level"]) == (3, "r7", "critical")
    assert "fallen off the bus" in str(first.meaning)
    assert (second.category, second.severity, second.device_index) == ("network", "warning", 3)
    assert second.problems == ["time 'yesterday' is no time"]
    assert third.text == "no text is given"
    assert any("columns without a meaning here are kept as values: rack" in p for p in found.problems)
    assert any("1 row has fewer cells" in p for p in found.problems)


def test_a_number_in_a_column_of_that_name_is_an_xid(tmp_path: Path) -> None:
    """Without a category and without the word in the text; 0 and an empty cell are none."""
    (tmp_path / "site.csv").write_text(
        "timestamp,hostname,gpu_uuid,xid,message\n"
        "2026-11-29T16:00:00Z,node001,GPU-1,79,it is gone\n"
        "2026-11-29T16:00:01Z,node001,GPU-1,0,all quiet\n"
        "2026-11-29T16:00:02Z,node001,GPU-1,,all quiet\n"
    )
    first, second, third = read(tmp_path / "site.csv").drafts
    assert (first.category, first.code, first.severity) == ("xid", "79", "fault")
    assert first.meaning
    assert [d.category for d in (second, third)] == ["other", "other"]


def test_columns_under_other_names_are_mapped_by_hand(tmp_path: Path) -> None:
    """Unknown columns are refused with what there is; a map names them, and a map that does not fit is said."""
    path = tmp_path / "monitor.csv"
    path.write_text("zeit,rechner,meldung\n2026-11-29 16:00:00+01:00,node001,Xid 48 double bit error\n")
    with pytest.raises(ImportTrouble, match="--map field=column"):
        read(path)
    given = {"time": "zeit", "node": "rechner", "text": "meldung"}
    (event,) = read(path, "auto", given).drafts
    assert (event.code, event.category, event.severity, event.nodes) == ("48", "ecc", "fault", ("node001",))
    with pytest.raises(ImportTrouble, match="there is no column uhr; there are zeit, rechner, meldung"):
        read(path, "table", {"time": "uhr"})
    with pytest.raises(ImportTrouble, match="when is no field; there are time"):
        read(path, "table", {"when": "zeit"})


@pytest.mark.parametrize("form", ["list", "under a key", "lines"])
def test_json_is_read_as_a_list_under_one_key_or_line_by_line(tmp_path: Path, form: str) -> None:
    """Labels one level down count, as an alert manager writes them."""
    alert = {
        "startsAt": "2026-11-29T16:00:00.5Z",
        "labels": {"instance": "node001", "alertname": "GPUThrottled", "severity": "warning"},
        "annotations": {"summary": "clocks lowered by thermal slowdown"},
    }
    path = tmp_path / "alerts.json"
    texts = {
        "list": json.dumps([alert, 3]),
        "under a key": json.dumps({"alerts": [alert]}),
        "lines": json.dumps(alert) + "\n{cut",
    }
    path.write_text(texts[form])
    found = read(path)
    (event,) = found.drafts
    assert (event.category, event.severity, event.nodes) == ("throttle", "warning", ("node001",))
    assert event.when is not None
    assert event.when.precision == pytest.approx(0.1)
    assert bool([p for p in found.problems if "left out" in p]) == (form != "under a key")


@pytest.mark.parametrize(
    ("text", "told", "aware", "precision"),
    [
        ("1796054416", "2026-11-30T16:00:16+00:00", True, 1.0),
        ("1796054416.25", "2026-11-30T16:00:16.250000+00:00", True, 1.0),
        ("1796054416250", "2026-11-30T16:00:16.250000+00:00", True, 1e-3),
        ("1796054416250000123", "2026-11-30T16:00:16.250000+00:00", True, 1e-6),
        ("2026-11-29", "2026-11-29T00:00:00", False, 86_400.0),
        ("2026-11-29 16:00", "2026-11-29T16:00:00", False, 60.0),
        ("2026/11/29 16:00:00.125", "2026-11-29T16:00:00.125000", False, 1e-3),
        ("2026-11-29T16:00:00-0530", "2026-11-29T16:00:00-05:30", True, 1.0),
        ("Sat Mar  4 04:56:17 2023", "2023-03-04T04:56:17", False, 1.0),
        ("Sat Mar  4 04:56:17 UTC 2023", "2023-03-04T04:56:17+00:00", True, 1.0),
        ("Sat Mar  4 04:56:17 CET 2023", "2023-03-04T04:56:17", False, 1.0),
        ("2026-11-29 16:00:00+01", "2026-11-29T16:00:00+01:00", True, 1.0),
        ("2026-11-29 16:00:00 CET", "2026-11-29T16:00:00", False, 1.0),
        ("20261129T160000Z", "2026-11-29T16:00:00+00:00", True, 1.0),
        ("1.7960496e9", "2026-11-30T14:40:00+00:00", True, 1.0),
        ("2026-11-29 4:00:00 PM", None, False, 1.0),
        ("2026-11-29-05", None, False, 1.0),
        ("11/30/2026 14:40:40", None, False, 1.0),
        ("soon", None, False, 1.0),
        ("2026-13-41", None, False, 1.0),
        ("17", None, False, 1.0),
    ],
)
def test_times_are_read_as_they_are_written(
    text: str, told: str | None, aware: bool, precision: float
) -> None:
    """An abbreviation such as CET names several zones, and counts as none."""
    found = times.parse(text)
    assert (found.at.isoformat() if found.at else None) == told
    assert bool(found.at and found.at.tzinfo) == aware
    assert found.precision == pytest.approx(precision)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3600", 3600.0), ("-2h", -7200.0), ("1h30m", 5400.0), ("+45s", 45.0), ("1d", 86_400.0), ("0", 0.0)],
)
def test_an_offset_is_read_as_a_person_writes_it(text: str, seconds: float) -> None:
    assert times.duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "two hours", "900d", "1x"])
def test_an_offset_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"length of time|longer than a year"):
        times.duration(text)


def _table(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "events.csv"
    path.write_text(text)
    return read(path)


def test_a_quote_within_a_text_is_read_as_it_was_written(tmp_path: Path) -> None:
    """The header shows no quotes, the rows do: doubled ones, a comma and a line's end within them."""
    found = _table(tmp_path, 'time,host,message\n1796049640,n1,"a, ""b""\nc"\n1796049641,n1,next\n')
    assert [d.text for d in found.drafts] == ['a, "b"\nc', "next"]
    assert [d.line for d in found.drafts] == [2, 4]
    assert not found.problems


@pytest.mark.parametrize("head", ["Host Name", "host-name", "HOST_NAME", " Hostname"])
def test_a_column_is_found_however_its_words_are_joined(tmp_path: Path, head: str) -> None:
    (event,) = _table(tmp_path, f"Time,{head},Message\n1796049640,n1,x\n").drafts
    assert event.nodes == ("n1",)


def test_a_row_without_its_first_column_of_a_kind_is_read_from_the_next(tmp_path: Path) -> None:
    """Two monitors in one file: each has its own name for the time, the node and the words."""
    path = tmp_path / "both.json"
    rows = [
        {"ts": 1796049640, "host": "n1", "msg": "link down"},
        {"startsAt": "2026-11-30T14:40:41Z", "labels": {"instance": "n2:9400"}, "summary": "hot"},
    ]
    path.write_text(json.dumps(rows))
    found = read(path)
    assert [(d.nodes, d.text) for d in found.drafts] == [(("n1",), "link down"), (("n2",), "hot")]
    assert all(d.when is not None and d.when.at is not None for d in found.drafts)
    assert not found.problems


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            "30/11/2026 14:40:40,n1,x,error,1",
            r"times of 1 row cannot be read \('30/11/2026 14:40:40' in line 3\)",
        ),
        ("1796049640,n1,x,SEV1,1", r"severity of 1 row means nothing here \('SEV1'\)"),
        ("1796049640,n1,x,error,often", "count of 1 row is no number"),
        ("1796049640,n1", "1 row has fewer cells"),
        ("1796049640,n1,x,error,1,beyond", "1 row has more cells"),
        ('1796049640,n1,"x,error,1\n1796049641,n1,y,error,1', r"spans many lines \(line 3 to 4\)"),
    ],
)
def test_what_a_row_says_and_is_not_understood_is_named_for_the_file(
    tmp_path: Path, row: str, said: str
) -> None:
    good = "1796049640,n1,fine,error,1"
    found = _table(tmp_path, f"time,host,message,severity,count\n{good}\n{row}\n")
    assert re.search(said, "\n".join(found.problems)), found.problems
    assert not _table(tmp_path, f"time,host,message,severity,count\n{good}\n").problems
