"""Reading a run's log: whole, still being written, torn, damaged, and what is no log."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from trackers.wandb_ import offline_log

from .conftest import finished


@pytest.fixture
def log(start) -> Path:
    """A log of several blocks with a record longer than a block."""
    run = start(config={"lr": 0.1, "opt": {"wd": 0.1}}, tags=["a"], notes="n", name="name", group="g")
    run.config.update({"opt": {"wd": 0.2}}, allow_val_change=True)
    run.config["text"] = "x" * 100_000
    for n in range(20):
        run.log({"loss": math.nan if n == 3 else float(n), "flag": True, "nested": {"deep": n}})
    run.summary["best"] = math.inf
    run.alert(title="t", text="u")
    return finished(run).path


def test_everything_is_read_back_with_config_changes_in_order(log):
    run = offline_log.read_run(log)
    assert (run.project, run.name, run.tags, run.notes, run.group) == ("p", "name", ("a",), "n", "g")
    assert (run.exit_code, run.torn, run.damaged) == (0, False, [])
    assert run.config["opt"] == {"wd": 0.2}
    assert [c.value for c in run.config_changes if c.key == "opt"] == [{"wd": 0.1}, {"wd": 0.2}]
    numbers = [c.number for c in run.config_changes]
    assert numbers == sorted(numbers)
    assert len(run.config["text"]) == 100_000
    assert [r["loss"] for r in run.history if r["_step"] != 3] == [n for n in range(20) if n != 3]
    assert math.isnan(run.history[3]["loss"])
    assert run.history[5]["flag"] is True
    assert run.history[5]["nested"] == {"deep": 5}
    assert run.summary["best"] == math.inf
    assert [(a.title, a.text) for a in run.alerts] == [("t", "u")]


def test_a_log_cut_at_any_byte_gives_back_every_whole_record(log, tmp_path):
    data = log.read_bytes()
    whole = offline_log.read_run(log).records
    cut = tmp_path / "run-cut.wandb"
    last = -1
    for size in [*range(7, 400), *range(400, len(data), 997), len(data)]:
        cut.write_bytes(data[:size])
        run = offline_log.read_run(cut)
        assert run.damaged == []
        assert run.records >= last
        last = run.records
    assert last == whole
    cut.write_bytes(data[:-1])
    run = offline_log.read_run(cut)
    assert (run.torn, run.records) == (True, whole - 1)


def test_a_damaged_block_is_named_and_later_records_are_still_read(log):
    data = bytearray(log.read_bytes())
    data[offline_log.BLOCK + 100] ^= 0xFF  # inside the long record
    log.write_bytes(data)
    run = offline_log.read_run(log)
    assert run.damaged == [offline_log.BLOCK]
    assert not run.torn
    assert "text" not in run.config
    assert len(run.history) == 20
    assert run.exit_code == 0


def test_a_running_run_can_be_read(start):
    run = start()
    folder = run.settings.sync_dir
    assert offline_log.find_log(folder).name == f"run-{run.id}.wandb"
    run.finish()


def test_what_is_no_run_log_is_refused_with_what_to_give(tmp_path):
    (tmp_path / "x.wandb").write_bytes(b"not a log")
    with pytest.raises(offline_log.NotARunLog, match="does not begin"):
        offline_log.read_run(tmp_path / "x.wandb")
    with pytest.raises(offline_log.NotARunLog, match="give the folder of one run"):
        offline_log.read_run(tmp_path)
    with pytest.raises(FileNotFoundError):
        offline_log.read_run(tmp_path / "absent.wandb")
    assert offline_log.pinned_keys(tmp_path / "absent.wandb") == []
