"""Preserved evidence survives each framework's own way of removing checkpoints, and the framework goes on undisturbed.

Every rotation here is the framework's own code in a real run, but torchtitan's: it cannot be installed beside the
torch of these tests, and its rule is written down below from its documentation.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lineage.ledger import evidence
from lineage.ledger.verify import verify

from .made import in_ranks

torch = pytest.importorskip("torch")

METHODS = ("copy", "move")
"""Shared extents are a copy here: what they survive, tests/ledger/test_evidence_reflink.py shows on a file system that
has them."""


class Keeper:
    """Preserves checkpoints in one way, and shows afterwards that each is still what it was."""

    def __init__(self, ledger: Path, method: str) -> None:
        self.ledger, self.method = ledger, method
        self.kept: dict[str, tuple[Path, dict[str, bytes]]] = {}

    def keep(self, path: Path) -> None:
        """Preserve it, and remember what was in it."""
        base = path if path.is_dir() else path.parent
        files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
        before = {p.relative_to(base).as_posix(): p.read_bytes() for p in files}
        record = evidence.preserve(self.ledger, path, "checkpoint", method=self.method)  # type: ignore[arg-type]
        at = Path(record.at) if record.at else self.ledger / record.location
        self.kept[path.name] = (at if at.is_dir() else at.parent, before)

    def survived(self, name: str) -> Path:
        """Where it is, every file as it was and the ledger's own verification whole."""
        at, before = self.kept[name]
        assert {k: (at / k).read_bytes() for k in before} == before
        assert verify(self.ledger).damage == []
        return at


@pytest.fixture(params=METHODS)
def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> Keeper:
    return Keeper(tmp_path / "ledger", request.param)


def names(folder: Path) -> list[str]:
    """What lies in a folder."""
    return sorted(os.listdir(folder))


# -- Hugging Face Trainer


