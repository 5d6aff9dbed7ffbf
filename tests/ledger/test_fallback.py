"""A ledger folder that cannot be written: the recorder's writer goes elsewhere, and loses nothing."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import pytest
from uuid6 import uuid7

from lineage.ledger import layout, scan
from lineage.ledger.reader import open_ledger
from lineage.ledger.verify import verify
from lineage.recorder.identity import Ids, World
from lineage.recorder.settings import resolve
from lineage.recorder.writer import Writer

from .helpers import RUN, fill, note, notes_in, sealed, segment, small_disk


@pytest.fixture(autouse=True)
def fallback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where a ledger goes when its own cannot be written."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    assert layout.fallback_root().parent == tmp_path / "tmp"
    return layout.fallback_root() / RUN


def writer(root: Path) -> Writer:
    """The writer of rank 0, without a tracker of the user's."""
    settings = resolve({"dir": str(root), "exit_timeout": 1.0})
    return Writer(settings, World(0, 1, 0), Ids(RUN, str(uuid7()), "argument", "provisional"), None)


def test_under_a_path_that_cannot_be_a_folder_everything_goes_to_the_fallback(
    tmp_path: Path, fallback: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    w = writer(tmp_path / "file" / "runs")
    w.write(segment(w.ids.segment))
    w.write(note(0))
    w.rows(probes=[])
    w.close()
    assert w.ledger == fallback
    assert w.unwritten == 0
    ledger = open_ledger(fallback)
    assert {"journal_header", "segment", "coverage", "seal"} <= {r.kind for r in ledger.records}
    assert notes_in(ledger.records)[0] == "note 0"
    assert verify(fallback).damage == []
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert any("cannot be written" in text and "training goes on" in text for text in warnings)


def test_a_resume_into_a_folder_that_became_read_only_keeps_its_records_elsewhere(
    tmp_path: Path, fallback: Path
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        earlier = sealed(disk / RUN)
        fill(disk)
        w = writer(disk)
        w.write(note(0))
        w.close()
        assert w.ledger == fallback
        assert notes_in(open_ledger(fallback).records) == ["note 0"]
        assert verify(fallback).damage == [], "files of the other folder are not missed here"
        assert any(str(disk / RUN) in n and "verify that one too" in n for n in verify(fallback).notes)
        moved = open_ledger(fallback).of("degraded")[0].payload
        assert (moved.code, moved.part) == ("LIN-J012", "journal")
        assert moved.error == "OSError: No space left on device"
        assert scan.read_file(earlier, disk / RUN)[1] == []
        assert verify(disk / RUN).whole


def test_records_that_a_full_disk_never_took_are_written_elsewhere_at_the_end(
    tmp_path: Path, fallback: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        w = writer(disk)
        w.write(note(0))
        fill(disk)
        n = 0
        while not w.journal.waiting():
            n += 1
            w.write(note(n, size=500))
        w.write(note(n + 1))
        w.close()
        here, there = open_ledger(disk / RUN), open_ledger(fallback)
        assert notes_in(here.records) + notes_in(there.records) == [f"note {k}" for k in range(n + 2)]
        assert w.unwritten == 0
        assert verify(disk / RUN).damage == []
        assert verify(fallback).damage == []
        assert [h.file for h in there.of("journal_header")[0].payload.previous] == [
            r.file for r in here.records if r.kind == "journal_header"
        ]
        assert str(w.journal.path) in caplog.text


def test_where_nothing_takes_the_records_the_loss_is_counted_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    w = writer(tmp_path / "file" / "runs")
    w.write(note(0))
    w.close()
    assert w.unwritten >= 2
    assert f"{w.unwritten} records are lost" in caplog.text
