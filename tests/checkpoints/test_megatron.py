"""Folders of Megatron, built from its documented layout: Megatron itself was not run.

The DCP part is written by torch.distributed.checkpoint, as Megatron's torch_dist backend does; keys and files beside it
follow megatron/core/dist_checkpointing and megatron/training/checkpointing.py.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from lineage.checkpoints import look

from .made import codes, cut, said, same_in_store, severity

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")


def args(**more: object) -> argparse.Namespace:
    return argparse.Namespace(
        consumed_train_samples=640,
        tensor_model_parallel_size=2,
        pipeline_model_parallel_size=1,
        world_size=4,
        fp16=False,
        **more,
    )


def distributed(run: Path, *, leave_out: tuple[str, ...] = (), **more: object) -> Path:
    """`iter_0000010` of the torch_dist backend, and the tracker file."""
    one = run / "iter_0000010"
    w = torch.ones(4, 2)
    keys = {
        "decoder.layers.0.weight": w,
        "optimizer.state.exp_avg.decoder.layers.0.weight": w,
        "optimizer.state.exp_avg_sq.decoder.layers.0.weight": w,
        "rng_state/shard_0_1": [{"random_rng_state": 1}],
    }
    keep = {k: v for k, v in keys.items() if not k.startswith(leave_out or ("-",))}
    dcp.save(keep, checkpoint_id=one, no_dist=True)
    common = {
        "args": args(**more),
        "iteration": 10,
        "checkpoint_version": 3.0,
        "opt_param_scheduler": {"max_lr": 1.0, "num_steps": 640},
        "num_floating_point_operations_so_far": 0,
    }
    if "common" not in leave_out:
        torch.save({k: v for k, v in common.items() if k not in leave_out}, one / "common.pt")
    (one / "metadata.json").write_text(
        json.dumps({"sharded_backend": "torch_dist", "sharded_backend_version": 1})
    )
    (run / "latest_checkpointed_iteration.txt").write_text("10")
    return run


def legacy(run: Path) -> Path:
    """The older format: a folder for each tensor-parallel rank."""
    for tp in range(2):
        folder = run / "iter_0000010" / f"mp_rank_{tp:02d}"
        folder.mkdir(parents=True)
        model = torch.nn.Linear(2, 2)
        saved = {
            "args": args(),
            "iteration": 10,
            "model": model.state_dict(),
            "optimizer": torch.optim.AdamW(model.parameters()).state_dict(),
            "opt_param_scheduler": {"num_steps": 640},
            "rng_state": [{"random_rng_state": 1}],
        }
        torch.save(saved, folder / "model_optim_rng.pt")
    (run / "latest_checkpointed_iteration.txt").write_text("10\n")
    return run


def test_a_dist_checkpoint_is_whole_by_its_run_and_by_its_iteration(tmp_path: Path) -> None:
    distributed(tmp_path)
    for path in (tmp_path, tmp_path / "iter_0000010"):
        c = look(path)
        assert (c.format, c.step, c.findings) == ("megatron", 10, [])
        assert c.parts["loader_position"].text == "consumed_train_samples 640"
        assert {t.component for t in c.tensors} == {"weights", "optimizer_state"}


@pytest.mark.parametrize(
    ("left_out", "code", "severe"),
    [
        ("optimizer", "LIN-K005", "fails"),
        ("rng_state", "LIN-K008", "fails"),
        ("opt_param_scheduler", "LIN-K006", "differs"),
        ("args", "LIN-K009", "differs"),
    ],
)
def test_each_part_that_was_left_out_is_named(left_out: str, code: str, severe: str, tmp_path: Path) -> None:
    c = look(distributed(tmp_path, leave_out=(left_out,)))
    assert codes(c) == {code}
    assert severity(c, code) == {severe}


def test_common_pt_that_is_gone_stops_a_resume(tmp_path: Path) -> None:
    assert severity(look(distributed(tmp_path, leave_out=("common",))), "LIN-K001") == {"fails"}


def test_a_shard_that_is_gone_or_cut_off_is_named(tmp_path: Path) -> None:
    distributed(tmp_path)
    cut(tmp_path / "iter_0000010" / "__0_0.distcp")
    assert "__0_0.distcp is cut off" in said(look(tmp_path), "LIN-K002")
    (tmp_path / "iter_0000010" / "__0_0.distcp").unlink()
    assert "__0_0.distcp" in said(look(tmp_path), "LIN-K001")


@pytest.mark.parametrize("text", ["20", "", "\x00\x00", "release"])
def test_a_tracker_file_that_leads_nowhere_is_named(text: str, tmp_path: Path) -> None:
    distributed(tmp_path)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text(text)
    c = look(tmp_path)
    assert severity(c, "LIN-K011") == {"fails"}
    assert "there are iter_0000010" in said(c, "LIN-K011")
    assert c.step == 10


def test_a_folder_of_ranks_is_whole(tmp_path: Path) -> None:
    c = look(legacy(tmp_path))
    assert (c.format, c.step, c.world, c.findings) == ("megatron", 10, 4, [])


def test_a_rank_whose_folder_is_gone_or_of_another_iteration_is_named(tmp_path: Path) -> None:
    legacy(tmp_path)
    file = tmp_path / "iter_0000010" / "mp_rank_01" / "model_optim_rng.pt"
    saved = torch.load(file, weights_only=False)
    torch.save({**saved, "iteration": 5}, file)
    assert "are of several iterations" in said(look(tmp_path), "LIN-K012")
    file.unlink()
    file.parent.rmdir()
    assert "tensor rank 1, pipeline rank 0" in said(look(tmp_path), "LIN-K001")


@pytest.mark.parametrize("form", [distributed, legacy])
def test_in_a_store_it_reads_the_same(form: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert same_in_store(form(tmp_path / "run"), monkeypatch)["step"] == 10


def test_a_run_without_its_tracker_file_would_start_anew(tmp_path: Path) -> None:
    """Megatron goes on from its first weights then; a copy of one iteration has none either."""
    (distributed(tmp_path) / "latest_checkpointed_iteration.txt").unlink()
    c = look(tmp_path)
    assert (c.format, c.step) == ("megatron", 10)
    assert [(f.code, f.severity, f.certain) for f in c.findings] == [("LIN-K011", "fails", False)]


def test_ranks_that_wrote_no_file_count_in_the_world(tmp_path: Path) -> None:
    """Replicas are written by one rank: the arguments tell of four ranks, and the files of one."""
    distributed(tmp_path)
    assert look(tmp_path, world=4).findings == []
    assert "4 ranks saved it, and 8 would resume" in said(look(tmp_path, world=8), "LIN-K017")
    assert "random state" not in said(look(tmp_path, world=8), "LIN-K017")


@pytest.mark.parametrize("name", [".metadata", "common.pt"])
def test_what_stood_in_a_file_that_cannot_be_read_is_not_said_to_be_missing(
    name: str, tmp_path: Path
) -> None:
    distributed(tmp_path)
    cut(tmp_path / "iter_0000010" / name)
    assert codes(look(tmp_path)) == {"LIN-K002"}
    assert name in said(look(tmp_path), "LIN-K002")


def test_an_iteration_without_metadata_json_is_not_said_to_be_absent(tmp_path: Path) -> None:
    (distributed(tmp_path) / "iter_0000010" / "metadata.json").unlink()
    c = look(tmp_path)
    assert "LIN-K011" not in codes(c)
    assert "iter_0000010 has neither metadata.json" in said(c, "LIN-K001")


def test_tensors_are_read_from_the_runs_folder_as_from_the_iterations(tmp_path: Path) -> None:
    distributed(tmp_path)
    for path in (tmp_path, tmp_path / "iter_0000010"):
        c = look(path)
        assert all((path / p.file).is_file() for t in c.tensors for p in t.pieces)
        assert all((path / s).is_file() for s in c.shards)
