"""Every command on real ledgers: what it says, its JSON, its exit code, its errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.recorder.loop import Loop, attach
from tests.warm import Warm


@dataclass
class World:
    """One folder of ledgers with a run that broke and was resumed with habits, and a healthy run."""

    root: Path
    checkpoints: Path
    warm: Warm

    @property
    def ledger(self) -> Path:
        return self.root / "broken"

    def run(
        self, *arguments: str, code: int | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the command in a process of its own."""
        done = self.warm.run(
            ["-c", "from lineage.cli import main; main()", *arguments],
            cwd=cwd or self.root.parent,
            env={**os.environ, "LINEAGE_DIR": str(self.root), "COLUMNS": "140"},
        )
        if code is not None:
            assert done.returncode == code, (done.returncode, done.stdout[-1500:], done.stderr[-1500:])
        return done

    def json(self, *arguments: str, code: int | None = None) -> Any:
        """Run it with --json."""
        return json.loads(self.run(*arguments, "--json", code=code).stdout)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, warm_reader: Warm) -> World:
    """Three segments: healthy to NaN, faithful, habits."""
    base = tmp_path_factory.mktemp("cli")
    w = World(base / "runs", base / "ck", warm_reader)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)  # so that no git repository that is being worked on is captured
        _train(w)
    return w


def _train(w: World) -> None:
    """Train both runs."""
    healthy = Loop()
    with attach(healthy, w.root, run_id="healthy", config={"lr": 0.1, "clip": 1.0}) as rec:
        healthy.run(rec, 12)
        rec.checkpoint(healthy.save(w.checkpoints / "healthy"), step=12)
    loop = Loop()
    with attach(loop, w.root, run_id="broken", config={"lr": 0.1, "clip": 1.0}) as rec:
        loop.run(rec, 8)
        rec.checkpoint(loop.save(w.checkpoints / "step-8"), step=8)
        loop.run(rec, 12, spoil=11)
    faithful = Loop().load(w.checkpoints / "step-8")
    with attach(
        faithful, w.root, resumed_from=w.checkpoints / "step-8", config={"lr": 0.1, "clip": 1.0}
    ) as rec:
        faithful.run(rec, 12)
    habits = Loop(clip=0.3).load(w.checkpoints / "step-8", optimizer=False, skip=2)
    with attach(
        habits, w.root, resumed_from=w.checkpoints / "step-8", config={"lr": 0.1, "clip": 0.3}
    ) as rec:
        habits.run(rec, 12)


def test_show_tells_the_run_at_one_glance(world: World) -> None:
    """Segments, the abandoned tail, the first bad cell, what changed, each branch's verdict."""
    text = world.run("show", "broken", code=1).stdout
    for part in (
        "left after 8",
        "first bad in segment 1: rank 0, step 11",
        "gradient clipping 1 -> 0.3",
        "confounded",
        "segment 3: BROKEN",
    ):
        assert part in text, text
    data = world.json("show", "broken", code=1)
    assert [s["number"] for s in data["segments"]] == [1, 2, 3]
    assert data["damage"] == []


def test_show_without_an_argument_takes_the_latest_run(world: World) -> None:
    """The run that was written to last."""
    assert world.json("show", code=1)["run"] == "broken"


def test_show_all_lists_runs_with_their_verdicts(world: World) -> None:
    """One row per run."""
    assert {r["run"]: r["status"] for r in world.json("show", "--all", code=0)} == {
        "healthy": "holds",
        "broken": "broken",
    }


def test_show_knows_a_checkpoint_by_folder_and_by_uid(world: World) -> None:
    """The folder leads to the ledger through its sidecar."""
    data = world.json("show", str(world.checkpoints / "step-8"), code=0)
    uid = data["checkpoint"]["uid"]
    assert data["checkpoint"]["step"] == 8
    assert {m["mark"] for m in data["marks"]} == {"last_good"}
    assert world.json("show", uid[-8:], code=0)["checkpoint"]["uid"] == uid


def test_verdict_exits_by_what_it_finds(world: World) -> None:
    """1 for broken, 0 where all holds, and --fail-on moves the line."""
    assert world.json("verdict", "broken", code=1)["verdict"]["status"] == "broken"
    assert world.json("verdict", "healthy", code=0)["verdict"]["status"] == "holds"
    assert world.json("verdict", str(world.checkpoints / "step-8"), code=0)["verdict"]["status"] == "holds"
    world.run("verdict", "healthy", "--fail-on", "holds", code=1)
    assert "--fail-on takes" in world.run("verdict", "healthy", "--fail-on", "nonsense", code=2).stderr


def test_verdict_against_another_run(world: World) -> None:
    """Two runs of one config began alike; the habits broke the comparison since."""
    found = world.json("verdict", "broken", "--against", "healthy", code=1)["verdict"]
    assert found["reference"] == "run:healthy"
    assert {c["claim"]: c["status"] for c in found["claims"]}["loss_curve"] == "broken"
    same = world.json("verdict", str(world.checkpoints / "step-8"), "--against", "healthy", code=0)["verdict"]
    assert {c["claim"]: c["status"] for c in same["claims"]}["loss_curve"] == "holds"


