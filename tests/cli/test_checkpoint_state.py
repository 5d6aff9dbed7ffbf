"""`lineage checkpoint verify --state` and `compare`: files that real frameworks wrote against what was live."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch")
pytest.importorskip("numpy")

import lineage
from lineage.cli import checkpoint
from tests.checkpoints.made import in_ranks, stored


def ask(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(checkpoint.app, [str(w) for w in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def told(*words: object) -> dict[str, Any]:
    return json.loads(ask(*words, "--json")[1])  # type: ignore[no-any-return]


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A tied head, BatchNorm's statistics, a buffer that is saved and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.norm = torch.nn.Embedding(20, 8), torch.nn.BatchNorm1d(8)
        self.mid, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 20, bias=False)
        self.head.weight = self.emb.weight
        self.register_buffer("inv_freq", torch.arange(4.0), persistent=False)
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x: Any) -> Any:
        return self.head(torch.relu(self.mid(self.norm(self.emb(x).mean(1)))))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three saves of a loop; the second one wrote the state of the first again."""
    root = tmp_path_factory.mktemp("run")
    torch.manual_seed(0)
    model = Net()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    stale: Any = None
    with lineage.attach(
        None, dir=root / "runs", run_id="r", model=model, optimizer=opt, quiet=True, report=False
    ) as rec:
        for step in range(1, 7):
            x = torch.randint(0, 20, (8, 5))
            with rec.step(step, {"x": x}):
                torch.nn.functional.cross_entropy(model(x), x[:, 0]).backward()
                opt.step()
                opt.zero_grad()
            if step % 2:
                continue
            state = {"model": model.state_dict(), "optimizer": opt.state_dict(), "step": step}
            stale = copy.deepcopy(state) if step == 2 else stale
            at = root / f"step-{step}"
            at.mkdir()
            torch.save(stale if step == 4 else state, at / "state.pt")
            rec.checkpoint(at, step=step)
    return root


