"""Folders that torch.distributed.checkpoint wrote, on one and on two ranks."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from lineage.checkpoints import lack_of, look

from .made import codes, copy, cut, in_ranks, said, same_in_store, severity
from .test_torch_file import state

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")

SCRIPT = """
import os, sys, torch
import torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.Linear(7, 3))
fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
opt = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.ones(2, 6)).sum().backward(); opt.step(); opt.zero_grad()
weights, moments = get_state_dict(model, opt)
state = {"model": weights, "optimizer": moments, "train_state": {"step": torch.tensor(3)},
         "lr_scheduler": {"last_epoch": 3}, "dataloader": {f"dp_rank_{rank}": {"position": rank}},
         "rng": {f"rank_{rank}": torch.get_rng_state()}}
dcp.save(state, checkpoint_id=sys.argv[1])
state["dataloader"] = {"position": rank}
dcp.save(state, checkpoint_id=sys.argv[2])
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("dcp")
    in_ranks(SCRIPT, 2, base, str(base / "good"), str(base / "shared"))
    return base


@pytest.fixture
def good(saved: Path, tmp_path: Path) -> Path:
    return copy(saved / "good", tmp_path / "step-3")


def test_a_sharded_checkpoint_of_two_ranks_has_all_chunks_and_its_step(saved: Path) -> None:
    c = look(saved / "good")
    assert (c.format, c.step, c.world, c.findings) == ("dcp", 3, 2, [])
    w = next(t for t in c.tensors if t.name == "model.0.weight")
    assert (w.dtype, w.shape, {p.file for p in w.pieces}) == (
        "float32",
        (7, 6),
        {"__0_0.distcp", "__1_0.distcp"},
    )
    assert [p.at for p in w.pieces] == [(0, 0), (4, 0)]
    assert c.parts["loader_position"].text == "2 keys of 2 ranks"


def test_the_place_of_a_chunk_is_a_file_of_torch_save(saved: Path) -> None:
    """offset and length are those that the framework itself reads."""
    c = look(saved / "good")
    piece = next(t for t in c.tensors if t.name == "model.0.weight").pieces[0]
    data = (saved / "good" / piece.file).read_bytes()[piece.offset : piece.offset + piece.length]  # type: ignore[operator]
    import io

    assert torch.load(io.BytesIO(data), weights_only=True).shape == (4, 6)


def test_a_key_that_ranks_share_is_named(saved: Path) -> None:
    """Of one key for all ranks, DCP keeps one rank's value."""
    c = look(saved / "shared")
    assert "dataloader.position stands once for 2 ranks" in said(c, "LIN-K009")


def test_the_shard_of_a_rank_that_is_gone_is_named_with_its_rank(good: Path) -> None:
    (good / "__1_0.distcp").unlink()
    c = look(good)
    assert severity(c, "LIN-K001") == {"fails"}
    assert "__1_0.distcp; rank 1" in said(c, "LIN-K001")
    assert c.parts["weights"].status == "partial"


def test_a_shard_that_is_cut_off_is_found_without_opening_it(good: Path) -> None:
    cut(good / "__0_0.distcp")
    c = look(good)
    assert "__0_0.distcp is cut off" in said(c, "LIN-K002")
    assert "__0_0.distcp begins" not in said(c, "LIN-K002")
    assert c.opened <= 5  # the metadata, the head of the other shard, the step, and two step counters


def test_a_save_that_was_not_finished_has_no_metadata(good: Path) -> None:
    (good / ".metadata").rename(good / ".metadata.tmp")
    c = look(good)
    assert severity(c, "LIN-K010") == {"fails"}
    assert ".metadata.tmp is there" in said(c, "LIN-K010")


def test_shards_of_another_save_under_the_old_metadata_are_named(good: Path, saved: Path) -> None:
    at = (good / ".metadata").stat().st_mtime
    with (good / "__1_0.distcp").open("ab") as f:
        f.write(b"more")
    os.utime(good / "__1_0.distcp", (at + 600, at + 600))
    c = look(good)
    assert "it may be of another save" in said(c, "LIN-K012")
    assert "written after .metadata" in said(c, "LIN-K012")


def test_shards_that_no_entry_names_are_left_behind_by_an_earlier_save(good: Path) -> None:
    shutil.copy(good / "__1_0.distcp", good / "__5_0.distcp")
    c = look(good)
    assert severity(c, "LIN-K012") == {"fine"}
    assert c.world == 2


def spoil(folder: Path, act: object) -> None:
    """Change the metadata by the framework's own classes."""
    path = folder / ".metadata"
    made = pickle.loads(path.read_bytes())
    act(made)  # type: ignore[operator]
    path.write_bytes(pickle.dumps(made))


