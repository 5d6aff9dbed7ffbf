"""Rotation by Trainer and by Accelerate never deletes a checkpoint that an open incident needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import transformers.trainer

from .accelerate_loops import Loop, Plain
from .hf_loops import Tokens, Trainer, saved, trainer
from .reading import named, newest, only


class Breaks(Trainer):
    """The loss is not a number from one step on."""

    at = 5

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().compute_loss(*args, **kwargs)
        training = self.model.training and self.state.global_step == self.at - 1
        return loss * float("nan") if training else loss


class BreaksLate(Breaks):
    at = 9


def names(folder: Path) -> list[str]:
    """What lies in a folder, in order."""
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


def kept(folder: Path, name: str) -> dict[str, str]:
    """Checkpoint -> the folder that holds it, in the rotation's folder or beside it, as the sidecars say."""
    paths = [*(folder / name).glob("*/lineage.json"), *(folder / f"{name}.kept").glob("*/lineage.json")]
    return {json.loads(p.read_text())["checkpoint"]["uid"]: p.parent.name for p in paths}


def needed(folder: Path) -> set[str]:
    """The last good and the first bad checkpoint of the incident."""
    incident, bad = newest(folder, "incident"), newest(folder, "first_bad")
    return {incident.last_good_checkpoint, bad.first_bad_checkpoint}


ROTATING = {"max_steps": 10, "save_steps": 2}


@pytest.mark.parametrize("kind", [Trainer, Breaks])
def test_trainer_keeps_the_last_good_and_the_first_bad_checkpoint_of_an_incident(
    tmp_path: Path, kind: type[Trainer]
) -> None:
    """They are moved beside its folder just before it would delete them; a healthy run is left as it was."""
    trainer(tmp_path, kind=kind, save_total_limit=2, **ROTATING).train()
    assert names(tmp_path / "out") == ["checkpoint-10", "checkpoint-8"]
    if kind is Trainer:
        assert not (tmp_path / "out.kept").exists()
    else:
        assert needed(tmp_path) <= set(kept(tmp_path, "out"))
        assert {"checkpoint-4", "checkpoint-6"} <= set(names(tmp_path / "out.kept"))
    assert not hasattr(transformers.trainer.rotate_checkpoints, "__wrapped__")  # nothing of ours stays


def test_a_kept_checkpoint_is_resumed_from_and_known(tmp_path: Path) -> None:
    """Where it was moved to: the resume is found faithful, and its marks are known."""
    trainer(tmp_path, kind=Breaks, save_total_limit=2, **ROTATING).train()
    incident = newest(tmp_path, "incident")
    assert incident.first_bad_step == 5
    good = kept(tmp_path, "out")[incident.last_good_checkpoint]
    made = trainer(tmp_path, stop=6, save_total_limit=2, **ROTATING)
    made.train(resume_from_checkpoint=str(tmp_path / "out.kept" / good))
    assert only(tmp_path).segments[-1].info.parent_checkpoint == incident.last_good_checkpoint
    assert named(tmp_path) == {}


def test_trainer_keeps_them_also_at_the_end_where_it_deletes_all_but_the_best(tmp_path: Path) -> None:
    """`save_total_limit=1` with `load_best_model_at_end`: this deletion comes without a rotation."""
    made = trainer(
        tmp_path,
        kind=BreaksLate,
        save_total_limit=1,
        evaluated=Tokens(8),
        eval_strategy="steps",
        eval_steps=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        greater_is_better=True,  # so that the first one is the best
        **ROTATING,
    )
    made.train()
    assert names(tmp_path / "out") == ["checkpoint-2"]
    assert needed(tmp_path) <= set(kept(tmp_path, "out"))
    assert "checkpoint-10" in names(tmp_path / "out.kept")
    assert made.state.best_model_checkpoint == str(saved(tmp_path, 2))


class Exploding(Plain):
    """The loss is not a number from the fifth step on."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.steps = getattr(self, "steps", 0) + 1
        out = super().forward(ids)
        return out * float("nan") if self.steps == 5 else out


@pytest.mark.parametrize("kind", [Plain, Exploding])
def test_accelerate_keeps_the_last_good_and_the_first_bad_checkpoint_of_an_incident(
    tmp_path: Path, kind: type[Plain]
) -> None:
    """It deletes before it saves, and a link in place of a folder would raise: they are moved out of its folder."""
    Loop(tmp_path, kind=kind, limit=2).run(10, saves=(2, 4, 6, 8, 10))
    assert names(tmp_path / "checkpoints") == ["checkpoint_3", "checkpoint_4"]
    if kind is Plain:
        assert not (tmp_path / "checkpoints.kept").exists()
    else:
        assert needed(tmp_path) <= set(kept(tmp_path, "checkpoints"))
        assert "checkpoint_2" in names(tmp_path / "checkpoints.kept")