def hf_train(folder: Path, on_save: Callable[[int], None], steps: int = 5) -> None:
    """A tiny GPT-2 that saves at each step and keeps two."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class Calls(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            on_save(state.global_step)

    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=32, n_positions=8)
    args = transformers.TrainingArguments(
        str(folder),
        max_steps=steps,
        save_steps=1,
        save_total_limit=2,
        per_device_train_batch_size=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 8
    model = transformers.GPT2LMHeadModel(config)
    transformers.Trainer(model, args, train_dataset=data, callbacks=[Calls()]).train()


def test_trainers_save_total_limit(tmp_path: Path, keeper: Keeper) -> None:
    folder = tmp_path / "out"
    hf_train(folder, lambda step: keeper.keep(folder / "checkpoint-2") if step == 2 else None)
    assert names(folder) == ["checkpoint-4", "checkpoint-5"], "the rotation kept its own two, and no link"
    from transformers import GPT2LMHeadModel

    assert GPT2LMHeadModel.from_pretrained(keeper.survived("checkpoint-2"))


def test_trainers_next_run_over_the_same_folder(tmp_path: Path, keeper: Keeper) -> None:
    """It starts from nothing with names that are taken, and its rotation meets the old checkpoints too."""
    folder = tmp_path / "out"
    hf_train(folder, lambda step: keeper.keep(folder / "checkpoint-2") if step == 2 else None, steps=2)
    hf_train(folder, lambda step: None)
    keeper.survived("checkpoint-2")


def test_a_link_left_in_trainers_folder_would_survive_and_what_it_leads_to(tmp_path: Path) -> None:
    """Its rotation tries to remove the link at each save, which `rmtree` refuses and it ignores. None is left all the
    same: the next test shows what a link does to Accelerate, and a folder may be used by both.
    """
    folder = tmp_path / "out"

    def swap(step: int) -> None:
        if step == 2:
            (folder / "checkpoint-2").rename(tmp_path / "elsewhere")
            (folder / "checkpoint-2").symlink_to(tmp_path / "elsewhere")

    hf_train(folder, swap)
    assert (folder / "checkpoint-2").is_symlink()
    assert (tmp_path / "elsewhere" / "trainer_state.json").is_file()
    assert names(folder) == ["checkpoint-2", "checkpoint-4", "checkpoint-5"]


# -- Accelerate


def accelerate_saves(project: Path, after: Callable[[int], None], saves: int = 4) -> None:
    """A state that is saved again and again, of which two are kept. `after` gets the number of each save."""
    accelerate = pytest.importorskip("accelerate")
    from accelerate.utils import ProjectConfiguration

    settings = ProjectConfiguration(project_dir=str(project), automatic_checkpoint_naming=True, total_limit=2)
    acc = accelerate.Accelerator(cpu=True, project_config=settings)
    model = torch.nn.Linear(4, 2)
    model, optimizer = acc.prepare(model, torch.optim.AdamW(model.parameters()))
    for n in range(saves):
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        acc.save_state()
        after(n)


def test_accelerates_total_limit(tmp_path: Path, keeper: Keeper) -> None:
    folder = tmp_path / "checkpoints"
    accelerate_saves(tmp_path, lambda n: keeper.keep(folder / "checkpoint_0") if n == 0 else None)
    assert names(folder) == ["checkpoint_2", "checkpoint_3"]
    keeper.survived("checkpoint_0")


def test_a_link_or_another_folder_in_accelerates_folder_stops_its_next_save(tmp_path: Path) -> None:
    """It removes everything there by its number: so a moved checkpoint lies outside, and nothing is left behind."""
    folder = tmp_path / "checkpoints"

    def swap(n: int) -> None:
        if n == 0:
            (folder / "checkpoint_0").rename(tmp_path / "elsewhere")
            (folder / "checkpoint_0").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="symbolic link"):
        accelerate_saves(tmp_path, swap)
    shutil.rmtree(folder)

    with pytest.raises(IndexError):
        accelerate_saves(tmp_path, lambda n: (folder / "lineage-kept").mkdir() if n == 0 else None)


# -- Lightning


def lightning_fit(folder: Path, on_saved: Callable[[int], None]) -> None:
    """Six steps, a checkpoint at each, the best two of a falling loss and the last are kept."""
    lightning = pytest.importorskip("lightning")
    from lightning.pytorch.callbacks import Callback, ModelCheckpoint

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            self.log("train_loss", 100.0 - self.global_step)
            return self.layer(batch).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    class Calls(Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, *more: Any) -> None:
            on_saved(trainer.global_step)

    saving = ModelCheckpoint(
        folder,
        filename="{step}",
        monitor="train_loss",
        save_top_k=2,
        save_last=True,
        every_n_train_steps=1,
        save_on_train_epoch_end=False,
    )
    trainer = lightning.Trainer(
        max_steps=6,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[saving, Calls()],
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(16, 4), batch_size=2))


def test_lightnings_save_top_k_and_save_last(tmp_path: Path, keeper: Keeper) -> None:
    folder = tmp_path / "ckpts"

    def keep(step: int) -> None:
        if step == 3:
            [path] = folder.glob("step=2*.ckpt")
            keeper.keep(path)

    lightning_fit(folder, keep)
    left = names(folder)
    assert "last.ckpt" in left
    assert "step=2.ckpt" not in left, "the rotation removed it, or it was moved before"
    assert len(left) == 3
    at = keeper.survived("step=2.ckpt")
    assert torch.load(at / "step=2.ckpt", weights_only=False)["global_step"] == 2


def test_a_link_left_in_lightnings_folder_is_removed_and_what_it_leads_to_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "ckpts"

    def swap(step: int) -> None:
        if step == 3:
            [path] = folder.glob("step=2*.ckpt")
            path.rename(tmp_path / "elsewhere.ckpt")
            path.symlink_to(tmp_path / "elsewhere.ckpt")

    lightning_fit(folder, swap)
    assert "step=2.ckpt" not in names(folder)
    assert torch.load(tmp_path / "elsewhere.ckpt", weights_only=False)["global_step"] == 2


# -- torchtitan


def torchtitan_purges(folder: Path, keep_latest_k: int) -> None:
    """The rule of torchtitan's checkpointer, as it is documented.

    Each entry of the folder whose name has `step-<n>` anywhere counts, and all but the latest k by that number are
    removed with `shutil.rmtree(..., ignore_errors=True)`.
    """
    found = []
    for name in os.listdir(folder):
        match = re.search(r"step-(\d+)", name)
        if match:
            found.append((int(match.group(1)), folder / name))
    for _, path in sorted(found)[:-keep_latest_k]:
        shutil.rmtree(path, ignore_errors=True)


def test_torchtitans_keep_latest_k(tmp_path: Path, keeper: Keeper) -> None:
    """DCP writes the checkpoints; the rule alone is not torchtitan's own code."""
    import torch.distributed.checkpoint as dcp

    folder = tmp_path / "checkpoint"
    for step in range(10, 60, 10):
        dcp.save({"w": torch.full((100,), float(step))}, checkpoint_id=folder / f"step-{step}", no_dist=True)
        if step == 20:
            keeper.keep(folder / "step-20")
        torchtitan_purges(folder, 2)
    assert names(folder) == ["step-40", "step-50"]
    back = {"w": torch.zeros(100)}
    dcp.load(back, checkpoint_id=keeper.survived("step-20"), no_dist=True)
    assert torch.equal(back["w"], torch.full((100,), 20.0))