def test_an_entry_that_is_stored_nowhere_is_named(good: Path) -> None:
    def drop(m: object) -> None:
        for k in [k for k in m.storage_data if k.fqn == "model.1.bias"]:  # type: ignore[attr-defined]
            del m.storage_data[k]  # type: ignore[attr-defined]

    spoil(good, drop)
    assert "model.1.bias" in said(look(good), "LIN-K003")


@pytest.mark.parametrize("change", ["gap", "overlap"])
def test_chunks_that_do_not_cover_their_tensor_once_are_named(change: str, good: Path) -> None:
    def act(m: object) -> None:
        chunks = m.state_dict_metadata["model.0.weight"].chunks  # type: ignore[attr-defined]
        chunks[1].sizes = torch.Size([2, 6])
        if change == "overlap":
            chunks[0].sizes, chunks[1].sizes = torch.Size([5, 6]), torch.Size([3, 6])

    spoil(good, act)
    assert "do not cover them once: model.0.weight" in said(look(good), "LIN-K003")


def test_a_path_out_of_the_folder_in_the_metadata_is_refused(good: Path) -> None:
    def act(m: object) -> None:
        next(iter(m.storage_data.values())).relative_path = "../../secret"  # type: ignore[attr-defined]

    spoil(good, act)
    assert "leads out of the checkpoint" in said(look(good), "LIN-K014")


def test_an_optimizer_whose_state_was_empty_when_it_was_saved_is_named(tmp_path: Path) -> None:
    """pytorch#140898: its keys hold settings and no moments."""
    full = state()
    full["optimizer"] = {"state": {}, "param_groups": full["optimizer"]["param_groups"]}  # type: ignore[index]
    dcp.save(full, checkpoint_id=tmp_path / "step-3", no_dist=True)
    assert "settings and no moments" in said(look(tmp_path / "step-3"), "LIN-K005")


@pytest.mark.parametrize(("counted", "said_so"), [(0, "first update be too large"), (9, "of a later save")])
def test_step_counters_are_read_and_held_against_the_step(counted: int, said_so: str, tmp_path: Path) -> None:
    full: Any = state()
    held = full["optimizer"]["state"]
    for entry in held.values():
        entry["step"] = torch.tensor(float(counted))
    named = {f"layer{n}": entry for n, entry in held.items()}
    full["optimizer"] = {"state": named}
    dcp.save(full, checkpoint_id=tmp_path / "step-3", no_dist=True)
    c = look(tmp_path / "step-3")
    assert said_so in said(c, "LIN-K005") + said(c, "LIN-K012")
    assert c.parts["optimizer_step"].text == f"step counter {counted}"


def test_a_model_alone_lacks_all_the_rest(tmp_path: Path) -> None:
    dcp.save({"model": state()["model"]}, checkpoint_id=tmp_path / "step-3", no_dist=True)
    c = look(tmp_path / "step-3")
    assert codes(c) == {"LIN-K005", "LIN-K006", "LIN-K008", "LIN-K009", "LIN-K018"}
    assert c.parts["weights"].status == "present"


@pytest.mark.parametrize("wrong", ["size", "offset", "deep", "no number", "key", "chunk"])
def test_metadata_whose_parts_are_of_other_kinds_is_damaged_and_nothing_is_raised(
    wrong: str, good: Path
) -> None:
    """A list where a place is due cannot be the key of a dict, and a deep nest would exhaust the stack."""

    def act(m: object) -> None:
        entry = m.state_dict_metadata["model.0.weight"]  # type: ignore[attr-defined]
        index = next(i for i in m.storage_data if i.fqn == "model.0.weight")  # type: ignore[attr-defined]
        deep: tuple[object, ...] = ()
        for _ in range(200):
            deep = (deep, deep)
        if wrong == "size":
            entry.size = [4, "x"]
        elif wrong == "offset":
            object.__setattr__(index, "offset", ([0], 0))
        elif wrong == "deep":
            entry.chunks[0].offsets = deep
        elif wrong == "no number":
            entry.chunks[0].sizes = ("a", "b")
        elif wrong == "key":
            m.state_dict_metadata[7] = entry  # type: ignore[attr-defined]
        else:
            entry.chunks[0] = 3

    spoil(good, act)
    assert look(good).worst == "fails"


def test_hostile_metadata_is_reported_and_not_run(good: Path, tmp_path: Path) -> None:
    (good / ".metadata").write_bytes(b"cos\nsystem\n(Vtouch " + str(tmp_path / "ran").encode() + b"\ntR.")
    assert "os.system" in said(look(good), "LIN-K013")
    assert not (tmp_path / "ran").exists()


