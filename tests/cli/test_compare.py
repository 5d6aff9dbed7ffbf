"""`compare`, `tree` and `phases` on real ledgers: a run recovered twice, a fork of it in its own ledger, a stranger."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")


from typer.testing import CliRunner, Result

from lineage.cli import common
from lineage.cli.app import app
from lineage.cli.common import CliError
from lineage.ledger.reader import Ledger
from tests.recorder.loop import Loop, attach

CONFIG = {"lr": 0.1, "clip": 1.0}


@dataclass
class World:
    """A folder of ledgers, and the checkpoints beside it."""

    root: Path
    checkpoints: Path

    def invoke(self, *arguments: str, width: int = 120) -> Result:
        """What a command did."""
        common.console.width = width
        result = CliRunner(env={"LINEAGE_DIR": str(self.root)}).invoke(app, list(arguments))
        if result.exception is not None and not isinstance(result.exception, SystemExit | CliError):
            raise result.exception
        return result

    def run(self, *arguments: str, width: int = 120) -> tuple[int, str]:
        """Exit code and output of a command; an error for a person is its text."""
        result = self.invoke(*arguments, width=width)
        if isinstance(result.exception, CliError):
            return int(result.exception.code), str(result.exception)
        return result.exit_code, result.output

    def json(self, *arguments: str) -> Any:
        """What a command prints on stdout with --json; damage stands on stderr."""
        return json.loads(self.invoke(*arguments, "--json").stdout)

    def claims(self, a: str, b: str) -> dict[str, str]:
        return {c["claim"]: c["status"] for c in self.json("compare", a, b)["verdict"]["claims"]}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """base: 12 steps, left after 8, recovered faithfully, then with habits; fork: from step 8 in a run of its own."""
    base = tmp_path_factory.mktemp("pairs")
    w = World(base / "runs", base / "ck")
    before = common.console.width
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)  # so that no git repository that is being worked on is captured
        _train(w)
    yield w
    common.console.width = before


def _train(w: World) -> None:
    """Train all runs."""
    first = Loop()
    with attach(first, w.root, run_id="base", name="the base run", config=CONFIG) as rec:
        for step in (4, 8):
            first.run(rec, step)
            rec.checkpoint(first.save(w.checkpoints / f"step-{step}"), step=step)
        first.run(rec, 12)
    at8 = w.checkpoints / "step-8"
    for name, run, clip, options in (
        ("faithful", "base", 1.0, {}),
        ("habits", "base", 0.03, {}),
        ("fork", "fork", 1.0, {"fork": True, "run_id": "fork"}),
    ):
        loop = Loop(clip=clip).load(at8)
        with attach(loop, w.root, resumed_from=at8, config={**CONFIG, "clip": clip}, **options) as rec:
            loop.run(rec, 12)
            rec.checkpoint(loop.save(w.checkpoints / name), step=12)
        assert (w.root / run).is_dir()
    stranger = Loop(lr=0.2)
    with attach(stranger, w.root, run_id="stranger", config={"lr": 0.2, "clip": 1.0}) as rec:
        stranger.run(rec, 4)


def test_a_fork_is_compared_with_its_parent_from_the_fork_on(world: World) -> None:
    """The parent's ledger is found by the checkpoint's uid; the habits of its newest branch are what parts them."""
    found = world.json("compare", "base", "fork")
    assert found["ancestor"]["step"] == 8
    assert found["ancestor"]["by"] == "uid"
    assert {(d["side"], d["step"], d["concept"]) for d in found["decisive"]} == {
        ("a", 9, "grad_clip"),
        ("between", 12, "weights"),  # digest by digest, which breaks bitwise reproduction alone
    }
    source = next(d["sources"] for d in found["decisive"])[0]
    run, _, place = source.partition("/")
    file, _, line = place.rpartition(":")
    record = json.loads((world.root / run / file).read_text().splitlines()[int(line) - 1])
    assert record["payload"]["kind"] == "drift"
    assert set(world.claims("base:2", "fork").values()) == {"holds"}
    assert world.run("compare", "base:2", "fork")[0] == 0
    assert world.run("compare", "base", "fork")[0] == 1


def test_states_are_named_in_every_way_a_person_may_name_them(world: World) -> None:
    """Uid, its beginning and its end, folder, ledger, run id, name, step, segment."""
    uid = world.json("compare", "base:2@12", "fork")["a"]["checkpoint"]
    for name in (uid, uid[-8:], uid[:30], str(world.checkpoints / "faithful"), "the base run:2@12"):
        side = world.json("compare", name, "fork")["a"]
        assert (side["checkpoint"], side["step"], side["number"]) == (uid, 12, 2), name
    for name in ("base", str(world.root / "base"), "the base run"):
        side = world.json("compare", name, "fork")["a"]
        assert (side["run"], side["checkpoint"], side["number"]) == ("base", None, 3), name
    assert world.json("verdict", "base:2")["verdict"]["status"] == "holds"


def test_a_name_that_fits_several_or_none_says_what_to_write_instead(world: World) -> None:
    """Ambiguous steps, absent steps and segments, unknown names, prefixes of many uids."""
    code, text = world.run("compare", "base@12", "fork")
    assert code == 2
    assert "base:2@12" in text
    assert "base:3@12" in text
    assert "The nearest: step 4 and step 8" in world.run("compare", "base@6", "fork")[1]
    assert "segments 1 to 3" in world.run("compare", "base:9", "fork")[1]
    assert "no run in" in world.run("compare", "nonsense", "fork")[1]
    some = world.json("compare", "base:2@12", "fork")["a"]["checkpoint"]
    code, text = world.run("compare", some[:8], "fork")
    assert (code, "Name more of it" in text) == (2, True)


def test_claims_can_be_asked_for_alone_and_decide_the_exit_code(world: World) -> None:
    """Throughput holds where the loss curve does not."""
    assert world.run("compare", "base", "fork", "--claim", "throughput")[0] == 0
    assert world.run("compare", "base", "fork", "--claim", "loss_curve")[0] == 1
    code, text = world.run("compare", "base", "fork", "--claim", "beauty")
    assert (code, "loss_curve" in text) == (2, True)


def test_what_is_missing_exits_with_4_and_names_the_line_that_would_show_it(
    world: World, tmp_path: Path
) -> None:
    """The fork beside a stranger, its parent's ledger and every sidecar out of reach."""
    alone = World(tmp_path / "runs", tmp_path / "ck")
    shutil.copytree(world.root / "fork", alone.root / "fork")
    shutil.copytree(world.root / "base", alone.root / "other")
    for file in (alone.root / "other" / "journal").glob("*/*.jsonl"):
        kept = [
            line for line in file.read_bytes().splitlines(keepends=True) if b'"kind":"checkpoint"' not in line
        ]
        file.write_bytes(b"".join(kept))
    code, text = alone.run(
        "compare", str(alone.root / "fork"), str(alone.root / "fork"), "--claim", "bitwise"
    )
    assert code == 0, text
    found = alone.json("compare", str(alone.root / "fork"), "other")
    assert found["ancestor"] is None
    assert any(m["concept"] == "parent" for m in found["missing"]["bitwise"])
    text = alone.run("compare", str(alone.root / "fork"), "other")[1]
    assert "Evidence that is missing" in text
    assert "rec.resumed_from(path)" in text