@pytest.fixture(autouse=True)
def here(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINEAGE_DIR", str(run / "runs"))


def test_files_that_hold_the_live_state_are_said_to(run: Path) -> None:
    """A tied weight, statistics of which nothing is on record, and buffers that no file holds are no difference."""
    code, text = ask("verify", "--state", run / "step-2")
    assert code == 0, text
    assert "the live state of its save (step 2)" in text
    assert "weights: 5 tensors equal, 2 not on record (norm.running_mean, norm.running_var)" in text
    assert "buffers: 2 tensors equal\n" in text
    assert "optimizer_state: 10 tensors equal, 10 of them by content" in text


def test_a_save_that_wrote_the_first_ones_state_again_is_named_with_its_step(run: Path) -> None:
    code, text = ask("verify", "--state", run / "step-4")
    assert code == 1
    assert "the files hold the state of step 2, and not of step 4" in text
    found = told("verify", "--state", run / "step-4")
    assert (found["status"], found["step"], found["is_the_state_of"]["step"]) == ("differs", 4, 2)


def test_one_changed_bit_of_one_weight_and_of_one_moment_is_found_by_its_name(
    run: Path, tmp_path: Path
) -> None:
    at = Path(shutil.copytree(run / "step-6", tmp_path / "step-6"))
    state = torch.load(at / "state.pt", weights_only=False)
    state["model"]["mid.weight"].view(torch.int32)[3, 4] ^= 1
    state["optimizer"]["state"][2]["exp_avg"].view(torch.int32)[0] ^= 1 << 30
    torch.save(state, at / "state.pt")
    code, text = ask("verify", "--state", at)
    assert code == 1, text
    assert "weights: 4 tensors equal, 1 differ (mid.weight)" in text
    assert "9 tensors equal, 9 of them by content, 1 differ (norm.bias.moment1)" in text
    assert "is_the_state_of" not in text
    assert told("verify", "--state", at)["is_the_state_of"] is None


def test_a_tensor_that_is_gone_and_one_of_another_type_are_differences(run: Path, tmp_path: Path) -> None:
    at = Path(shutil.copytree(run / "step-6", tmp_path / "step-6"))
    state = torch.load(at / "state.pt", weights_only=False)
    del state["model"]["mid.bias"], state["model"]["scale"]
    state["model"]["mid.weight"] = state["model"]["mid.weight"].bfloat16()
    torch.save(state, at / "state.pt")
    code, text = ask("verify", "--state", at)
    assert code == 1, text
    assert "1 of another type or shape (mid.weight float32[8,8] -> bfloat16[8,8])" in text
    assert "1 not in the files (mid.bias)" in text
    assert "buffers: 1 tensors equal, 1 not in the files (scale)" in text


def test_weights_alone_are_compared_and_moments_that_were_not_saved_are_no_difference(
    run: Path, tmp_path: Path
) -> None:
    at = Path(shutil.copytree(run / "step-6", tmp_path / "step-6"))
    (at / "state.pt").unlink()
    safetensors = pytest.importorskip("safetensors.torch")
    state = torch.load(run / "step-6" / "state.pt", weights_only=False)["model"]
    del state["head.weight"]
    prefixed = {f"module._orig_mod.{k}": v.clone() for k, v in state.items()}
    safetensors.save_file(prefixed, at / "model.safetensors")
    code, text = ask("verify", "--state", at)
    assert code == 0, text
    assert "weights: 5 tensors equal" in text
    assert "optimizer_state: 0 tensors equal, 10 not in the files" in text


def test_without_the_ledger_the_one_digest_in_the_sidecar_tells_what_is_equal(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot tell what differs, and says so."""
    monkeypatch.setenv("LINEAGE_DIR", str(tmp_path / "none"))
    hidden = run / "hidden"
    (run / "runs").rename(hidden)
    try:
        code, text = ask("verify", "--state", run / "step-6")
        assert code == 0, text
        assert "weights: 5 tensors have the digest that was recorded at the save" in text
        assert "optimizer_state: 10 tensors have the digest" in text
        assert told("verify", "--state", run / "step-6")["recorded_in"] == "lineage.json"
        code, text = ask("verify", "--state", run / "step-4")
        assert code == 4, text
        assert "a tensor differs, or is called otherwise" in text
    finally:
        hidden.rename(run / "runs")


def test_a_copy_in_a_store_is_held_against_the_same_record(run: Path) -> None:
    assert ask("verify", "--state", stored(run / "step-2", "state"))[0] == 0
    assert told("verify", "--state", stored(run / "step-4", "state"))["is_the_state_of"]["step"] == 2


def test_where_nothing_is_recorded_it_cannot_tell(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINEAGE_DIR", str(tmp_path / "none"))
    torch.save({"w": torch.ones(2)}, tmp_path / "x.pt")
    done = CliRunner().invoke(checkpoint.app, ["verify", "--state", str(tmp_path / "x.pt")])
    assert "nothing is recorded of the live state" in str(done.exception)


def test_compare_names_what_differs_between_two_checkpoints(run: Path, tmp_path: Path) -> None:
    code, text = ask("compare", run / "step-2", run / "step-4")
    assert code == 0, text
    assert "equal, bit for bit" in text
    state = torch.load(run / "step-2" / "state.pt", weights_only=False)
    state["model"]["mid.weight"] = state["model"]["mid.weight"].double()
    state["model"]["mid.bias"] = torch.zeros(9)
    state["model"]["more"] = torch.zeros(2)
    state["model"]["scale"] = state["model"]["scale"] * 2
    del state["model"]["norm.bias"]
    torch.save(state, tmp_path / "b.pt")
    found = told("compare", run / "step-2" / "state.pt", tmp_path / "b.pt")
    weights = found["components"]["weights"]
    assert weights["differing"] == ["scale"]
    assert weights["retyped"] == {
        "mid.weight": "mid.weight float32[8,8] -> float64[8,8]",
        "mid.bias": "mid.bias float32[8] -> float32[9]",
    }
    assert (weights["absent"], weights["new"]) == (["norm.bias"], ["more"])
    assert found["components"]["optimizer_state"]["equal"] == 10
    assert ask("compare", run / "step-2", tmp_path / "b.pt")[0] == 1


def test_compare_does_not_mind_the_format_the_shards_or_a_prefix(run: Path, tmp_path: Path) -> None:
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    safetensors = pytest.importorskip("safetensors.torch")
    state = torch.load(run / "step-6" / "state.pt", weights_only=False)
    dcp.save({"model": state["model"]}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    tensors = {f"module.{k}": v.clone() for k, v in state["model"].items()}
    (tmp_path / "st").mkdir()
    safetensors.save_file(tensors, tmp_path / "st" / "model.safetensors")
    code, text = ask("compare", tmp_path / "dcp", tmp_path / "st")
    assert code == 0, text
    assert "weights: 10 tensors equal" in text


def test_a_file_that_is_cut_off_cannot_be_compared_and_says_why(run: Path, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        safetensors.save_file({"w": torch.ones(100)}, tmp_path / name / "model.safetensors")
    data = (tmp_path / "b" / "model.safetensors").read_bytes()
    (tmp_path / "b" / "model.safetensors").write_bytes(data[:-50])
    done = CliRunner().invoke(checkpoint.app, ["compare", str(tmp_path / "a"), str(tmp_path / "b")])
    assert "no tensor is known" in str(done.exception)


HF = """
import sys, torch, transformers, lineage
from pathlib import Path
torch.manual_seed(0)
config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=32, n_positions=8)
data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 16
args = transformers.TrainingArguments(sys.argv[1] + "/out", max_steps=4, save_steps=2, report_to=[], use_cpu=True,
                                      per_device_train_batch_size=2, disable_tqdm=True, weight_decay=0.1)
trainer = transformers.Trainer(transformers.GPT2LMHeadModel(config), args, train_dataset=data)
class Saves(transformers.TrainerCallback):
    rec = None
    def on_step_end(self, args, state, control, **k):
        if self.rec is None:
            self.rec = lineage.attach(None, dir=sys.argv[1] + "/runs", run_id="r", model=trainer.model,
                                      optimizer=trainer.optimizer, quiet=True, report=False)
    def on_save(self, args, state, control, **k):
        self.rec.checkpoint(Path(args.output_dir) / f"checkpoint-{state.global_step}", step=state.global_step)
saves = Saves()
trainer.add_callback(saves)
trainer.train()
saves.rec.close()
"""
"""With weight decay the Trainer's optimizer has two groups, so that its numbers are not the order of the weights."""

LIGHTNING = """
import sys, torch, lightning, lineage
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
    def training_step(self, batch, index):
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())
torch.manual_seed(0)
module = Module()
trainer = lightning.Trainer(max_steps=3, accelerator="cpu", logger=False, enable_progress_bar=False,
                            enable_checkpointing=False, enable_model_summary=False)
trainer.fit(module, torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2))
with lineage.attach(None, dir=sys.argv[1] + "/runs", run_id="r", model=module, optimizer=trainer.optimizers[0],
                    quiet=True, report=False) as rec:
    trainer.save_checkpoint(sys.argv[1] + "/last.ckpt")
    rec.checkpoint(sys.argv[1] + "/last.ckpt", step=3)
"""

ACCELERATE = """
import sys, torch, lineage
from accelerate import Accelerator
acc = Accelerator(cpu=True)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
opt = torch.optim.AdamW(model.parameters())
model, opt = acc.prepare(model, opt)
for _ in range(3):
    acc.backward(model(torch.ones(2, 4)).sum()); opt.step(); opt.zero_grad()
with lineage.attach(None, dir=sys.argv[1] + "/runs", run_id="r", model=model, optimizer=opt, quiet=True,
                    report=False) as rec:
    acc.save_state(sys.argv[1] + "/saved")
    rec.checkpoint(sys.argv[1] + "/saved", step=3)
"""

DCP = """
import sys, torch, lineage
import torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.LayerNorm(7), torch.nn.Linear(7, 3))
fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
opt = torch.optim.AdamW(model.parameters())
with lineage.attach(None, dir=sys.argv[1] + "/runs", run_id="r", model=model, optimizer=opt, quiet=True,
                    report=False) as rec:
    for step in (1, 2, 3):
        with rec.step(step, {"x": torch.ones(2, 6)}):
            model(torch.ones(2, 6)).sum().backward(); opt.step(); opt.zero_grad()
        if step == 1:
            continue
        with rec.saving(step) as save:
            weights, moments = get_state_dict(model, opt)
            at = f"{sys.argv[1]}/step-{step}"
            dcp.save({"model": weights, "optimizer": moments, "step": step}, checkpoint_id=at)
            save.commit(at)
"""


ASYNC = """
import copy, sys, torch, lineage
import torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
group = dist.new_group(backend="gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.LayerNorm(7), torch.nn.Linear(7, 3))
fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
opt = torch.optim.AdamW(model.parameters())
staged = None
with lineage.attach(None, dir=sys.argv[1] + "/runs", run_id="r", model=model, optimizer=opt, quiet=True,
                    report=False) as rec:
    for step in range(1, 7):
        with rec.step(step, {"x": torch.ones(2, 6)}):
            model(torch.ones(2, 6)).sum().backward(); opt.step(); opt.zero_grad()
        if step % 2:
            continue
        with rec.saving(step) as save:
            weights, moments = get_state_dict(model, opt)
            state = {"model": weights, "optimizer": moments}
            staged = staged or copy.deepcopy(state)  # a buffer that is filled once
            at = f"{sys.argv[1]}/step-{step}"
            done = dcp.async_save(staged if step == 4 else state, checkpoint_id=at, process_group=group)
            done.result()
            save.commit(at)
"""


def test_an_asynchronous_save_that_wrote_the_first_ones_buffer_again_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_ranks(ASYNC, 2, tmp_path, str(tmp_path))
    monkeypatch.setenv("LINEAGE_DIR", str(tmp_path / "runs"))
    for step in (2, 6):
        assert told("verify", "--state", tmp_path / f"step-{step}")["status"] == "equal"
    found = told("verify", "--state", tmp_path / "step-4")
    assert (found["status"], found["is_the_state_of"]["step"]) == ("differs", 2)
    assert len(found["components"]["optimizer_state"]["differing"]) == 12
    assert ask("compare", tmp_path / "step-2", tmp_path / "step-4")[0] == 0


FSDP1 = """
import sys, torch, lineage
import torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel
dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.Linear(7, 3))
model = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
opt = torch.optim.AdamW(model.parameters())
model(torch.ones(2, 6)).sum().backward(); opt.step(); opt.zero_grad()
with lineage.attach(None, dir=sys.argv[1] + "/runs", run_id="r", model=model, optimizer=opt, quiet=True,
                    report=False) as rec:
    weights, moments = get_state_dict(model, opt)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=sys.argv[1] + "/step-1")
    rec.checkpoint(sys.argv[1] + "/step-1", step=1)
"""


def test_pieces_that_the_first_fsdp_cut_cannot_be_compared_and_are_not_said_to_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank's parameter is a plain tensor, and a piece: its size was taken for that of the whole."""
    in_ranks(FSDP1, 2, tmp_path, str(tmp_path))
    monkeypatch.setenv("LINEAGE_DIR", str(tmp_path / "runs"))
    code, text = ask("verify", "--state", tmp_path / "step-1")
    assert code == 4, text
    assert "which part of it a rank holds is not known" in text


@pytest.mark.parametrize(
    ("script", "world", "at", "weights", "moments"),
    [
        pytest.param(HF, 1, "out/checkpoint-2", 28, 56, id="hf_trainer"),
        pytest.param(LIGHTNING, 1, "last.ckpt", 2, 4, id="lightning"),
        pytest.param(ACCELERATE, 1, "saved", 4, 8, id="accelerate"),
        pytest.param(ACCELERATE, 2, "saved", 4, 8, id="accelerate-2"),
        pytest.param(DCP, 2, "step-2", 6, 12, id="fsdp2-dcp-2"),
    ],
)
def test_what_real_frameworks_saved_is_the_state_that_was_live(
    script: str,
    world: int,
    at: str,
    weights: int,
    moments: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for needed in ("transformers", "lightning", "accelerate"):
        if f" {needed}" in script:
            pytest.importorskip(needed)
    in_ranks(script, world, tmp_path, str(tmp_path))
    monkeypatch.setenv("LINEAGE_DIR", str(tmp_path / "runs"))
    found = told("verify", "--state", tmp_path / at)
    assert found["status"] == "equal", found
    assert found["components"]["weights"]["equal"] == weights
    assert found["components"]["optimizer_state"]["equal"] == moments
    assert found["not_read"] == {}