def test_diff_shows_requested_beside_effective(world: World) -> None:
    """Along one run, and between two."""
    drifts = world.json("diff", "broken", code=1)
    clip = next(c for c in drifts[-1]["changes"] if c["concept"] == "grad_clip")
    assert (clip["requested_before"]["value"], clip["effective_after"]["value"]) == (1.0, 0.3)
    assert world.json("diff", "broken:2", "healthy", code=0)[0]["changes"] == []
    newest = world.json("diff", "healthy", "broken", code=1)[0]["changes"]
    assert {c["concept"] for c in newest} >= {"grad_clip"}
    assert "A requested" in world.run("diff", "healthy", "broken", code=1).stdout
    assert "requested before" in world.run("diff", "broken", code=1).stdout


def test_first_bad_names_rank_and_step(world: World) -> None:
    """1 where there is one, 0 where there is none."""
    data = world.json("first-bad", "broken", code=1)
    assert (data["first_bad"]["cell"]["rank"], data["first_bad"]["cell"]["step"], data["segment"]) == (
        0,
        11,
        1,
    )
    text = world.run("first-bad", "broken", code=1).stdout
    assert "FIRST" in text
    assert "lineage incident preserve" in text
    assert world.json("first-bad", "healthy", code=0)["first_bad"] is None
    assert "No bad cell" in world.run("first-bad", "healthy", code=0).stdout
    assert "segments 1 to 3" in world.run("first-bad", "broken", "--segment", "9", code=2).stderr


def test_preserve_keeps_the_evidence_from_rotation(world: World) -> None:
    """Last good checkpoint, first bad batch, rank files: verified, and still there when the original is gone."""
    data = world.json("incident", "preserve", "broken", code=0)
    kept = {p["what"]: p for p in data["preserved"]}
    assert set(kept) == {"last good checkpoint", "first bad batch", "rank files"}
    assert all(p["verified"] for p in kept.values())
    copy = world.ledger / kept["last good checkpoint"]["location"] / "state.pt"
    assert copy.read_bytes() == (world.checkpoints / "step-8" / "state.pt").read_bytes()
    assert world.json("verify", "broken", code=0)["whole"] is True
    assert "preserved" in {m["mark"] for m in world.json("show", str(world.checkpoints / "step-8"))["marks"]}


def test_preserve_without_a_bad_cell_cannot_tell(world: World) -> None:
    """Nothing is known to be bad, so nothing is known to be the last good."""
    assert "no bad cell" in world.run("incident", "preserve", "healthy", code=4).stderr


def test_report_writes_both_forms(world: World, tmp_path: Path) -> None:
    """Markdown and one HTML file."""
    written = world.json("report", "broken", "--out", str(tmp_path / "r"), code=0)["written"]
    assert [Path(p).name for p in written] == ["report.md", "report.html"]
    assert all(Path(p).stat().st_size > 1000 for p in written)


def test_verify_names_the_damage_and_exits_with_3(world: World, tmp_path: Path) -> None:
    """A changed line is named by file and line."""
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(world.root / "healthy", copy)
    file = next((copy / "journal").glob("*/*.jsonl"))
    lines = file.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"rank":0', b'"rank":1', 1)
    file.write_bytes(b"".join(lines))
    damage = world.json("verify", str(copy), code=3)["damage"]
    assert {(d["code"], d["line"]) for d in damage} >= {("LIN-J003", 4)}
    assert file.name in damage[0]["file"]
    assert "DAMAGED" in world.run("verify", str(copy), code=3).stdout
    assert "damaged:" in world.run("show", str(copy), code=3).stdout
    assert world.json("verdict", str(copy), code=3)["verdict"]["status"] == "not_shown"


def test_schema_prints_lists_and_checks(world: World) -> None:
    """The published schemas are as the code generates them."""
    assert "checkpoint" in world.run("schema", code=0).stdout.split()
    assert json.loads(world.run("schema", "checkpoint", code=0).stdout)["$id"].endswith("/checkpoint/1-0-0")
    assert world.json("schema", "--check", code=0)["problems"] == []
    assert "lineage schema" in world.run("schema", "nonsense", code=2).stderr


def test_doctor_prints_each_setting_with_its_source(world: World) -> None:
    """Where a value came from is the question that one asks at 3 a.m."""
    data = world.json("doctor", code=0)
    assert data["settings"]["dir"] == {"value": str(world.root), "source": "LINEAGE_DIR"}
    assert data["settings"]["digests"]["source"] == "default"
    assert "share" in world.run("doctor", code=0).stdout


def test_sync_without_a_tracker_says_where_the_page_is(world: World) -> None:
    """A run of no tracker has its page in the ledger."""
    assert "view/" in world.run("sync", "broken", code=2).stderr


def test_what_is_not_there_is_said_with_where_was_looked(world: World, tmp_path: Path) -> None:
    """Unknown names, empty folders, checkpoints without a sidecar."""
    assert str(world.root) in world.run("show", "nonsense", code=2).stderr
    (tmp_path / "plain").mkdir()
    assert "LIN-C001" in world.run("show", str(tmp_path / "plain"), code=2).stderr
    empty = subprocess.run(
        [sys.executable, "-c", "from lineage.cli import main; main()", "show"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "LINEAGE_DIR": str(tmp_path / "none")},
        check=False,
    )
    assert empty.returncode == 2
    assert "lineage demo" in empty.stderr


def test_no_command_prints_a_traceback(world: World) -> None:
    """Errors are for people."""
    for arguments in (
        ("show", "/dev/null"),
        ("verdict", "x"),
        ("diff", "x", "y"),
        ("report", "x"),
        ("verify", "x"),
    ):
        assert "Traceback" not in world.run(*arguments).stderr