def test_a_folder_of_thousands_of_shards_is_looked_at_by_names_and_sizes(tmp_path: Path) -> None:
    """The metadata is read, and 16 bytes of some shards, however many there are."""
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        Metadata,
        MetadataIndex,
        TensorProperties,
        TensorStorageMetadata,
    )

    ranks, size = 3000, torch.Size
    chunks = [ChunkStorageMetadata(size([r]), size([1])) for r in range(ranks)]
    entry = TensorStorageMetadata(TensorProperties(dtype=torch.float32), size([ranks]), chunks)
    stored = {
        MetadataIndex("model.w", size([r]), r): _StorageInfo(f"__{r}_0.distcp", 0, 64) for r in range(ranks)
    }
    (tmp_path / ".metadata").write_bytes(pickle.dumps(Metadata({"model.w": entry}, None, stored)))
    for r in range(ranks):
        if r != 1234:
            (tmp_path / f"__{r}_0.distcp").write_bytes(b"PK" + bytes(62))
    c = look(tmp_path)
    assert (c.files, c.opened) == (ranks, 1 + 64)
    assert c.bytes_read == (tmp_path / ".metadata").stat().st_size + 64 * 16
    assert "1 of 3000 files" in said(c, "LIN-K001")
    assert "rank 1234" in said(c, "LIN-K001")


def test_in_training_metadata_that_is_too_big_is_left_alone(good: Path) -> None:
    (good / "__1_0.distcp").unlink()
    assert len(lack_of(good, wait=0)) == 1
    assert lack_of(good, wait=0, patience=100) == []


@pytest.mark.parametrize("name", ["good", "shared"])
def test_in_a_store_it_reads_the_same(name: str, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert same_in_store(saved / name, monkeypatch)["step"] == 3


def test_a_shard_that_was_never_written_is_found_though_its_size_is_right(good: Path) -> None:
    file = good / "__1_0.distcp"
    file.write_bytes(bytes(file.stat().st_size))
    c = look(good)
    assert "__1_0.distcp begins with zeros" in said(c, "LIN-K002")
    assert severity(c, "LIN-K002") == {"fails"}


def test_metadata_cut_off_is_named(good: Path) -> None:
    cut(good / ".metadata")
    assert ".metadata: the pickle is cut off" in said(look(good), "LIN-K002")


def test_a_folder_named_after_another_step_is_named(good: Path) -> None:
    c = look(good.rename(good.with_name("step-9")))
    assert [(f.code, f.certain) for f in c.findings] == [("LIN-K012", False)]
    assert "its name is step-9, and it says step 3" in said(c, "LIN-K012")


def test_shards_of_several_saves_are_told_by_their_step_counters(tmp_path: Path) -> None:
    """Two ranks' shards of one size, the second of a later step, as after a save that was cut short."""
    state = {
        "model": {"w": torch.ones(2)},
        "optimizer": {"state": {}},
        "train_state": {"step": torch.tensor(3)},
    }
    for step in (3, 6):
        state["optimizer"] = {
            "state": {
                f"w{i}": {"step": torch.tensor(float(step)), "exp_avg": torch.ones(2)} for i in range(6)
            }
        }
        writer = dcp.FileSystemWriter(tmp_path / str(step), single_file_per_rank=False)
        dcp.save(state, storage_writer=writer, no_dist=True)
    assert codes(look(tmp_path / "3")) == {"LIN-K006", "LIN-K008", "LIN-K009"}
    mine = look(tmp_path / "3")
    late = next(p.file for t in mine.tensors if t.name.endswith("w5.step") for p in t.pieces)
    shutil.copyfile(tmp_path / "6" / late, tmp_path / "3" / late)
    c = look(tmp_path / "3")
    assert "are at 3, and in " in said(c, "LIN-K012")


def test_random_states_are_known_by_names_with_a_rank(tmp_path: Path) -> None:
    dcp.save(
        {"model": {"w": torch.ones(2)}, "rng_0": torch.get_rng_state(), "train_loader_state_0": {"at": 1}},
        checkpoint_id=tmp_path,
        no_dist=True,
    )
    c = look(tmp_path)
    assert c.parts["rng"].status == "present"
    assert c.parts["loader_position"].status == "present"


def test_a_rank_without_a_file_of_its_own_is_no_certain_change_of_the_world(tmp_path: Path) -> None:
    dcp.save({"model": {"w": torch.ones(2)}}, checkpoint_id=tmp_path, no_dist=True)
    found = [f for f in look(tmp_path, world=2).findings if f.code == "LIN-K017"]
    assert [(f.certain, f.text) for f in found] == [(False, "1 rank wrote files of it, and 2 would resume")]


def test_the_count_of_steps_is_no_weight(saved: Path) -> None:
    kinds = {t.name: t.component for t in look(saved / "good").tensors}
    assert kinds["train_state.step"] == "unknown"
    assert kinds["model.0.weight"] == "weights"
