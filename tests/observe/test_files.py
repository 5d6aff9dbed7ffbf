"""Saves and loads of checkpoints: torch, safetensors, distributed; renamed, overwritten, deleted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

from lineage.ledger import files, reader

from .conftest import Observed
from .test_wandb import start

STATE: dict[str, Any] = {
    "model": {"w": torch.ones(3)},
    "optimizer": {"state": {}, "param_groups": []},
    "rng_state": torch.zeros(2),
    "step": 5,
}


def checkpoints(ledger: reader.Ledger) -> dict[str, Any]:
    """Path -> the newest record of the checkpoint there."""
    return {r.payload.path: r.payload for r in ledger.of("checkpoint")}


@pytest.fixture
def logging(home: Path, observed: Observed) -> Any:
    """A W&B run that has logged one row, at step 4."""
    run = start(id="r1", config={"lr": 0.1})
    run.log({"loss": 1.0}, step=4)
    return run


def test_a_saved_file_is_pending_and_then_complete_with_its_digest(
    tmp_path: Path, logging: Any, observed: Observed
) -> None:
    path = tmp_path / "ck.pt"
    assert torch.save(STATE, path) is None
    observed.settle()
    ledger = observed.only()
    pending, complete = [r.payload for r in ledger.of("checkpoint")]
    assert (pending.status, complete.status) == ("pending", "complete")
    assert pending.uid == complete.uid
    assert complete.step == 5  # as the saved object says, not the last row
    assert complete.manifest.files[0].digest == files.file_digest(path)
    assert {c.component for c in complete.live} == {"optimizer_step", "weights", "optimizer_state", "rng"}
    assert all(c.digest is None for c in complete.live)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("ck")) == ["ck.pt"]  # no sidecar


@pytest.mark.parametrize(
    ("name", "state", "step"),
    [
        ("last.pt", {"w": torch.ones(1)}, 4),
        ("model-step00042.pt", {"w": torch.ones(1)}, 42),
        ("checkpoint-70/model.pt", {"w": torch.ones(1)}, 70),
        ("checkpoint-70/model.pt", {"global_step": 71}, 71),
        ("iter_0000080/mp_rank_00/model.pt", {"iteration": 80}, 80),
    ],
)
def test_the_step_of_a_checkpoint_comes_from_what_it_holds_then_its_name_then_the_last_row(
    tmp_path: Path, logging: Any, observed: Observed, name: str, state: Any, step: int
) -> None:
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    torch.save(state, path)
    observed.settle()
    (found,) = checkpoints(observed.only()).values()
    assert found.step == step
    (counter,) = [c for c in found.live if c.component == "optimizer_step"]
    assert "told by" in counter.note


def test_the_files_of_one_folder_are_one_checkpoint(tmp_path: Path, logging: Any, observed: Observed) -> None:
    """As Hugging Face's trainer saves: weights in safetensors, the rest by torch."""
    from safetensors.torch import save_file

    folder = tmp_path / "checkpoint-10"
    folder.mkdir()
    save_file({"w": torch.ones(3)}, folder / "model.safetensors")
    torch.save({"state": {}, "param_groups": []}, folder / "optimizer.pt")
    torch.save({"last_epoch": 1}, folder / "scheduler.pt")
    observed.settle()
    (found,) = checkpoints(observed.only()).values()
    assert (found.path, found.step, found.status) == (str(folder), 10, "complete")
    assert {f.path for f in found.manifest.files} == {"model.safetensors", "optimizer.pt", "scheduler.pt"}
    assert {"weights", "optimizer_state", "lr_scheduler"} <= {c.component for c in found.live}


def test_a_file_that_is_renamed_after_the_save_is_followed(
    tmp_path: Path, logging: Any, observed: Observed
) -> None:
    torch.save(STATE, tmp_path / "ck.pt.tmp")
    os.replace(tmp_path / "ck.pt.tmp", tmp_path / "ck.pt")
    observed.settle()
    newest = observed.only().of("checkpoint")[-1].payload
    assert (newest.path, newest.status) == (str(tmp_path / "ck.pt"), "complete")


