"""Folders that Hugging Face's Trainer wrote: what is there, and what its resume would do without the rest."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from lineage.checkpoints import look

from .made import codes, copy, cut, said, same_in_store, severity

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")


def train(folder: Path, **settings: object) -> Path:
    """Four steps of a tiny random GPT-2; a checkpoint every two."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=32, n_positions=8)
    data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 8
    args = transformers.TrainingArguments(
        str(folder),
        max_steps=4,
        save_steps=2,
        per_device_train_batch_size=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **settings,
    )
    transformers.Trainer(transformers.GPT2LMHeadModel(config), args, train_dataset=data).train()
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("hf"))


@pytest.fixture
def two(trained: Path, tmp_path: Path) -> Path:
    return copy(trained / "checkpoint-2", tmp_path / "checkpoint-2")


def test_a_whole_checkpoint_has_nothing_missing(trained: Path) -> None:
    c = look(trained / "checkpoint-2")
    assert (c.format, c.step, c.world, c.findings) == ("hf_trainer", 2, 1, [])
    named = transformers.GPT2LMHeadModel.from_pretrained(trained / "checkpoint-2").state_dict()
    listed = {t.name: t.shape for t in c.tensors if t.component == "weights"}
    assert listed == {k: tuple(v.shape) for k, v in named.items() if k in listed}
    assert set(named) - set(listed) == {"lm_head.weight"}  # tied to the embedding, and stored once
    assert sum(t.component == "optimizer_state" for t in c.tensors) == 3 * len(listed)


def test_the_folder_of_the_run_names_its_checkpoints(trained: Path) -> None:
    assert "checkpoint-2, checkpoint-4" in said(look(trained), "LIN-K016")


@pytest.mark.parametrize(
    ("gone", "code", "severe", "words"),
    [
        ("model.safetensors", "LIN-K004", "fails", "no weights"),
        ("optimizer.pt", "LIN-K005", "differs", "does not load scheduler.pt either"),
        ("scheduler.pt", "LIN-K006", "differs", "does not load optimizer.pt either"),
        ("rng_state.pth", "LIN-K008", "differs", "random states are missing"),
        ("trainer_state.json", "LIN-K010", "fails", "writes it last"),
    ],
)
def test_each_missing_file_is_named_with_what_trainer_does(
    gone: str, code: str, severe: str, words: str, two: Path
) -> None:
    (two / gone).unlink()
    c = look(two)
    assert c.format == "hf_trainer"
    assert codes(c) == {code}
    assert severity(c, code) == {severe}
    assert words in said(c, code)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_each_file_cut_off_is_named(name: str, two: Path) -> None:
    cut(two / name)
    assert name in said(look(two), "LIN-K002")


def test_trainer_really_resumes_without_a_word_when_the_optimizer_is_missing(
    two: Path, tmp_path: Path
) -> None:
    """The severity `differs` is the framework's own behaviour."""
    (two / "optimizer.pt").unlink()
    run = tmp_path / "run"
    shutil.move(two, run / "checkpoint-2")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=32, n_positions=8)
    data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 8
    args = transformers.TrainingArguments(
        str(run), max_steps=3, per_device_train_batch_size=2, report_to=[], use_cpu=True, disable_tqdm=True
    )
    trainer = transformers.Trainer(transformers.GPT2LMHeadModel(config), args, train_dataset=data)
    trainer.train(resume_from_checkpoint=str(run / "checkpoint-2"))
    steps = {float(s["step"]) for s in trainer.optimizer.state.values()}
    assert trainer.state.global_step == 3
    assert steps == {1.0}


def test_random_states_of_a_rank_that_is_gone_are_counted(two: Path) -> None:
    for rank in (0, 1, 3):
        shutil.copy(two / "rng_state.pth", two / f"rng_state_{rank}.pth")
    (two / "rng_state.pth").unlink()
    found = said(look(two), "LIN-K008")
    assert "3 ranks, and 4 ranks ran" in found
    assert "rng_state_2.pth missing" in found


def test_more_ranks_than_saved_it_are_named(two: Path) -> None:
    assert "1 rank saved it, and 4 would resume: ranks 1 to 3 find no random state" in said(
        look(two, world=4), "LIN-K017"
    )


def test_an_optimizer_of_a_later_save_is_a_mixture(trained: Path, two: Path) -> None:
    shutil.copy(trained / "checkpoint-4" / "optimizer.pt", two / "optimizer.pt")
    c = look(two)
    assert "optimizer.pt counts 4 updates, and the checkpoint says step 2" in said(c, "LIN-K012")


def test_a_scheduler_of_a_later_save_is_a_mixture(trained: Path, two: Path) -> None:
    shutil.copy(trained / "checkpoint-4" / "scheduler.pt", two / "scheduler.pt")
    assert "scheduler.pt stands at 4, and the checkpoint says step 2" in said(look(two), "LIN-K012")


