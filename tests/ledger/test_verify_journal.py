"""Verifying the journal: each kind of damage is named with its file, its line and its code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from uuid6 import uuid7

import schemas as s
from lineage.ledger import scan, seal
from lineage.ledger.reader import open_ledger
from lineage.ledger.verify import verify

from .helpers import journal, lines, note, put_lines, sealed, segment

Place = tuple[str, str, int]


def found(ledger: Path, *anchors: str) -> set[Place]:
    """Every damage as (code, file, line); none may be called whole."""
    result = verify(ledger, anchors)
    assert result.whole == (not result.damage)
    return {(d.code, d.file, d.line) for d in result.damage}


def name(path: Path) -> str:
    """The journal file's name as damage gives it."""
    return f"{path.parent.name}/{path.name}"


def root(path: Path) -> str:
    """The root of the seal that stands in the last line."""
    return str(s.read_line(lines(path)[-1]).payload.root)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A sealed file: line 1 header, 2 segment, 3 to 6 notes, 7 the seal, which names line 6 as the head."""
    return sealed(tmp_path)


def test_an_undamaged_ledger_is_whole_and_counted(tmp_path: Path, path: Path) -> None:
    sealed(tmp_path, rank=1)
    result = verify(tmp_path)
    assert result.whole
    assert (result.files, result.records, result.seals, result.damage) == (2, 14, 2, [])


@pytest.mark.parametrize("line", [1, 2, 3, 5])
def test_a_changed_byte_breaks_the_chain_at_the_next_line(tmp_path: Path, path: Path, line: int) -> None:
    raw = lines(path)
    at = raw[line - 1].index(b'"mono":') + 8
    raw[line - 1] = raw[line - 1][:at] + bytes([raw[line - 1][at] ^ 1]) + raw[line - 1][at + 1 :]
    put_lines(path, raw)
    assert found(tmp_path) == {("LIN-J003", name(path), line + 1)}


def test_a_changed_byte_in_a_sealed_head_is_named_there_and_at_the_next_line(
    tmp_path: Path, path: Path
) -> None:
    raw = lines(path)
    raw[5] = raw[5].replace(b"note 3", b"note 4")
    put_lines(path, raw)
    assert found(tmp_path) == {("LIN-J003", name(path), 6), ("LIN-J003", name(path), 7)}
    [text] = [d.text for d in verify(tmp_path).damage if d.line == 6]
    assert f"{name(path)} line 7 holds" in text


@pytest.mark.parametrize("line", [1, 3, 5])
def test_a_removed_line_is_named_where_the_next_one_stands_now(tmp_path: Path, path: Path, line: int) -> None:
    raw = lines(path)
    del raw[line - 1]
    put_lines(path, raw)
    assert {("LIN-J003", name(path), line), ("LIN-J004", name(path), line)} == found(tmp_path)


def test_an_inserted_line_is_named(tmp_path: Path, path: Path) -> None:
    raw = lines(path)
    forged = json.loads(raw[3])
    forged["payload"]["recorded"] = ["forged"]
    put_lines(path, [*raw[:3], json.dumps(forged).encode(), *raw[3:]])
    assert found(tmp_path) == {("LIN-J003", name(path), 5), ("LIN-J004", name(path), 5)}


def test_a_doubled_line_is_named(tmp_path: Path, path: Path) -> None:
    raw = lines(path)
    put_lines(path, [*raw[:4], raw[3], *raw[4:]])
    assert {("LIN-J003", name(path), 5), ("LIN-J004", name(path), 5)} == found(tmp_path)


def test_swapped_lines_are_named(tmp_path: Path, path: Path) -> None:
    raw = lines(path)
    raw[2], raw[3] = raw[3], raw[2]
    put_lines(path, raw)
    assert found(tmp_path) == {(code, name(path), n) for n in (3, 4, 5) for code in ("LIN-J003", "LIN-J004")}


def test_an_empty_line_is_named(tmp_path: Path, path: Path) -> None:
    raw = lines(path)
    put_lines(path, [*raw[:3], b"", *raw[3:]])
    assert ("LIN-J002", name(path), 4) in found(tmp_path)


def test_a_file_cut_below_a_head_that_another_file_sealed_is_named(tmp_path: Path) -> None:
    j = journal(tmp_path, rank=1)
    for n in range(4):
        j.append(note(n))
    sealer = sealed(tmp_path)
    put_lines(j.path, lines(j.path)[:3])
    assert found(tmp_path) == {("LIN-J007", j.file, 5)}
    assert f"{name(sealer)} line " in verify(tmp_path).damage[0].text


def test_a_deleted_file_is_named_by_the_seal(tmp_path: Path) -> None:
    gone = sealed(tmp_path, rank=1)
    sealed(tmp_path)
    gone.unlink()
    assert found(tmp_path) == {("LIN-J007", name(gone), 7)}


def test_a_deleted_file_is_named_by_the_header_of_a_later_one(tmp_path: Path) -> None:
    j = journal(tmp_path)
    j.append(note(1))
    journal(tmp_path, previous=scan.heads(tmp_path)[0])
    j.path.unlink()
    assert found(tmp_path) == {("LIN-J007", j.file, 2)}


def test_a_line_that_is_not_json_is_named_and_the_others_are_read(tmp_path: Path, path: Path) -> None:
    raw = lines(path)
    raw[2] = b"{" + raw[2]
    put_lines(path, raw)
    assert found(tmp_path) == {("LIN-J002", name(path), 3), ("LIN-J003", name(path), 4)}
    assert verify(tmp_path).records == 6


def test_a_sealed_head_that_is_not_json_is_changed_and_not_gone(tmp_path: Path, path: Path) -> None:
    raw = lines(path)
    raw[5] = raw[5][:-1]
    put_lines(path, raw)
    assert found(tmp_path) == {
        ("LIN-J002", name(path), 6),
        ("LIN-J003", name(path), 6),
        ("LIN-J003", name(path), 7),
    }


def test_an_unknown_major_schema_is_refused_with_what_to_do(tmp_path: Path) -> None:
    j = journal(tmp_path)
    record = j.append(note(1))
    raw = lines(j.path)
    put_lines(j.path, [raw[0], record.to_line().replace(b"lineage/record/1-0-0", b"lineage/record/9-0-0")])
    assert found(tmp_path) == {("LIN-J005", j.file, 2)}
    text = verify(tmp_path).damage[0].text
    assert "lineage/record/9-0-0" in text
    assert "Install the runlineage release that wrote it" in text


def test_a_newer_addition_of_a_known_schema_is_no_damage(tmp_path: Path) -> None:
    j = journal(tmp_path)
    line = json.loads(j.append(note(1)).to_line())
    line["schema"] = "lineage/record/1-4-2"
    line["payload"]["from_the_future"] = 1
    put_lines(j.path, [lines(j.path)[0], json.dumps(line).encode()])
    assert found(tmp_path) == set()
    assert open_ledger(tmp_path).records[-1].payload.from_the_future == 1


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        (b'"rank":0', b'"rank":-1', "rank"),
        (b'"kind":"coverage"', b'"kind":null', "kind"),
        (b'"recorded":["note 0"]', b'"recorded":7', "recorded"),
        (b'Z","mono"', b'","mono"', "zone"),
    ],
)
def test_a_line_that_does_not_fit_its_schema_is_named_with_the_field(
    tmp_path: Path, before: bytes, after: bytes, word: str
) -> None:
    j = journal(tmp_path)
    j.append(note(0))
    raw = lines(j.path)
    assert before in raw[1]
    put_lines(j.path, [raw[0], raw[1].replace(before, after)])
    assert found(tmp_path) == {("LIN-J006", j.file, 2)}
    assert word in verify(tmp_path).damage[0].text
    assert len(open_ledger(tmp_path).records) == 1


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, path: Path) -> None:
    folder = path.with_name("node1-00001-1-1.jsonl")
    folder.mkdir()
    assert found(tmp_path) == {("LIN-J007", name(folder), 0)}


def test_a_seal_whose_root_does_not_fit_its_heads_is_named(tmp_path: Path) -> None:
    j = journal(tmp_path)
    heads, _ = scan.heads(tmp_path)
    j.append(seal.seal(heads, "close").model_copy(update={"root": "sha256:" + "0" * 64}))
    assert found(tmp_path) == {("LIN-J003", j.file, 2)}
    assert "root does not fit" in verify(tmp_path).damage[0].text


def test_the_roots_of_its_own_seals_match_as_anchors(tmp_path: Path, path: Path) -> None:
    assert found(tmp_path, root(path)) == set()


def test_a_tail_cut_off_with_its_seal_is_found_by_the_anchor(tmp_path: Path, path: Path) -> None:
    anchor = root(path)
    put_lines(path, lines(path)[:4])
    assert found(tmp_path, anchor) == {("LIN-J009", "", 0)}
    assert anchor in verify(tmp_path, [anchor]).damage[0].text


def test_without_an_anchor_a_cut_tail_is_not_seen_and_verify_says_so(tmp_path: Path, path: Path) -> None:
    put_lines(path, lines(path)[:4])
    result = verify(tmp_path)
    assert result.damage == []
    assert result.notes == [
        "no seal is anchored outside this folder, so a tail that was cut off cannot be seen"
    ]


def test_where_anchors_are_recorded_verify_says_where_to_read_them(tmp_path: Path) -> None:
    j = journal(tmp_path)
    made = seal.seal(scan.heads(tmp_path)[0], "close")
    j.append(made)
    j.append(s.Anchor(root=made.root, tracker="mlflow", place="tag lineage.root of run 7"))
    result = verify(tmp_path)
    assert result.anchored == ["mlflow: tag lineage.root of run 7"]
    assert "no anchor was compared" in result.notes[0]
    assert "tag lineage.root of run 7" in result.notes[0]
    assert verify(tmp_path, [made.root]).notes == []


def test_two_processes_that_train_as_one_rank_at_one_time_are_named(tmp_path: Path) -> None:
    uid = str(uuid7())
    first, second, third = (journal(tmp_path, segment=uid) for _ in range(3))
    first.append(segment(uid))
    second.append(segment(uid))
    second.append(note(1))
    third.append(segment(uid))
    first.append(note(2))
    assert found(tmp_path) == {("LIN-J011", second.file, 1), ("LIN-J011", third.file, 1)}
    text = verify(tmp_path).damage[0].text
    assert first.file in text
    assert "both are kept" in text
    assert len(open_ledger(tmp_path).records) == 8


def test_two_ranks_and_a_tool_that_write_at_one_time_are_no_damage(tmp_path: Path) -> None:
    uid = str(uuid7())
    train = [journal(tmp_path, rank, segment=uid) for rank in (0, 1)]
    for j in train:
        j.append(segment(uid))
    tool = journal(tmp_path, segment=uid)
    tool.append(note(1))
    for j in train:
        j.append(note(2))
    tool.append(note(3))
    assert found(tmp_path) == set()


def test_one_rank_in_two_lives_one_after_the_other_is_no_damage(tmp_path: Path) -> None:
    uid = str(uuid7())
    sealed(tmp_path, uid=uid)
    sealed(tmp_path, uid=uid)
    assert found(tmp_path) == set()


def test_verifying_writes_nothing(tmp_path: Path, path: Path) -> None:
    before = sorted((p, os.stat(p).st_mtime_ns) for p in tmp_path.rglob("*"))
    verify(tmp_path)
    assert sorted((p, os.stat(p).st_mtime_ns) for p in tmp_path.rglob("*")) == before