def test_a_checkpoint_whose_ledger_is_gone_is_compared_by_its_sidecar(world: World, tmp_path: Path) -> None:
    """The folder alone leads to the common ancestor; what happened between is not shown."""
    folder = Path(shutil.copytree(world.checkpoints / "fork", tmp_path / "fork"))
    sidecar = json.loads((folder / "lineage.json").read_text())
    (folder / "lineage.json").write_text(
        json.dumps({**sidecar, "ledger": str(tmp_path / "gone"), "run": "gone"})
    )
    found = world.json("compare", str(folder), "base:1")
    assert (found["ancestor"]["step"], found["ancestor"]["by"], found["a"]["run"]) == (8, "uid", "gone")
    assert {c["status"] for c in found["verdict"]["claims"]} == {"not_shown"}
    code, text = world.run("compare", str(folder), "base:1")
    assert code == 4
    assert "its ledger is not at hand" in text


def test_states_that_are_equal_digest_by_digest_are_one_whatever_else_is_lost(
    world: World, tmp_path: Path
) -> None:
    """The fork reached the very state of the faithful branch, and nobody needs its ledger to know."""
    folder = Path(shutil.copytree(world.checkpoints / "fork", tmp_path / "fork"))
    sidecar = json.loads((folder / "lineage.json").read_text())
    (folder / "lineage.json").write_text(json.dumps({**sidecar, "ledger": None, "run": "gone"}))
    found = world.json("compare", str(folder), "base:2@12")
    assert (found["ancestor"]["step"], found["ancestor"]["by"]) == (12, "content")
    assert {c["reason"] for c in found["verdict"]["claims"] if c["claim"] != "throughput"} == {
        "they are the same state"
    }


def test_runs_without_a_common_ancestor_say_so(world: World) -> None:
    """Another rate from the first step on."""
    code, text = world.run("compare", "stranger", "base")
    assert code == 1
    assert "No common ancestor is on record" in text
    assert {d["side"] for d in world.json("compare", "stranger", "base:1")["decisive"]} >= {"between"}


def test_damage_exits_with_3_unless_something_is_broken_anyway(world: World, tmp_path: Path) -> None:
    """A line that cannot be read may be the one that would have broken a claim."""
    copy = Path(shutil.copytree(world.root / "fork", tmp_path / "fork"))
    file = next(f for f in (copy / "journal").glob("*/*.jsonl"))
    lines = file.read_bytes().splitlines(keepends=True)
    lines[-3] = b"{not json}\n"
    file.write_bytes(b"".join(lines))
    assert world.run("compare", "base:2", str(copy))[0] == 3
    assert world.run("tree", str(copy))[0] == 3


