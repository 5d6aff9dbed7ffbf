"""Flight-recorder dumps are read without running anything in them; what had not completed is told, and no culprit."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest

from lineage.imports import ImportTrouble
from lineage.imports.events import plain_pickle, read

REAL = Path(__file__).parents[4] / "shared" / "files" / "nvrx"
needs_real = pytest.mark.skipif(not (REAL / "_dump_0").exists(), reason="the real dump is not at hand")


def dump(**more: Any) -> dict[str, Any]:
    """A dump of one group with one operation that did not complete."""
    entry = {
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "profiling_name": "nccl:all_reduce",
        "collective_seq_id": 8,
        "state": "started",
        "time_created_ns": 1_796_054_416_000_000_000,
        "time_discovered_completed_ns": None,
    }
    done = {**entry, "state": "completed", "collective_seq_id": 7}
    status = {"last_enqueued_collective": 8, "last_started_collective": 8, "last_completed_collective": 7}
    return {
        "version": "2.10",
        "nccl_version": "2.27.3",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "pg_status": {"0": status},
        "entries": [done, entry],
        **more,
    }


@needs_real
def test_the_real_dump_names_six_groups_that_waited_and_when() -> None:
    """Of twenty recorded operations none had completed; the oldest of each group is named with its time."""
    found = read(REAL / "_dump_0")
    assert (found.format, found.read, len(found.drafts), found.problems) == ("flight-recorder", 20, 6, [])
    by = {str(d.values["process_group"]): d for d in found.drafts}
    pipeline = by["6 (PIPELINE_MODEL_PARALLEL_GROUP)"]
    assert pipeline.rank == 0
    assert pipeline.when is not None
    assert pipeline.when.at is not None
    assert pipeline.when.at.isoformat() == "2025-09-23T06:55:05.592849+00:00"
    assert pipeline.values["group_ranks"] == "[0, 4, 8, 12]"
    assert (pipeline.values["enqueued"], pipeline.values["completed"]) == (11986, 11983)
    assert "the oldest nccl:send 0->3 (not seen to start)" in pipeline.text
    assert "Which rank it waited for is not shown" in pipeline.text
    assert sum(int(d.values["not_completed"]) for d in found.drafts) == 20


@needs_real
def test_the_real_note_of_injected_faults_is_read_rank_by_rank() -> None:
    found = read(REAL / "fault_injection.log")
    assert [(d.rank, d.code, d.values) for d in found.drafts] == [
        (12, "GPU_ERROR", {"delay_s": 180.0}),
        (14, "GPU_ERROR", {"delay_s": 180.0}),
    ]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_of_every_protocol_reads_as_pickle_reads_it(protocol: int) -> None:
    """The reader builds what `pickle` would have built."""
    shared = [1, 2]
    data = {
        "none": None, "yes": True, "no": False, "ints": [0, -1, 255, 65536, -(2**40), 2**70], "float": -0.5,
        "text": "é" * 300, "bytes": b"\x00\xff", "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
        "same": [shared, shared], "nested": {1: {2.5: {"a": []}}}, "long": list(range(3000)),
    }  # fmt: skip
    if protocol == 2:
        del data["bytes"]  # which protocol 2 writes as a call
    assert plain_pickle.loads(pickle.dumps(data, protocol)) == data


class _Evil:
    def __init__(self, target: Path) -> None:
        self.target = str(target)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.target,)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_hostile_pickle_is_reported_and_nothing_in_it_runs(tmp_path: Path, protocol: int) -> None:
    """A dump that would make a folder when it is unpickled makes none, and the message says what it asked for."""
    trap = tmp_path / "made-by-the-pickle"
    path = tmp_path / "_dump_0"
    path.write_bytes(pickle.dumps({**dump(), "extra": _Evil(trap)}, protocol))
    with pytest.raises(ImportTrouble, match=r"LIN-E005: _dump_0 .*asks for (STACK_)?GLOBAL.*nothing was run"):
        read(path)
    assert not trap.exists()
    pickle.loads(path.read_bytes())  # the trap is real
    assert trap.is_dir()


HOSTILE = {
    "inst": b"(S'true'\nios\nsystem\n.",
    "obj": b"(cos\nsystem\nS'true'\no.",
    "newobj": b"\x80\x02cbuiltins\nobject\n)\x81.",
    "build": b"\x80\x02}}b.",
    "ext": b"\x80\x02\x82\x01.",
    "persid": b"Pname\n.",
    "binpersid": b"\x80\x02Nq\x00Q.",
    "frozenset": b"\x80\x04(K\x01\x91.",
    "bytearray": b"\x80\x05\x96\x01\x00\x00\x00\x00\x00\x00\x00a.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_every_operation_that_is_not_needed_for_plain_data_is_refused_by_name(name: str) -> None:
    with pytest.raises(plain_pickle.Refused) as caught:
        plain_pickle.loads(HOSTILE[name])
    assert caught.value.operation in {o.name for o, _, _ in pickletools.genops(HOSTILE[name])}


def test_a_tuple_as_a_key_is_refused_since_hashing_a_nest_of_them_never_ends() -> None:
    """Sixty tuples, each of two references to the one before, would take 2^60 steps to hash."""
    nest = (
        b"\x80\x02}" + b")q\x00" + b"".join(b"h%c" % i + b"h%c" % i + b"\x86q%c" % (i + 1) for i in range(60))
    )
    with pytest.raises(plain_pickle.Refused, match=r"tuple as a key|damaged"):
        plain_pickle.loads(nest + b"K\x01s.")


@pytest.mark.parametrize("cut", [3, 40, 200, -1])
def test_a_dump_that_is_cut_off_is_said_to_be(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "_dump_3"
    path.write_bytes(pickle.dumps(dump(), 2)[:cut])
    with pytest.raises(
        ImportTrouble, match=r"LIN-E004: _dump_3 is a pickle that was not read: it is .*cut off"
    ):
        read(path)


def test_a_dump_of_another_version_is_read_as_far_as_names_agree_and_said(tmp_path: Path) -> None:
    path = tmp_path / "trace_12"
    path.write_bytes(pickle.dumps(dump(version="3.1"), 2))
    found = read(path)
    assert [p[:43] for p in found.problems] == ["LIN-E006: the dump has version 3.1; version"]
    (event,) = found.drafts
    assert (event.rank, event.values["not_completed"]) == (12, 1)
    assert "(started); enqueued up to 8, completed up to 7" in event.text


def test_a_dump_as_json_and_one_in_which_all_had_completed(tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_5.json"
    path.write_text(json.dumps(dump()))
    (event,) = read(path).drafts
    assert (event.rank, event.code) == (5, "not completed")
    status = {"last_enqueued_collective": 7, "last_completed_collective": 7}
    path.write_text(json.dumps(dump(entries=dump()["entries"][:1], pg_status={"0": status})))
    (event,) = read(path).drafts
    assert (event.severity, event.code) == ("note", "completed")


def test_a_dump_with_values_of_the_wrong_kind_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    """Whatever stands in it, reading ends with events or a word, and not with another error."""
    odd = dump(
        entries=[None, 3, {"pg_id": [], "state": {}, "time_created_ns": "soon"}], pg_status=[1], pg_config=7
    )
    path = tmp_path / "dump"
    path.write_bytes(pickle.dumps(odd, 4))
    found = read(path)
    assert any("does not end with a rank" in p for p in found.problems)
    assert [d.when for d in found.drafts] == [None]