def test_another_name_in_torchtitans_folder_does_not_protect(tmp_path: Path) -> None:
    """`pinned-step-20` has `step-20` in it; so a moved checkpoint leaves the folder."""
    for name in ("pinned-step-20", "step-30", "step-40"):
        (tmp_path / name).mkdir()
    torchtitan_purges(tmp_path, 2)
    assert names(tmp_path) == ["step-30", "step-40"]


# -- in-place overwrites, and removal


def test_nanogpts_overwrite_of_one_file(tmp_path: Path, keeper: Keeper) -> None:
    """Its loop writes `ckpt.pt` again at each evaluation."""
    path = tmp_path / "out" / "ckpt.pt"
    path.parent.mkdir()
    for step in (10, 20, 30):
        torch.save({"model": torch.full((100,), float(step)), "iter_num": step}, path)
        if step == 10:
            keeper.keep(path)
    at = keeper.survived("ckpt.pt")
    assert torch.load(at / "ckpt.pt")["iter_num"] == 10
    assert torch.load(path)["iter_num"] == 30


def test_a_second_save_of_torch_distributed_checkpoint_into_the_same_folder(
    tmp_path: Path, keeper: Keeper
) -> None:
    import torch.distributed.checkpoint as dcp

    folder = tmp_path / "out" / "latest"
    for step in (10, 20):
        dcp.save({"w": torch.full((100,), float(step))}, checkpoint_id=folder, no_dist=True)
        if step == 10:
            keeper.keep(folder)
    back = {"w": torch.zeros(100)}
    dcp.load(back, checkpoint_id=keeper.survived("latest"), no_dist=True)
    assert torch.equal(back["w"], torch.full((100,), 10.0))


DEEPSPEED = """
import sys, torch, deepspeed
sys.path[:0] = [sys.argv[2]]
from pathlib import Path
from tests.checkpoints.test_rotation import Keeper
deepspeed.init_distributed(dist_backend="gloo")
model = torch.nn.Linear(8, 4)
config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}, "bf16": {"enabled": True},
          "zero_allow_untested_optimizer": True}
engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config=config)
keeper = Keeper(Path(sys.argv[1]) / "ledger", sys.argv[3])
for step in range(3):
    engine.backward(engine(torch.ones(1, 8, dtype=torch.bfloat16)).sum()); engine.step()
    engine.save_checkpoint(f"{sys.argv[1]}/run", tag="newest")
    if step == 0:
        keeper.keep(Path(sys.argv[1]) / "run" / "newest")
at = keeper.survived("newest")
back = torch.load(at / "mp_rank_00_model_states.pt", weights_only=False)
assert back["global_steps"] == 1, back["global_steps"]
now = torch.load(Path(sys.argv[1]) / "run" / "newest" / "mp_rank_00_model_states.pt", weights_only=False)
assert now["global_steps"] == 3, now["global_steps"]
"""


@pytest.mark.slow
def test_deepspeeds_overwrite_of_one_tag(tmp_path: Path, keeper: Keeper) -> None:
    """It writes under the same tag again; `latest` beside it goes on naming it."""
    pytest.importorskip("deepspeed")
    here = Path(__file__).parents[2]
    in_ranks(DEEPSPEED, 1, tmp_path, str(tmp_path), str(here), keeper.method)
    assert (tmp_path / "run" / "latest").read_text() == "newest"


@pytest.mark.parametrize("whole", [False, True])
def test_removal_of_the_checkpoint_or_of_the_folder_around_it(
    tmp_path: Path, keeper: Keeper, whole: bool
) -> None:
    folder = tmp_path / "out"
    (folder / "checkpoint-1").mkdir(parents=True)
    torch.save({"w": torch.ones(10)}, folder / "checkpoint-1" / "model.pt")
    keeper.keep(folder / "checkpoint-1")
    shutil.rmtree(folder if whole else folder / "checkpoint-1", ignore_errors=not whole)
    assert torch.equal(torch.load(keeper.survived("checkpoint-1") / "model.pt")["w"], torch.ones(10))