def test_the_state_of_another_step_than_the_name_is_a_mixture(trained: Path, two: Path) -> None:
    shutil.copy(trained / "checkpoint-4" / "trainer_state.json", two / "trainer_state.json")
    assert "says step 4, and the folder is named checkpoint-2" in said(look(two), "LIN-K012")


def test_files_much_newer_than_the_last_one_of_a_save_are_named_as_not_certain(two: Path) -> None:
    at = (two / "trainer_state.json").stat().st_mtime
    os.utime(two / "model.safetensors", (at + 3600, at + 3600))
    c = look(two)
    assert "written after trainer_state.json" in said(c, "LIN-K012")
    assert all(not f.certain for f in c.findings)


def test_fp16_without_a_scaler_is_named(two: Path) -> None:
    """fp16 is set in training_args.bin as the Trainer saves it; CPU runs have no scaler to save."""
    args = torch.load(two / "training_args.bin", weights_only=False)
    args.fp16 = True
    torch.save(args, two / "training_args.bin")
    c = look(two)
    assert codes(c) == {"LIN-K007"}
    assert "the scale starts at 65,536 again" in said(c, "LIN-K007")
    torch.save({"scale": 256.0, "growth_factor": 2.0}, two / "scaler.pt")
    c = look(two)
    assert c.findings == []
    assert "256" in c.parts["grad_scaler"].text


def test_save_only_model_is_named_as_the_settings_choice(tmp_path: Path) -> None:
    c = look(train(tmp_path / "run", save_only_model=True) / "checkpoint-2")
    assert codes(c) == {"LIN-K005"}
    assert c.parts["rng"].status == "by_design"


def test_ignore_data_skip_is_named(tmp_path: Path) -> None:
    c = look(train(tmp_path / "run", ignore_data_skip=True) / "checkpoint-2")
    assert codes(c) == {"LIN-K009"}


def test_shards_with_an_index_are_read_and_a_lost_one_is_named(two: Path) -> None:
    model = transformers.GPT2LMHeadModel.from_pretrained(two)
    (two / "model.safetensors").unlink()
    model.save_pretrained(two, max_shard_size="4KB")
    shards = sorted(two.glob("model-*.safetensors"))
    assert len(shards) > 2
    c = look(two)
    assert c.findings == []
    assert len([s for s in c.shards if s.startswith("model-")]) == len(shards)
    shards[1].unlink()
    c = look(two)
    assert f"1 of the {len(shards)} files" in said(c, "LIN-K001")
    assert c.parts["weights"].status == "partial"


def test_a_real_trainer_state_of_an_old_release_gives_its_step(two: Path) -> None:
    """Releases before 4.3x had fewer keys; only global_step is needed."""
    old = {
        "best_metric": None,
        "epoch": 0.5,
        "global_step": 2,
        "is_world_process_zero": True,
        "log_history": [],
    }
    (two / "trainer_state.json").write_text(json.dumps(old))
    assert look(two).step == 2


def test_a_git_lfs_pointer_in_the_place_of_the_optimizer_is_named(two: Path) -> None:
    """A clone without LFS leaves these."""
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "3e" * 32 + "\nsize 12347192855\n"
    (two / "optimizer.pt").write_text(pointer)
    assert "optimizer.pt is a Git LFS pointer" in said(look(two), "LIN-K015")


def test_in_a_store_it_reads_the_same(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert same_in_store(two, monkeypatch)["findings"] == []
    cut(two / "optimizer.pt")
    assert same_in_store(two, monkeypatch)["worst"] == "fails"


def test_in_a_store_the_folder_of_the_run_names_its_checkpoints(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = same_in_store(trained, monkeypatch)["findings"]  # type: ignore[misc]
    assert "checkpoint-2, checkpoint-4" in found["text"]


@pytest.mark.parametrize("bad", ["cut", "zeros", "hostile"])
def test_the_random_states_of_each_rank_are_looked_at(bad: str, two: Path) -> None:
    """Trainer stops on that rank: `_load_rng_state` loads the file without a try."""
    for rank in (0, 1):
        shutil.copyfile(two / "rng_state.pth", two / f"rng_state_{rank}.pth")
    (two / "rng_state.pth").unlink()
    file = two / "rng_state_1.pth"
    if bad == "cut":
        cut(file)
    elif bad == "zeros":
        file.write_bytes(bytes(file.stat().st_size))
    else:
        torch.save(_Runs(), file)
    c = look(two)
    assert severity(c, "LIN-K013" if bad == "hostile" else "LIN-K002") == {"fails"}
    assert c.parts["rng"].status == "partial"


def test_a_state_of_zeros_is_told_as_never_written(two: Path) -> None:
    file = two / "trainer_state.json"
    file.write_bytes(bytes(file.stat().st_size))
    assert "trainer_state.json holds zeros alone" in said(look(two), "LIN-K002")


class _Runs:
    def __reduce__(self) -> Any:
        return os.mkdir, ("never",)