def test_a_folder_that_is_renamed_after_the_save_is_followed(
    tmp_path: Path, logging: Any, observed: Observed
) -> None:
    folder = tmp_path / "tmp-checkpoint-10"
    folder.mkdir()
    torch.save(STATE, folder / "state.pt")
    folder.rename(tmp_path / "checkpoint-10")
    observed.settle()
    newest = observed.only().of("checkpoint")[-1].payload
    assert (newest.path, newest.status) == (str(tmp_path / "checkpoint-10"), "complete")


def test_a_checkpoint_that_is_overwritten_or_deleted_is_marked_and_its_node_stays(
    tmp_path: Path, logging: Any, observed: Observed
) -> None:
    torch.save({**STATE, "step": 1}, tmp_path / "last.pt")
    torch.save({**STATE, "step": 2}, tmp_path / "old.pt")
    observed.settle()
    torch.save({**STATE, "step": 3}, tmp_path / "last.pt")
    (tmp_path / "old.pt").unlink()
    observed.settle()
    ledger = observed.only()
    steps = {r.payload.uid: r.payload.step for r in ledger.of("checkpoint")}
    marks = {steps[r.payload.checkpoint]: r.payload for r in ledger.of("checkpoint_mark")}
    assert {step: m.mark for step, m in marks.items()} == {1: "deleted", 2: "deleted"}
    assert "overwritten" in marks[1].why
    assert "gone" in marks[2].why
    assert sorted(steps.values()) == [1, 2, 3]


def test_open_files_and_safetensors_of_numpy_are_seen_and_memory_is_said(
    tmp_path: Path, logging: Any, observed: Observed
) -> None:
    import io

    from safetensors.numpy import load_file, save_file

    with open(tmp_path / "by-handle.pt", "wb") as f:
        torch.save(STATE, f)
    save_file({"w": np.ones(3)}, str(tmp_path / "array.safetensors"))
    assert load_file(tmp_path / "array.safetensors")["w"].tolist() == [1.0, 1.0, 1.0]
    torch.save(STATE, io.BytesIO())
    observed.settle()
    ledger = observed.only()
    names = {Path(p).name: c for p, c in checkpoints(ledger).items()}
    assert set(names) == {"by-handle.pt", "array.safetensors"}
    assert names["by-handle.pt"].manifest.files[0].size == (tmp_path / "by-handle.pt").stat().st_size
    assert [r.payload.by for r in ledger.of("load")] == ["safetensors load_file"]
    assert any("1 saves went into memory" in g for g in ledger.of("coverage")[0].payload.gaps)


def test_distributed_checkpoints_are_one_node_each_and_asynchronous_ones_are_pending_until_done(
    tmp_path: Path, logging: Any, observed: Observed
) -> None:
    state = {"model": {"w": torch.arange(8.0)}}
    dcp.save(state, checkpoint_id=str(tmp_path / "dcp-step1"))
    future = dcp.async_save(state, checkpoint_id=str(tmp_path / "dcp-step2"))
    getattr(future, "upload_completion", future).result()
    target = {"model": {"w": torch.zeros(8)}}
    dcp.load(target, checkpoint_id=str(tmp_path / "dcp-step1"))
    assert target["model"]["w"].tolist() == state["model"]["w"].tolist()
    observed.settle()
    ledger = observed.only()
    found = checkpoints(ledger)
    assert {Path(p).name: c.status for p, c in found.items()} == {
        "dcp-step1": "complete",
        "dcp-step2": "complete",
    }
    assert {c.step for c in found.values()} == {1, 2}
    assert ".metadata" in {f.path for f in found[str(tmp_path / "dcp-step1")].manifest.files}
    (load,) = [r.payload for r in ledger.of("load")]
    assert (load.by, load.path) == ("torch.distributed.checkpoint.load", str(tmp_path / "dcp-step1"))


