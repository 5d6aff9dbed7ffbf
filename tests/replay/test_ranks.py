"""A run of two ranks, replayed on one device and by torchrun at its own size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from lineage.ledger.reader import Ledger
from lineage.ledger.verify import verify

ROOT = Path(__file__).parents[2]


def launch(*words: str, ranks: int = 2, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """By torchrun, as a person starts it; one rank is started without."""
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
    command = [sys.executable, *(torchrun if ranks > 1 else []), *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def trained(kind: str, root: Path, *words: str) -> Path:
    done = launch("-m", "tests.replay.two_ranks", kind, str(root), *words)
    assert done.returncode == 0, done.stderr[-3000:]
    return root / "runs" / "two"


def replays(ledger: Path) -> list[Any]:
    return [r.payload for r in Ledger(ledger).of("replay")]


@pytest.mark.slow
def test_a_bad_sample_of_one_rank_shows_on_one_device_and_goes_with_the_batch(tmp_path: Path) -> None:
    """Rank 1's replay shows it; with rank 0's batch it is gone; and rank 0 alone cannot tell."""
    ledger = trained("sample", tmp_path)
    words = ["-m", "lineage", "replay", str(ledger), "--with", "tests.replay.two_ranks:sample"]
    done = launch(*words, "--rank", "1", "--change", "other-rank-batch", "--json", ranks=1)
    assert done.returncode == 0, done.stderr[-3000:]
    control, changed = json.loads(done.stdout)
    assert (control["result"], changed["result"], changed["flips"]) == ("reproduced", "not_reproduced", True)
    assert control["tensors_equal"] == control["tensors_compared"] == 4
    assert control["start"]["replayed_updates"] == 2
    assert "one device makes the step of rank 1, of 2 ranks in the run" in control["given"]
    lowered = {(e["family"], e["aspect"]) for e in control["effects"] if e["direction"] == "lowers"}
    assert {("distributed", "collectives"), ("distributed", "topology"), ("hardware", "timing")} <= lowered
    assert [(e["family"], e["direction"]) for e in changed["effects"]] == [("data", "raises")]
    done = launch(*words, "--rank", "0", ranks=1)
    assert done.returncode == 4
    assert "the abnormal value came with the reduction" in done.stdout
    assert [r.result for r in replays(ledger)] == ["reproduced", "not_reproduced", "inconclusive"]
    assert verify(ledger).whole


@pytest.mark.slow
def test_what_only_several_ranks_do_is_clean_on_one_device_and_shows_at_the_runs_size(tmp_path: Path) -> None:
    """One device lowers data and raises distributed, precision, topology and timing; torchrun gives it bit for bit."""
    ledger = trained("between", tmp_path)
    words = ["-m", "lineage", "replay", str(ledger), "--with", "tests.replay.two_ranks:between"]
    done = launch(*words, ranks=2)
    by_rank = replays(ledger)
    assert [r.result for r in by_rank] == ["reproduced", "reproduced"], done.stdout + done.stderr[-3000:]
    for r in by_rank:
        assert r.world_size == 2
        assert r.given == []
        assert r.tensors_equal == r.tensors_compared == 4
        assert {v.signal: v.equal for v in r.values}["grad_norm"] is True
        assert any(f.operation == "aten.div.Tensor" for f in r.first_non_finite)
    done = launch(*words, "--rank", "0", ranks=1)
    clean = replays(ledger)[-1]
    assert (clean.result, clean.world_size) == ("inconclusive", 1), done.stdout
    assert "made again" in clean.reason


@pytest.mark.slow
def test_a_clean_replay_on_one_device_from_the_state_of_the_step_says_what_it_says(tmp_path: Path) -> None:
    """With the gate the bundle has the state. Data is lowered, not acquitted; what one device leaves out is raised."""
    ledger = trained("between", tmp_path, "gate")
    words = [
        "-m",
        "lineage",
        "replay",
        str(ledger),
        "--with",
        "tests.replay.two_ranks:between",
        "--rank",
        "1",
    ]
    done = launch(*words, ranks=1)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    (clean,) = replays(ledger)
    assert (clean.result, clean.start.source, clean.start.updates_between) == ("not_reproduced", "bundle", 0)
    assert all(c.equal for c in clean.start.components if c.component in ("weights", "optimizer_state"))
    assert {(e.family, e.direction) for e in clean.effects if e.family == "data"} == {("data", "lowers")}
    raised = {(e.family, e.aspect) for e in clean.effects if e.direction == "raises"}
    assert {("distributed", "topology"), ("numerics", "precision"), ("hardware", "timing")} <= raised
    assert any("does not acquit the batch" in text for text in clean.limits)


@pytest.mark.slow
def test_one_device_in_place_of_the_ranks_is_held_against_a_replay_of_the_ranks(tmp_path: Path) -> None:
    """What only ranks do together flips; without a replay at the run's size one device is no change."""
    ledger = trained("between", tmp_path, "gate")
    words = ["-m", "lineage", "replay", str(ledger), "--with", "tests.replay.two_ranks:between"]
    alone = [*words, "--rank", "1", "--change", "single-device"]
    done = launch(*alone, ranks=1)
    assert done.returncode == 4, done.stdout + done.stderr[-3000:]
    assert "made on one device too" in done.stdout
    assert replays(ledger)[-1].flips is None
    launch(*words, ranks=2)
    launch(*alone, ranks=1)
    changed = replays(ledger)[-1]
    (control,) = (r for r in replays(ledger) if r.uid == changed.control)
    assert (control.world_size, control.result, control.changes) == (2, "reproduced", [])
    assert (changed.world_size, changed.result, changed.flips) == (1, "not_reproduced", True)
    assert changed.changes[0].in_effect == "yes"
    assert any("does not acquit the batch" in text for text in changed.limits)
    assert ("distributed", "raises") in {(e.family, e.direction) for e in changed.effects}
    assert verify(ledger).whole
