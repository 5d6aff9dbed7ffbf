"""Folders of files of torch.save that a loop wrote by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lineage.checkpoints import look

from .made import codes, cut, said, same_in_store, severity
from .test_torch_file import save, state

torch = pytest.importorskip("torch")


@pytest.fixture
def apart(tmp_path: Path) -> Path:
    """Each component in a file of its own, named as people do; the step in a JSON file."""
    at, full = tmp_path / "latest", state()
    at.mkdir()
    save(full["model"], at / "model.pt")
    save(full["optimizer"], at / "optimizer.pt")
    save(full["scheduler"], at / "lr_scheduler.pt")
    save(full["rng"], at / "rng_state.pt")
    save(full["dataloader"], at / "dataloader.pt")
    (at / "state.json").write_text(json.dumps({"global_step": 3, "lr": 0.1}))
    return at


def test_one_file_in_a_folder_is_read_as_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = tmp_path / "step-3"
    at.mkdir()
    save(state(), at / "state.pt")
    (at / "lineage.json").write_text("{}")
    c, alone = look(at), look(at / "state.pt")
    assert (c.format, c.step, c.findings) == ("torch_folder", 3, [])
    assert [(t.name, t.component, t.pieces) for t in c.tensors] == [
        (t.name, t.component, t.pieces) for t in alone.tensors
    ]
    same_in_store(at, monkeypatch)


def test_components_in_files_of_their_own_are_put_together(
    apart: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = look(apart)
    assert (c.format, c.step, c.step_from, c.findings) == ("torch_folder", 3, "state.json: global_step", [])
    assert {n: p.status for n, p in c.parts.items() if n != "grad_scaler"} == dict.fromkeys(
        ("weights", "optimizer_state", "optimizer_step", "lr_scheduler", "rng", "loader_position"), "present"
    )
    same_in_store(apart, monkeypatch)


@pytest.mark.parametrize(
    ("gone", "code"),
    [
        ("model.pt", "LIN-K004"),
        ("optimizer.pt", "LIN-K005"),
        ("lr_scheduler.pt", "LIN-K006"),
        ("rng_state.pt", "LIN-K008"),
        ("dataloader.pt", "LIN-K009"),
    ],
)
def test_what_is_in_no_file_is_named(gone: str, code: str, apart: Path) -> None:
    (apart / gone).unlink()
    assert codes(look(apart)) == {code}


@pytest.mark.parametrize("name", ["model.pt", "optimizer.pt", "lr_scheduler.pt"])
def test_each_file_cut_off_is_named(name: str, apart: Path) -> None:
    cut(apart / name)
    assert name in said(look(apart), "LIN-K002")


def test_weights_may_lie_in_safetensors_beside_the_rest(apart: Path) -> None:
    """It was taken for weights and nothing else."""
    safetensors = pytest.importorskip("safetensors.torch")
    (apart / "model.pt").unlink()
    safetensors.save_file(state()["model"], apart / "model.safetensors")
    c = look(apart)
    assert (c.format, c.findings) == ("torch_folder", [])
    assert c.parts["weights"].text == "4 tensors in model.safetensors"


def test_an_optimizer_of_another_step_is_a_mixture(apart: Path) -> None:
    full: Any = state(steps=7)
    save({"optimizer": full["optimizer"], "step": 7}, apart / "optimizer.pt")
    save({"model": full["model"], "step": 3}, apart / "model.pt")
    assert "the files are of several steps: model.pt at 3, optimizer.pt at 7" in said(look(apart), "LIN-K012")


def test_files_of_ranks_are_counted_and_a_lost_one_is_named(tmp_path: Path) -> None:
    at = tmp_path / "step_3"
    at.mkdir()
    for rank in (0, 1, 3):
        save(state(), at / f"state_rank_{rank}.pt")
    c = look(at)
    assert (c.format, c.world, c.step) == ("torch_folder", 4, 3)
    assert severity(c, "LIN-K001") == {"fails"}
    assert "files of 3 ranks, and those of rank 2 are missing" in said(c, "LIN-K001")


def test_checkpoints_of_several_steps_beside_each_other_are_told_as_such(tmp_path: Path) -> None:
    for step in (1, 2, 10):
        save(state(steps=step), tmp_path / f"ckpt_{step}.pt")
    c = look(tmp_path)
    assert (c.format, codes(c), c.worst) == ("opaque", {"LIN-K016"}, "fine")
    assert "3 checkpoints in it: ckpt_1.pt, ckpt_2.pt, ckpt_10.pt" in said(c, "LIN-K016")


def test_the_folder_of_a_run_names_such_folders_as_its_checkpoints(tmp_path: Path) -> None:
    for step in (5, 10):
        (tmp_path / f"step-{step}").mkdir()
        save(state(), tmp_path / f"step-{step}" / "state.pt")
    assert "2 checkpoints in it: step-5, step-10" in said(look(tmp_path), "LIN-K016")
