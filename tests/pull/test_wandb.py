"""`lineage pull offline-run-...`: a ledger from W&B's own folders alone."""

from __future__ import annotations

import shutil
from pathlib import Path

from lineage.ledger.reader import Ledger
from lineage.pull.pulling import pull
from lineage.pull.source import parse
from trackers.wandb_ import offline_log

from .command import asked, lineage
from .conftest import Trained


def test_the_folder_of_either_segment_gives_the_whole_ledger_held_against_both_anchors(
    offline: Trained, tmp_path: Path
) -> None:
    roots = {offline_log.read_run(s).config["lineage/anchor"]["root"] for s in offline.sources}
    for n, source in enumerate(offline.sources):
        out = tmp_path / f"pulled{n}"
        done = asked(0, "pull", source, "--out", out)
        assert {r for p in done["pages"] for r in p["anchors"]} == roots
        assert asked(0, "verify", out)["whole"]
        opened, original = Ledger(out), offline.original
        assert [(s.uid, s.info.start) for s in opened.segments] == [
            (s.uid, s.info.start) for s in original.segments
        ]
        logged = opened.series("metrics", ["segment", "step", "key"]).to_pylist()
        first, second = (s.uid for s in opened.segments)
        assert [r["step"] for r in logged if r["segment"] == first] == [1, 2, 3, 4]
        assert [r["step"] for r in logged if r["segment"] == second] == [5, 6, 7, 8]


def test_an_audit_takes_the_folder_itself_and_keeps_nothing(offline: Trained, tmp_path: Path) -> None:
    before = {p for p in tmp_path.rglob("*") if "lineage" in p.name}
    found = asked(0, "audit", offline.source)
    assert "LIN-U005" in {f["code"] for f in found["findings"]}
    assert {"LIN-U004", "LIN-U021", "LIN-U043"} == set(found["not_judged"])
    assert "a folder that is gone when this ends" in found["pulled"]["said"][0]
    assert not Path(found["ledger"]).exists()
    assert {p for p in tmp_path.rglob("*") if "lineage" in p.name} == before
    assert lineage("audit", offline.source, "--fail-on", "warning").returncode == 1


def test_a_segment_whose_folder_is_gone_is_named_by_its_lines_and_nothing_stands_in_for_it(
    offline: Trained, tmp_path: Path
) -> None:
    first, second = (s.uid for s in offline.original.segments)
    shutil.rmtree(offline.sources[0])
    done = lineage("pull", offline.sources[1], "--out", tmp_path / "pulled")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "not all there" in done.stdout
    assert f"missing: journal {first}/" in done.stdout
    here = Ledger(tmp_path / "pulled").records
    assert {r.segment for r in here} == {second}
    assert {r.id for r in here} <= {r.id for r in offline.original.records}


def test_an_audit_of_a_part_says_nothing_of_what_was_left_undone(offline: Trained, tmp_path: Path) -> None:
    """A restart, a comparison or an owner may stand in the lines that are not there: none is said to be missing."""
    alone = tmp_path / "part" / Path(offline.sources[1]).name
    shutil.copytree(offline.sources[1], alone)
    done = lineage("audit", alone)
    assert done.returncode == 4
    assert "not all there" in done.stdout
    found = asked(4, "audit", alone)
    assert found["unread"]
    assert {"LIN-I004", "LIN-U001", "LIN-U003", "LIN-U007", "LIN-U031"} <= set(found["not_judged"])
    assert not {f["code"] for f in found["findings"]} & set(found["not_judged"])


def test_a_log_that_is_cut_off_is_read_as_far_as_it_goes_and_lacks_its_anchor_aloud(
    offline: Trained, tmp_path: Path
) -> None:
    shutil.rmtree(offline.sources[1])
    log = next(Path(offline.sources[0]).glob("run-*.wandb"))
    log.write_bytes(log.read_bytes()[:3000])
    done = pull([parse(offline.sources[0])], tmp_path, out=tmp_path / "pulled")
    assert done.verification.whole
    assert any("no anchor stands there" in n for n in done.verification.notes)
    assert any("no anchor was compared: read the root in wandb" in n for n in done.verification.notes)
