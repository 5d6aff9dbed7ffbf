"""Folders that Accelerator.save_state wrote, and what load_state does without parts of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lineage.checkpoints import look

from .made import codes, copy, cut, in_ranks, said, same_in_store, severity

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")

SCRIPT = """
import sys, torch
from accelerate import Accelerator
acc = Accelerator(cpu=True)
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
opt = torch.optim.AdamW(model.parameters())
schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: 1.0)
data = torch.utils.data.DataLoader(torch.ones(16, 4), batch_size=2)
model, opt, schedule, data = acc.prepare(model, opt, schedule, data)
for x in data:
    acc.backward(model(x).sum()); opt.step(); schedule.step(); opt.zero_grad()
acc.save_state(sys.argv[1])
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("accelerate")
    in_ranks(SCRIPT, 2, base, str(base / "step_4"))
    return base / "step_4"


@pytest.fixture
def four(saved: Path, tmp_path: Path) -> Path:
    return copy(saved, tmp_path / "step_4")


def test_a_state_of_two_ranks_has_all_but_the_loader(saved: Path) -> None:
    c = look(saved)
    assert (c.format, c.step, c.world, codes(c)) == ("accelerate", 4, 2, {"LIN-K009"})
    assert c.parts["rng"].text == "2 of 2 ranks"
    assert c.parts["optimizer_step"].text == "step counter 4"
    assert {t.name for t in c.tensors if t.component == "weights"} == {"weight", "bias"}


@pytest.mark.parametrize(
    ("gone", "code", "severe"),
    [
        ("model.safetensors", "LIN-K004", "fails"),
        ("optimizer.bin", "LIN-K005", "fails"),
        ("scheduler.bin", "LIN-K006", "differs"),
        ("random_states_0.pkl", "LIN-K008", "differs"),
    ],
)
def test_each_missing_file_is_named(gone: str, code: str, severe: str, four: Path) -> None:
    (four / gone).unlink()
    c = look(four)
    assert (c.format, codes(c)) == ("accelerate", {code, "LIN-K009"})
    assert severity(c, code) == {severe}


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.bin", "scheduler.bin", "random_states_0.pkl"]
)
def test_each_file_cut_off_is_named(name: str, four: Path) -> None:
    cut(four / name)
    assert name in said(look(four), "LIN-K002")


def test_a_lost_first_optimizer_of_two_is_named(four: Path) -> None:
    (four / "optimizer.bin").rename(four / "optimizer_1.bin")
    assert "optimizer.bin is missing, and optimizer_1.bin is there" in said(look(four), "LIN-K005")


def test_the_position_of_a_stateful_loader_is_found(four: Path) -> None:
    torch.save({"_snapshot": {"step": 3}}, four / "dl_state_dict.bin")
    c = look(four)
    assert c.findings == []
    assert c.parts["loader_position"].status == "present"


def test_load_state_really_goes_on_without_random_states_and_stops_without_the_optimizer(four: Path) -> None:
    """The severities are the framework's own behaviour."""
    acc = accelerate.Accelerator(cpu=True)
    model = torch.nn.Linear(4, 2)
    acc.prepare(model, torch.optim.AdamW(model.parameters()))
    (four / "random_states_0.pkl").unlink()
    acc.load_state(str(four))
    (four / "optimizer.bin").unlink()
    with pytest.raises(FileNotFoundError):
        acc.load_state(str(four))