def test_what_is_read_before_the_first_row_is_the_parent_and_its_content_proves_it(
    tmp_path: Path, home: Path, observed: Observed
) -> None:
    for lr in (0.1, 0.01):
        run = start(config={"lr": lr})  # a tracker run of its own each time
        first = 1
        if (tmp_path / "moved.pt").exists():
            first = torch.load(tmp_path / "moved.pt")["step"] + 1
        run.log({"loss": 1.0}, step=first)
        torch.save({**STATE, "step": first}, tmp_path / f"ck{first}.pt")
        observed.settle()
        run.finish()
        if first == 1:
            os.replace(tmp_path / "ck1.pt", tmp_path / "moved.pt")  # another name, the same content
    ledger = observed.only()
    one, two = ledger.segments
    saved = next(r.payload for r in ledger.of("checkpoint", one.uid))
    assert (two.info.start, two.info.parent_checkpoint, two.info.parent_evidence) == (
        "resume",
        saved.uid,
        "loaded",
    )
    (load,) = [r.payload for r in ledger.of("load")]
    assert (load.checkpoint, load.evidence) == (saved.uid, "content")
    (drift,) = [r.payload for r in ledger.of("drift")]
    assert drift.parent_checkpoint == saved.uid
    assert [c.concept for c in drift.changes] == ["learning_rate"]


def test_weights_alone_in_another_tracker_run_are_a_fork_or_an_evaluation_and_which_is_not_claimed(
    tmp_path: Path, home: Path, observed: Observed
) -> None:
    run = start()
    run.log({"loss": 1.0}, step=1)
    torch.save({"w": torch.ones(3)}, tmp_path / "weights.pt")
    observed.settle()
    run.finish()
    run = start()
    torch.load(tmp_path / "weights.pt")
    run.log({"accuracy": 0.5}, step=0)
    run.finish()
    first, second = observed.end()
    assert second.segments[0].info.start == "fork"
    assert second.of("run")[0].payload.fork_of == first.run
    assert any("which of them is not shown" in g for g in second.of("coverage")[0].payload.gaps)


def test_a_checkpoint_whose_file_was_changed_since_is_not_taken_for_the_recorded_one(
    tmp_path: Path, home: Path, observed: Observed
) -> None:
    run = start()
    run.log({"loss": 1.0}, step=1)
    torch.save(STATE, tmp_path / "ck.pt")
    observed.settle()
    run.finish()
    import lineage.observe

    lineage.observe.uninstall()
    torch.save({**STATE, "model": {"w": torch.zeros(3)}}, tmp_path / "ck.pt")  # behind the observer's back
    lineage.observe.install(lineage.observe.Options(dir=str(observed.root), quiet=True, capture=False))
    run = start()
    torch.load(tmp_path / "ck.pt")
    run.log({"loss": 1.0}, step=2)
    run.finish()
    _, second = observed.end()
    (load,) = [r.payload for r in second.of("load")]
    assert (load.checkpoint, load.evidence) == (None, "none")
    assert second.segments[0].info.parent_checkpoint is None


def test_without_any_tracker_a_save_begins_a_run(tmp_path: Path, run: Any) -> None:
    from .conftest import ledgers, script

    train = script(
        tmp_path,
        "train.py",
        "import torch\nfor step in (1, 2):\n    torch.save({'model': {}, 'step': step}, f'step{step}.pt')\n",
    )
    import sys

    done = run(sys.executable, train)
    assert done.returncode == 0, done.stderr
    (ledger,) = ledgers(tmp_path)
    assert {c.step for c in checkpoints(ledger).values()} == {1, 2}
    assert {c.status for c in checkpoints(ledger).values()} == {"complete"}
    assert ledger.of("run")[0].payload.aliases == []
