"""The experiments about verdicts: their statistics, their faults, and what their tables say."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

for needed in ("torch", "wandb", "mlflow"):
    pytest.importorskip(needed)

from benchmarks import __main__ as command
from benchmarks import confidence, curves, faults, spike_rules
from benchmarks.table import Table

public = pytest.mark.skipif(not curves.FILES.is_dir(), reason=f"no training curves in {curves.FILES}")


def flat(n: int = 600) -> curves.Curve:
    """A healthy curve that moves a little."""
    return curves.Curve("flat/loss", "loss", list(range(n)), [2.0 + 0.01 * math.sin(i) for i in range(n)])


class Above:
    """Flags what is above a bound; can be copied like a rule with a past."""

    def __init__(self, bound: float) -> None:
        self.bound = bound

    def __call__(self, value: float) -> bool:
        return value > self.bound


@pytest.mark.parametrize(
    ("events", "exposure", "low", "high"), [(0, 10_000, 0.0, 3.689), (3, 10_000, 0.6187, 8.767)]
)
def test_the_interval_of_a_rate_is_garwoods(events: int, exposure: int, low: float, high: float) -> None:
    """Tabulated values of the exact Poisson interval at 95 percent."""
    assert confidence.rate(events, exposure) == pytest.approx((low, high), abs=1e-3)


def test_the_interval_of_a_share_is_wilsons() -> None:
    """20 of 40, and all of 40."""
    assert confidence.share(20, 40) == pytest.approx((0.3520, 0.6480), abs=1e-4)
    assert confidence.share(40, 40) == pytest.approx((0.9124, 1.0), abs=1e-4)


def test_faults_do_not_disturb_each_other_and_are_counted() -> None:
    """A rule without memory finds exactly what passes its bound, and no healthy value."""
    out = faults.judge(lambda _: Above(5.0), [flat()], 20)
    assert out.steps == 600
    assert out.alarms == []
    assert {n: s.found / s.tried for n, s in out.faults.items() if n.startswith("x")} == {
        "x1.5": 0.0,
        "x2": 0.0,
        "x3": 1.0,
        "x5": 1.0,
        "x10": 1.0,
        "x30": 1.0,
        "x10 after NaN": 1.0,
    }
    assert out.share("NaN").found == 0
    assert out.share("x3").tried == 20
    assert out.share("rise x1.01").delays == pytest.approx([92] * 20, abs=2)


def test_a_false_alarm_is_a_flagged_healthy_value_and_a_labelled_one_is_none() -> None:
    """Sick and disputed steps count as neither."""
    curve = flat()
    curve.values[100], curve.values[200] = 9.0, 9.0
    sick = curves.Curve(
        curve.name, curve.signal, curve.steps, curve.values, {"spikes": [[99, 101]], "disputed": []}
    )
    out = faults.judge(lambda _: Above(5.0), [sick], 5)
    assert out.alarms == [("flat/loss", 200)]
    assert out.steps == 597


def test_one_nan_blinds_the_rules_that_average_it_in() -> None:
    """SkipStep flags all that follows for a window, ZClip and the monitor see nothing any more."""
    values = [2.0 + 0.01 * math.sin(i) for i in range(200)]
    after: dict[str, list[bool]] = {}
    for name, rule in spike_rules.OTHERS.items():
        flags = rule().flags
        for v in values:
            flags(v)
        flags(math.nan)
        after[name] = [flags(v) for v in [*values[:127], 20.0]]
    assert all(after["OLMo-core SkipStep"])
    assert not any(after["OLMo-core StabilityMonitor"])
    assert not any(after["ZClip"])
    assert after["Lightning SpikeDetection"] == [False] * 127 + [True]


@public
def test_the_table_of_rules_is_made_by_one_command_and_keeps_test_runs_apart(tmp_path: Path) -> None:
    """Ours and another rule, at its smallest size."""
    assert command.main(["detectors", "--smoke", "--out", str(tmp_path)]) == 0
    (table,) = json.loads(next(tmp_path.glob("*.json")).read_text())["experiments"]
    rows = {(r["signal"], r["runs"], r["rule"].rstrip(" *")): r for r in table["rows"]}
    assert {k[2] for k in rows} == {"lineage", "ZClip"}
    test, tuning = rows["loss", "test", "lineage"], rows["loss", "tuning", "lineage"]
    assert test["steps"] >= 30_000
    assert tuning["steps"] < test["steps"]
    for row in table["rows"]:
        assert row["rate"] == pytest.approx(1e4 * row["alarms"] / row["steps"])
        assert 0.0 <= row["x10"] <= 1.0
    assert Table.read(table).markdown() in next(tmp_path.glob("*.md")).read_text()
    assert all(t["met"] for t in table["targets"] if t["text"].startswith("at most 3 false alarms"))


@pytest.mark.parametrize(
    ("name", "column", "expected"), [("spikes", "case", "BLOOM-176B 31214"), ("layers", "what", "ranks of")]
)
def test_the_other_tables_are_made_by_the_command_too(
    name: str, column: str, expected: str, tmp_path: Path
) -> None:
    """Known spikes, and layers with ranks; both from files of this repository."""
    assert command.main([name, "--smoke", "--out", str(tmp_path)]) == 0
    (table,) = json.loads(next(tmp_path.glob("*.json")).read_text())["experiments"]
    assert any(str(r[column]).startswith(expected) for r in table["rows"])


def test_without_curves_the_experiment_says_so_and_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that has no public logs."""
    from benchmarks import detectors

    monkeypatch.setattr(curves, "FILES", Path("/nowhere"))
    table = detectors.run()
    assert table.rows == []
    assert "LINEAGE_CURVES" in table.notes[0]
    with pytest.raises(FileNotFoundError, match="LINEAGE_CURVES"):
        curves.curves()
