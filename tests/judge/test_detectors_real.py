"""The detectors on real training: known spikes of big runs, and healthy curves."""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from benchmarks import curves, norms, spikes
from benchmarks.detectors import Ours
from lineage.judge.detect_family import Family
from lineage.judge.detect_ranks import odd_ranks
from lineage.judge.detect_signal import replay

EXCERPTS = {e["name"]: e for e in curves.excerpts()}
public = pytest.mark.skipif(not curves.FILES.is_dir(), reason=f"no training curves in {curves.FILES}")


def flagged(name: str, signal: str) -> list[int]:
    return spikes.flagged(Ours(signal), EXCERPTS[name], signal)


def test_the_norm_of_bloom_is_flagged_four_steps_before_its_loss_jumps() -> None:
    """Steps 31,215 to 31,222 of BLOOM-176B: the gradient norm first, 960 at its worst; healthy at 31,250."""
    assert flagged("BLOOM-176B 31214", "grad_norm") == list(range(31215, 31223))
    loss = flagged("BLOOM-176B 31214", "loss")
    assert [s for s in loss if s >= 31219] == [31219, 31220, 31221, 31222]
    assert not {31214, 31215, 31250, 31251} & set(loss)


@pytest.mark.parametrize(
    ("name", "first"), [("13B 29020", 29050), ("104B 7000", 7010), ("104B 6900", 6930), ("104B 17060", 17062)]
)
def test_a_known_loss_spike_is_flagged_at_its_first_row(name: str, first: int) -> None:
    """Whatever the level and the scatter of the run."""
    steps = flagged(name, "loss")
    assert first in steps
    healthy = [s for s in EXCERPTS[name]["step"] if s < first]
    disputed = [s for a, b in EXCERPTS[name]["spikes"]["disputed"].get("loss", []) for s in range(a, b + 1)]
    assert not set(steps) & (set(healthy) - set(disputed))


@pytest.mark.parametrize("name", ["BLOOM-176B 42780", "104B 12000"])
@pytest.mark.parametrize("signal", ["loss", "grad_norm"])
def test_a_slow_node_and_a_changed_rate_are_no_spikes(name: str, signal: str) -> None:
    """Steps at which other things happened, and loss and norm stayed healthy."""
    assert flagged(name, signal) == []


@pytest.mark.parametrize("part", ["tuning", "test", "last"])
def test_layers_and_ranks_of_recorded_healthy_training_raise_few_alarms(part: str) -> None:
    """The first thousand steps of real training, every parameter and every rank: two steps at most."""
    columns = norms.table(part)
    detector = Family()
    layers = norms.family(columns, "layer")[:1000]
    assert sum(bool(detector.update(row)) for row in layers) <= 2
    for signal, prefix in (("loss", "loss"), ("grad_norm_local", "local")):
        ranks = norms.family(columns, prefix)[:1000]
        assert sum(bool(odd_ranks(signal, {int(r): v for r, v in row.items()})) for row in ranks) <= 2


def test_a_layer_at_ten_times_is_named_in_recorded_training() -> None:
    """Each parameter in turn, once the first noisy hundreds of steps are over."""
    rows = norms.family(norms.table("test"), "layer")
    detector = Family()
    for row in rows[:1500]:
        detector.update(row)
    state, row = detector.state(), rows[1500]
    missed = [
        n
        for n in row
        if not any(n in f.members for f in Family(state=state).update({**row, n: 10.0 * row[n]}))
    ]
    assert len(missed) <= 0.05 * len(row), missed


@public
def test_healthy_public_runs_keep_within_three_alarms_per_ten_thousand_values() -> None:
    """Every value of the runs on which nothing was tuned: more than 60,000 of losses and norms."""
    found = curves.curves() | norms.recorded()
    test = curves.split(found, "test")
    assert {c.name.partition("/")[0] for c in test} >= {
        "gpt3-15b-a100",
        "gpt3-15b-h100",
        "modded-adamw",
        "llmc",
    }
    values = sum(len(c.values) for c in test)
    alarms = sum(len(replay(c.signal, c.values)) for c in test)
    assert values > 60_000
    assert alarms <= 3.0 * values / 10_000


@public
def test_the_labelled_spikes_of_the_mixture_of_experts_run_are_found() -> None:
    """All five, and nothing in its 4,470 healthy values."""
    curve = curves.curves()["moe8x7b/loss"]
    at = {i for i, _ in replay("loss", curve.values)}
    steps = [curve.steps[i] for i in sorted(at)]
    for a, b in curve.sick["spikes"]:
        assert any(a <= s <= b for s in steps), (a, b)
    assert not at & curve.healthy()


@public
def test_a_replay_in_another_process_gives_the_same_verdict() -> None:
    """Bit for bit, hash seeds and all: what an audit on another machine would compare."""
    curve = curves.curves()["moe8x7b/loss"]
    here = repr(replay("loss", curve.values))
    code = (
        "from benchmarks import curves; from lineage.judge.detect_signal import replay; import hashlib;"
        "c = curves.curves()['moe8x7b/loss'];"
        "print(hashlib.sha256(repr(replay('loss', c.values)).encode()).hexdigest())"
    )
    root = Path(curves.__file__).parent.parent
    environment = {**os.environ, "PYTHONHASHSEED": "7", "LINEAGE_CURVES": str(curves.FILES)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == hashlib.sha256(here.encode()).hexdigest()


def test_labels_name_every_excerpts_rows_once_and_in_order() -> None:
    """The file that every figure rests on: intervals lie within the rows, numbers are numbers."""
    found = json.loads(curves.LABELS.read_text(encoding="utf-8"))
    for e in found["excerpts"]:
        assert e["step"] == sorted(set(e["step"]))
        for signal in ("loss", "grad_norm"):
            if e[signal] is not None:
                assert len(e[signal]) == len(e["step"])
                assert all(math.isfinite(v) and v > 0 for v in e[signal])
                assert all(a in e["step"] and b in e["step"] for a, b in e["spikes"][signal])
    assert not set(found["split"]["tuning"]) & set(found["split"]["test"])
