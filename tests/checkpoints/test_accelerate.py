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


def test_folders_of_fsdp_are_read_as_what_they_are(four: Path) -> None:
    """Sharded FSDP states: laid out as accelerate/utils/fsdp_utils.py does, written by DCP; no GPU ran FSDP here."""
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    model = torch.nn.Linear(4, 2)
    moments = {
        f"state.{k}.{m}": torch.zeros_like(v)
        for k, v in model.state_dict().items()
        for m in ("exp_avg", "step")
    }
    dcp.save({"model": model.state_dict()}, checkpoint_id=four / "pytorch_model_fsdp_0", no_dist=True)
    dcp.save({"optimizer": moments}, checkpoint_id=four / "optimizer_0", no_dist=True)
    (four / "model.safetensors").unlink()
    (four / "optimizer.bin").unlink()
    c = look(four)
    assert (c.format, codes(c)) == ("accelerate", {"LIN-K009"})
    assert {t.name for t in c.tensors if t.component == "weights"} == {"model.weight", "model.bias"}
    assert c.parts["optimizer_state"].status == "present"
    (four / "optimizer_0" / "__0_0.distcp").unlink()
    assert "optimizer_0: 1 of 1 files" in said(look(four), "LIN-K001")


def test_in_a_store_it_reads_the_same(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert same_in_store(saved, monkeypatch)["step"] == 4