FSDP = """
import sys, os, torch
import torch.distributed as dist
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.utils import save_fsdp_model, save_fsdp_optimizer
from accelerate.checkpointing import save_accelerator_state
acc = Accelerator(cpu=True)
def save(version, kind, out, **how):
    plugin = FullyShardedDataParallelPlugin(fsdp_version=version, state_dict_type=kind, auto_wrap_policy="no_wrap",
                                            cpu_ram_efficient_loading=False)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.Linear(7, 3))
    if version == 1:
        from torch.distributed.fsdp import FullyShardedDataParallel
        model = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
    else:
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.device_mesh import init_device_mesh
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    opt = torch.optim.AdamW(model.parameters())
    sch = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: 1.0)
    for _ in range(3):
        model(torch.ones(2, 6)).sum().backward(); opt.step(); sch.step(); opt.zero_grad()
    os.makedirs(out, exist_ok=True)
    save_fsdp_model(plugin, acc, model, out, **how)
    save_fsdp_optimizer(plugin, acc, opt, model, out, **how)
    save_accelerator_state(out, [], [], [sch], [], acc.state.process_index, 3)
    dist.barrier()
os.chdir(sys.argv[1])
save(1, "SHARDED_STATE_DICT", "one_3")
save(2, "SHARDED_STATE_DICT", "two_3")
save(2, "FULL_STATE_DICT", "full_3")
save(2, "SHARDED_STATE_DICT", "by_rank_3", use_dcp=False)
save(1, "LOCAL_STATE_DICT", "local_3")
"""
"""Accelerate takes FSDP only on GPUs; here torch wraps the model, and Accelerate's own functions save it."""
KINDS = {
    "one_3": "4 keys",
    "two_3": "4 keys",
    "full_3": "4 tensors in pytorch_model_fsdp.bin",
    "by_rank_3": "a file for each of 2 of 2 ranks",
    "local_3": "a file for each of 2 of 2 ranks",
}


@pytest.fixture(scope="module")
def fsdp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("fsdp")
    in_ranks(FSDP, 2, base, str(base))
    return base