@pytest.mark.parametrize("width", [80, 120])
def test_compare_reads_at_80_and_at_120_columns(world: World, width: int) -> None:
    """Tables keep to the terminal; the answer, what decides and both sides' values are there."""
    code, text = world.run("compare", "base", "fork", width=width)
    assert code == 1
    flat = " ".join(text.split())
    for part in (
        "NOT COMPARABLE for",
        "What decides",
        "A at step 9",
        "gradient clipping 0.03 -> 1" if "0.03 -> 1" in flat else "gradient clipping 1 -> 0.03",
        "A requested",
        "B in effect",
        "folded:",
    ):
        assert part in flat, part
    assert all(len(line) <= width for line in text.splitlines() if "│" in line or "━" in line)


def test_all_unfolds_the_rows_that_are_noise(world: World) -> None:
    """Everything that was folded has its row."""
    folded = world.run("compare", "base:2", "fork")[1]
    whole = world.run("compare", "base:2", "fork", "--all")[1]
    assert "none that bears on results differs" in folded
    assert "equal (--all)" in folded
    assert "folded:" not in whole
    assert len(whole.splitlines()) > len(folded.splitlines()) + 10


def test_tree_shows_segments_branches_marks_and_validity(world: World) -> None:
    """The side branch under its checkpoint, the abandoned tail, the newest branch broken."""
    code, text = world.run("tree", "base", width=200)
    assert code == 1
    lines = text.splitlines()
    at = {
        name: next(i for i, line in enumerate(lines) if name in line)
        for name in (
            "segment 1 ·",
            "step 8 (",
            "segment 2 ·",
            "abandoned after step 8",
            "segment 3 ·",
            "(newest)",
        )
    }
    assert list(at.values()) == sorted(at.values())
    depth = {name: len(lines[i]) - len(lines[i].lstrip("│├└─ \u00a0")) for name, i in at.items()}
    assert depth["segment 2 ·"] > depth["step 8 ("] > depth["segment 1 ·"] == depth["segment 3 ·"]
    assert "BROKEN" in lines[at["segment 3 ·"]]
    assert "regime 1 from step 9: gradient clipping 1 -> 0.03" in text


def test_tree_joins_ledgers(world: World) -> None:
    """The fork hangs from its parent's checkpoint, and its twin state is named."""
    text = world.run("tree", "base", "fork", width=220)[1]
    assert "run fork, segment 1 · fork, steps 9 to 12" in text
    assert "the same state as step 12 of segment 1 of run fork" in text
    assert "of a ledger that is not shown here" in world.run("tree", "fork", width=220)[1]
    roots = world.json("tree", "base", "fork")["roots"]
    assert [r["run"] for r in roots] == ["base"]


def test_phases_of_a_real_run(world: World) -> None:
    """Four phases: the shared beginning, two abandoned branches, and the newest under another clip."""
    code, text = world.run("phases", "base", width=140)
    assert code == 0
    found = world.json("phases", "base")
    assert [(p["steps"], p["segments"], p["abandoned"]) for p in found] == [
        ("1 to 8", [1], False),
        ("9 to 12", [1], True),
        ("9 to 12", [2], True),
        ("9 to 12", [3], False),
    ]
    assert [p["clip"]["text"] for p in found] == ["1", "1", "1", "0.03"]
    assert found[3]["learning_rate"]["how"] == "measured"
    assert "The same in every phase" in text
    narrow = world.run("phases", "base", width=80)[1]
    assert "phase 4, regime 1: steps 9 to 12" in narrow
    assert all(len(line.rstrip()) <= 80 for line in narrow.splitlines())


def test_phases_without_a_step_cannot_tell(world: World, tmp_path: Path) -> None:
    """A ledger of no segment."""
    (tmp_path / "empty" / "journal").mkdir(parents=True)
    code, text = world.run("phases", str(tmp_path / "empty"))
    assert (code, "No step of training" in text) == (4, True)


def test_compare_has_nothing_to_compare_in_an_empty_ledger(world: World, tmp_path: Path) -> None:
    """It says so, and what to do."""
    (tmp_path / "empty" / "journal").mkdir(parents=True)
    code, text = world.run("compare", str(tmp_path / "empty"), "base")
    assert (code, "lineage verify" in text) == (4, True)


def test_reading_changes_no_ledger(world: World) -> None:
    """Comparing, drawing and tabling leave every file as it was."""
    before = {p: p.stat().st_mtime_ns for p in world.root.rglob("*") if p.is_file()}
    for arguments in (("compare", "base", "fork"), ("tree", "base"), ("phases", "base")):
        world.run(*arguments)
    assert {p: p.stat().st_mtime_ns for p in world.root.rglob("*") if p.is_file()} == before
    assert not Ledger(world.root / "base").damage
