"""Public faults that the frameworks still have, in the frameworks themselves, watched as their users would."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from lineage.ledger.reader import Ledger
from tests.checkpoints.made import in_ranks
from tests.warm import Warm

from . import said

transformers = pytest.importorskip("transformers")
lightning = pytest.importorskip("lightning")
pytest.importorskip("accelerate")

from lineage.integrations import hf_trainer
from lineage.integrations import lightning as in_lightning

VOCABULARY = 64


def only(root: Path) -> Ledger:
    (found,) = [p for p in (root / "runs").iterdir() if (p / "journal").is_dir()]
    return Ledger(found)


# -- Hugging Face Trainer


class Tokens(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Forty sequences."""

    def __init__(self) -> None:
        self.rows = torch.randint(0, VOCABULARY, (40, 8), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[at], "labels": self.rows[at]}


class Stop(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """Ends the training after a step, as a kill does."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = state.global_step >= self.at


def hugging_face(root: Path, stop: int, *, resume: Any = None, **more: Any) -> None:
    """A Trainer on a tiny GPT-2 with a save every second step."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=16, vocab_size=VOCABULARY, n_positions=8, bos_token_id=0, eos_token_id=0
    )
    args = transformers.TrainingArguments(
        str(root / "out"),
        **{"max_steps": 20, "save_steps": 2, "learning_rate": 1e-2, "seed": 5, **more},
        per_device_train_batch_size=4,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(
        transformers.GPT2LMHeadModel(config),
        args,
        train_dataset=Tokens(),
        callbacks=[hf_trainer.LineageCallback(dir=root / "runs", quiet=True, report=False), Stop(stop)],
    )
    trainer.train(resume_from_checkpoint=resume)


def test_trainer_with_another_number_of_steps_is_named_with_both_horizons_and_the_rates(
    tmp_path: Path, prints: said.Prints
) -> None:
    """transformers#24656, #25865, #27710: the schedule is made anew for the new total, in the middle of the old one."""
    hugging_face(tmp_path, 4)
    hugging_face(tmp_path, 6, resume=True, max_steps=40)
    found = only(tmp_path)
    changed = said.changes(found)
    assert {"horizon", "lr_schedule"} <= set(changed)
    assert "max_steps requested 20 -> 40" in changed["horizon"].text
    text = changed["lr_schedule"].text
    assert "0.0075" in text  # 1e-2 x (1 - 5 / 20) and 1e-2 x (1 - 5 / 40) at step 5
    assert "0.00875" in text
    assert "max_steps requested 20 -> 40" in prints("show", found)
    assert said.component(found, "optimizer_state").status == "restored"


def test_trainer_that_goes_on_with_the_same_number_of_steps_is_not_named(tmp_path: Path) -> None:
    hugging_face(tmp_path, 4)
    hugging_face(tmp_path, 6, resume=True)
    found = only(tmp_path)
    assert said.changes(found) == {}
    assert [f.text for f in said.findings(found)] == []
    assert {c.status for c in said.components(found).values()} <= {"restored", "not_recorded"}


def test_the_partial_save_that_trainer_picks_as_the_latest_is_named_before_and_after(
    tmp_path: Path, prints: said.Prints, warm_reader: Warm
) -> None:
    """transformers#35782, #35525: the last folder is taken whatever is in it, and a missing optimizer says nothing."""
    hugging_face(tmp_path, 4)
    latest = Path(transformers.trainer_utils.get_last_checkpoint(str(tmp_path / "out")))
    assert latest.name == "checkpoint-4"
    (latest / "optimizer.pt").unlink()
    assert Path(transformers.trainer_utils.get_last_checkpoint(str(tmp_path / "out"))) == latest
    text = said.printed(warm_reader, "checkpoint", latest)
    assert "LIN-K005" in text
    hugging_face(tmp_path, 6, resume=True)
    found = only(tmp_path)
    assert said.component(found, "optimizer_state").status == "absent"
    assert "not restored: " in prints("resume", found)
    assert "optimizer state" in prints("show", found)


# -- Lightning


class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
    """A layer, dropout, a layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        return self.net(batch[0]).pow(2).mean()

    def configure_optimizers(self) -> Any:
        groups = [
            {"params": [p for p in self.parameters() if p.dim() > 1]},
            {"params": [p for p in self.parameters() if p.dim() <= 1], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=1e-2)


def in_lightning_fit(root: Path, upto: int, *, resume: Path | None = None, save: int | None = None) -> Path:
    """Fit up to a step of an epoch of eight, and save after `save`."""
    data = torch.randn(32, 4, generator=torch.Generator().manual_seed(3))
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    folder = root / "saved"
    callbacks: list[Any] = [in_lightning.LineageCallback(dir=root / "runs", quiet=True, report=False)]
    if save is not None:
        callbacks.append(
            lightning.pytorch.callbacks.ModelCheckpoint(
                folder, filename="{step}", every_n_train_steps=save, save_top_k=-1
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lightning.Trainer(
            max_steps=upto,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=save is not None,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=callbacks,
        ).fit(
            Module(),
            torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_size=4),
            ckpt_path=str(resume) if resume else None,
            weights_only=False,
        )
    return folder / f"step={save}.ckpt"


def test_random_numbers_that_lightning_does_not_save_are_named(tmp_path: Path, prints: said.Prints) -> None:
    """No checkpoint of Lightning's holds them; a resume draws other dropout masks."""
    checkpoint = in_lightning_fit(tmp_path, 6, save=4)
    torch.manual_seed(99)
    in_lightning_fit(tmp_path, 7, resume=checkpoint)
    found = only(tmp_path)
    assert said.component(found, "rng").status == "differs"
    assert "random-number state" in prints("resume", found)
    for name in ("weights", "optimizer_state", "optimizer_step"):
        assert said.component(found, name).status == "restored"


def test_data_that_lightning_reads_again_after_a_resume_within_an_epoch_is_named(
    tmp_path: Path, prints: said.Prints
) -> None:
    """Lightning#18780, #19764: the loader has no state, so the epoch begins anew and its first samples come twice."""
    checkpoint = in_lightning_fit(tmp_path, 6, save=4)
    in_lightning_fit(tmp_path, 6, resume=checkpoint)
    found = only(tmp_path)
    text = said.changes(found)["loader_position"].text
    assert "data is read again" in text
    assert "the batch of step 5 is the one that step 1 had" in text
    assert "BROKEN" in prints("show", found)


# -- DeepSpeed


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A save by ZeRO and three resumes of it, by the real engine."""
    pytest.importorskip("deepspeed")
    root = tmp_path_factory.mktemp("deepspeed")
    script = Path(__file__).with_name("deepspeed_loop.py").read_text()
    in_ranks(script, 1, root, str(root), "healthy", "no_optimizer_states", "no_latest")
    return root


@pytest.mark.slow
def test_a_faithful_resume_of_deepspeed_is_not_named(deep: Path, prints: said.Prints) -> None:
    found = only(deep / "healthy")
    assert {c.status for c in said.components(found).values()} == {"restored", "not_recorded"}
    assert said.component(found, "master_weights").status == "restored"
    assert said.changes(found) == {}
    assert [f.text for f in said.findings(found)] == []
    assert "what was recorded is restored" in prints("resume", found)


@pytest.mark.slow
def test_masters_and_moments_that_deepspeed_leaves_out_are_named(deep: Path, prints: said.Prints) -> None:
    """load_optimizer_states=False rebuilds float32 masters from bf16 weights, which are equal."""
    found = only(deep / "no_optimizer_states")
    statuses = {name: c.status for name, c in said.components(found).items()}
    assert statuses["weights"] == "restored"
    assert statuses["master_weights"] == "differs"
    assert statuses["optimizer_state"] == "absent"
    text = prints("resume", found)
    assert "not restored: master weights, optimizer state, optimizer step counter" in text


@pytest.mark.slow
def test_a_load_that_found_no_latest_and_began_anew_is_named(
    deep: Path, prints: said.Prints, warm_reader: Warm
) -> None:
    """diffusion-pipe#159: `latest` is gone, load_checkpoint returns (None, None), and training starts from nothing."""
    found = only(deep / "no_latest")
    assert said.component(found, "weights").status == "differs"
    text = prints("resume", found)
    assert "not restored: model weights, master weights, optimizer state" in text
    assert "step 8 -> 0" in prints("show", found)
    assert "LIN-K011" in said.printed(warm_reader, "checkpoint", deep / "no_latest" / "saved")