@pytest.mark.parametrize("kind", KINDS)
def test_what_fsdp_leaves_in_a_folder_of_accelerate_is_read(
    kind: str, fsdp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FULL_STATE_DICT and files of ranks were taken for a folder without weights."""
    c = look(fsdp / kind)
    assert (c.format, c.world) == ("accelerate", 2)
    assert codes(c) <= {"LIN-K009", "LIN-K018"}
    assert c.parts["weights"].text == KINDS[kind]
    assert c.parts["optimizer_state"].status == "present"
    assert c.parts["optimizer_step"].text == "step counter 3"
    same_in_store(fsdp / kind, monkeypatch)


@pytest.mark.parametrize(
    ("kind", "gone", "words"),
    [
        ("one_3", "optimizer_0/__1_0.distcp", "optimizer_0: 1 of 2 files"),
        ("two_3", "pytorch_model_fsdp_0/__0_0.distcp", "pytorch_model_fsdp_0: 1 of 2 files"),
        ("by_rank_3", "pytorch_model_fsdp_0_rank1.bin", "of 2 ranks those of 1 have no file"),
        ("by_rank_3", "optimizer_0_rank0.bin", "of 2 ranks those of 0 have no file"),
        ("local_3", "pytorch_model_fsdp_rank1.bin", "of 2 ranks those of 1 have no file"),
    ],
)
def test_a_lost_part_of_fsdp_is_named(kind: str, gone: str, words: str, fsdp: Path, tmp_path: Path) -> None:
    at = copy(fsdp / kind, tmp_path / kind)
    (at / gone).unlink()
    c = look(at)
    assert words in said(c, "LIN-K001")
    assert severity(c, "LIN-K001") == {"fails"}


def test_the_whole_weights_of_fsdp_that_are_gone_are_named(fsdp: Path, tmp_path: Path) -> None:
    at = copy(fsdp / "full_3", tmp_path / "full_3")
    (at / "pytorch_model_fsdp.bin").unlink()
    assert severity(look(at), "LIN-K004") == {"fails"}


@pytest.mark.parametrize("kind", ["one_3", "full_3"])
def test_the_trainers_folder_may_hold_the_same(kind: str, fsdp: Path, tmp_path: Path) -> None:
    """Trainer calls the same functions (`_save_optimizer_and_scheduler`); its own files are laid out by hand."""
    at = copy(fsdp / kind, tmp_path / "checkpoint-3")
    for rank in range(2):
        (at / f"random_states_{rank}.pkl").unlink()
        torch.save({"python": 1, "numpy": 1, "cpu": 1}, at / f"rng_state_{rank}.pth")
    (at / "scheduler.bin").rename(at / "scheduler.pt")
    (at / "trainer_state.json").write_text('{"global_step": 3}')
    c = look(at)
    assert (c.format, c.step, c.world, c.findings) == ("hf_trainer", 3, 2, [])
    assert c.parts["weights"].text == KINDS[kind]
    (at / "trainer_state.json").write_text('{"global_step": 7}')
    assert "counts 3 updates, and the checkpoint says step 7" in said(look(at), "LIN-K012")


def test_in_a_store_it_reads_the_same(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert same_in_store(saved, monkeypatch)["step"] == 4


TWO = """
import sys, torch
from accelerate import Accelerator
acc = Accelerator(cpu=True)
torch.manual_seed(0)
class Mean:
    def __init__(self): self.x = torch.ones(3)
    def state_dict(self): return {"x": self.x}
    def load_state_dict(self, held): self.x = held["x"]
a, b = torch.nn.Linear(4, 2), torch.nn.Linear(4, 1)
one, two = torch.optim.AdamW(a.parameters()), torch.optim.SGD(b.parameters(), lr=0.1, momentum=0.9)
a, b, one, two = acc.prepare(a, b, one, two)
acc.register_for_checkpointing(Mean(), Mean())
for _ in range(3):
    acc.backward(a(torch.ones(2, 4)).sum() + b(torch.ones(2, 4)).sum())
    for opt in (one, two):
        opt.step(); opt.zero_grad()
acc.save_state(sys.argv[1])
"""


@pytest.fixture(scope="module")
def two_saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, two optimizers of which the second keeps no counter, and two objects that were registered."""
    base = tmp_path_factory.mktemp("two")
    in_ranks(TWO, 1, base, str(base / "step_3"))
    return base / "step_3"


@pytest.fixture
def two(two_saved: Path, tmp_path: Path) -> Path:
    return copy(two_saved, tmp_path / "step_3")


def test_of_two_optimizers_both_are_told(two: Path) -> None:
    c = look(two)
    assert "optimizer.bin: 2 of 2 parameters: exp_avg" in c.parts["optimizer_state"].text
    assert "optimizer_1.bin: 2 of 2 parameters: momentum_buffer" in c.parts["optimizer_state"].text
    assert c.parts["optimizer_step"].text == "step counter 3"


def test_the_first_optimizer_cut_off_leaves_the_moments_partial(two: Path) -> None:
    cut(two / "optimizer.bin")
    c = look(two)
    assert severity(c, "LIN-K002") == {"fails"}
    assert c.parts["optimizer_state"].status == "partial"


@pytest.mark.parametrize(
    ("name", "code"), [("model.safetensors", "LIN-K004"), ("custom_checkpoint_0.pkl", "LIN-K001")]
)
def test_the_first_of_two_files_of_a_kind_is_missed(name: str, code: str, two: Path) -> None:
    (two / name).unlink()
    c = look(two)
    assert severity(c, code) == {"fails"}
    assert f"{name} is missing" in said(c, code)


def test_an_object_whose_file_is_cut_off_stops_a_resume(two: Path) -> None:
    cut(two / "custom_checkpoint_1.pkl")
    assert "custom_checkpoint_1.pkl is cut off" in said(look(two), "LIN-K002")
    assert severity(look(two), "LIN-K002") == {"fails"}


@pytest.mark.parametrize("rank", [0, 1])
def test_random_states_cut_off_are_a_silent_difference_whichever_the_rank(rank: int, four: Path) -> None:
    """`load_accelerator_state` takes whatever is wrong with them for a line of info."""
    cut(four / f"random_states_{rank}.pkl")
    c = look(four)
    assert severity(c, "LIN-K002") == {"differs"}
    assert c.parts["rng"].status == "partial"
