"""Each experiment runs in its smallest size and says what it should say. Nothing here looks at speed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

for needed in ("torch", "wandb", "mlflow"):
    pytest.importorskip(needed)

from benchmarks import __main__ as command
from benchmarks import timing
from benchmarks.table import Column, Table, Target

BESIDE = {
    "blocking": {
        "by": {
            "the layer, this tracker",
            "the layer, no tracker",
            "MlflowClient.log_batch(synchronous=False)",
            "mlflow.log_metrics",
            "run.log on the run with the layer",
            "run.log on a run without the layer",
        },
        "state": {"MLflow healthy", "MLflow dead", "W&B offline"},
    },
    "journal": {
        "what": {
            "journal, fsync (what the layer does)",
            "journal, no fsync",
            "sqlite3, WAL, synchronous=FULL",
            "logging.FileHandler",
        }
    },
    "attach": {
        "what": {"layer, no torch", "layer, torch model and optimizer", "W&B offline", "MLflow on SQLite"}
    },
    "step": {
        "what": {
            "no layer",
            "no layer, once more",
            "layer, defaults",
            "layer, probes=False",
            ".item() of each gradient norm",
            "wandb.watch(log='all', log_freq=1)",
        }
    },
    "probes": {
        "what": {
            "no layer",
            "no layer, once more",
            "default set",
            "full set",
            "wandb.watch(log='all', log_freq=1)",
            "torch.autograd.set_detect_anomaly(True)",
            ".item() of each gradient norm",
            "an underflow debugger",
        }
    },
    "digest": {
        "what": {
            "lineage.capture.digest.lanes (both lanes)",
            "hashlib.sha256 over the bytes",
            ".double().sum()",
        }
    },
    "files": {
        "what": {
            "BLAKE3, all cores, mapped",
            "BLAKE3, one thread, not mapped",
            "hashlib.sha256",
            "hashlib.md5",
        }
    },
    "agreement": {"what": {"lineage: placement and both lanes", "SHA-1", "a sum in float64"}},
    "async_save": {
        "what": {
            "dcp.async_save",
            "dcp.async_save, once more",
            "dcp.async_save within rec.saving(stager=...)",
            "dcp.async_save within rec.saving(), which",
            "dcp.async_save, and a clone",
            "dcp.async_save, and SHA-256",
        }
    },
    "hardware": {
        "what": {
            "one look at 8 GPUs",
            "a process that is started",
            "one training step without it, once more",
            "one training step with it",
        }
    },
    "observe": {
        "what": {
            "wandb.Run.log, does nothing",
            "wandb.Run.log, W&B offline",
            "MlflowClient.log_metric, SQLite",
            "start of Python without a tracker",
        },
        "by": {"plain", "under observation"},
    },
    "config": {"what": {"lineage.judge.requested.compare", "values by key", "difflib over sorted lines"}},
}
"""Experiment -> column -> what must stand in it."""


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BESIDE))
def test_an_experiment_measures_the_layer_and_its_alternatives_and_keeps_the_result(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command.main([name, "--smoke", "--out", str(tmp_path)]) == 0
    printed = capfd.readouterr().out
    assert printed.count(f"## {name}: ") == 1
    found = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert {"cpu", "cores", "python", "torch", "wandb", "mlflow"} <= found["machine"].keys()
    (table,) = found["experiments"]
    assert table["rows"]
    for column, expected in BESIDE[name].items():
        have = {row[column] for row in table["rows"]}
        missing = {e for e in expected if not any(h.startswith(e) for h in have)}
        assert not missing, have
    for row in table["rows"]:
        assert 0 < row["min"] <= row["median"] <= row["p99"] <= row["max"], row
        assert row["ratio"] > 0
        assert math.isfinite(row["ratio"]), row
    text = next(tmp_path.glob("*.md")).read_text()
    assert all(row["median"] for row in table["rows"])
    assert Table.read(table).markdown() in text
    _own(name, table)


def _own(name: str, table: dict[str, Any]) -> None:
    """What an experiment shows whatever the machine's speed."""
    if name == "blocking":
        by = {(r["state"], r["call"], r["by"].partition(" (raises")[0]): r for r in table["rows"]}
        ours = [r for (_, call, who), r in by.items() if who.startswith("the layer") and "close" not in call]
        assert all(r["connects"] == 0 for r in ours), "the layer reached for a tracker on the training thread"
        user = by["MLflow dead", "step, enter + exit", "mlflow.log_metrics"]
        assert user["connects"] > 0, "the count of connections sees none at all"
        assert "raises" in user["by"], "the dead server is not dead"
    if name == "probes":
        back = {r["what"]: r["back"] for r in table["rows"]}
        assert all(n == 0 for what, n in back.items() if "set, " in what or "set: " in what), back
        assert back[".item() of each gradient norm"] == 1, "the count sees what is read back"
        assert any("physical limit" in note for note in table["notes"])
    if name == "digest":
        sees = {r["what"]: r["position"] for r in table["rows"]}
        assert sees["lineage.capture.digest.lanes (both lanes)"] == "yes"
        assert sees[".double().sum()"] == "NO"
    if name == "agreement":
        sees = {r["what"]: (r["bits"], r["swap"]) for r in table["rows"]}
        assert sees["lineage: placement and both lanes"] == ("yes", "yes")
        assert sees["a sum in float64 of each tensor"] == ("yes", "NO")


def test_an_unknown_experiment_is_refused_with_the_names_that_exist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stop:
        command.main(["speed"])
    assert stop.value.code == 2
    assert ", ".join(command.EXPERIMENTS) in capsys.readouterr().err


def test_a_failed_experiment_shows_its_log_and_makes_the_command_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(command.EXPERIMENTS, "absent", "an experiment without a module")
    monkeypatch.setattr(command, "_child", lambda *_, **__: None)
    assert command.main(["absent", "--out", str(tmp_path)]) == 1
    assert "no experiment is called absent" in capsys.readouterr().err  # the child's own words
    assert not list(tmp_path.iterdir())


def test_a_missed_target_is_said_in_the_table() -> None:
    table = Table("x", "y", [Column("a", "a")], targets=[Target("be quick", "slow", False)])
    assert "- MISSED: be quick (measured: slow)" in table.markdown()


def test_variants_take_turns_and_each_round_starts_one_further_on() -> None:
    seen: list[str] = []

    def variant(name: str) -> timing.Variant:
        def take() -> float:
            seen.append(name)
            return 1.0

        return take

    samples = timing.take_turns({n: variant(n) for n in "abc"}, 3)
    assert "".join(seen) == "abcbcacab"
    assert samples == {"a": [1.0] * 3, "b": [1.0] * 3, "c": [1.0] * 3}


def test_no_round_begins_after_the_budget_once_there_were_enough() -> None:
    variants: dict[str, timing.Variant] = {"a": lambda: 1.0}
    assert len(timing.take_turns(variants, 9, budget=0.0, least=2)["a"]) == 2


@pytest.mark.parametrize(("q", "expected"), [(0.0, 1), (0.5, 50), (0.99, 99), (1.0, 100)])
def test_a_quantile_is_a_value_that_was_measured(q: float, expected: float) -> None:
    assert timing.quantile(list(range(100, 0, -1)), q) == expected
