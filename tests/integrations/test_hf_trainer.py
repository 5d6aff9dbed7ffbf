"""Hugging Face Trainer with the callback: healthy resumes are silent, and each fault of a resume is named."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.warm import Warm

from . import hf_loops
from .hf_loops import (
    Averaged,
    Counting,
    Scaled,
    Stream,
    Tokens,
    copied,
    losses,
    model,
    saved,
    trainer,
)
from .reading import changes, claims, named, newest, printed, resumed, warnings


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of eight steps, saved after three, six and eight."""
    folder = tmp_path_factory.mktemp("whole")
    trainer(folder).train()
    return folder


def resume(folder: Path, step: int = 3, fault: str | None = None, **more: Any) -> Any:
    """Go on for two steps from a save of a run's folder."""
    made = trainer(folder, stop=step + 2, **more)
    if fault is not None:
        hf_loops.FAULTS[fault](made)
    made.train(resume_from_checkpoint=str(saved(folder, step)))
    return made


def test_a_faithful_resume_is_found_faithful(whole: Path, tmp_path: Path, warm_reader: Warm) -> None:
    """Every component is restored, nothing changed, all claims hold, and the losses are those of the whole run."""
    folder = copied(whole, tmp_path / "run")
    made = resume(folder)
    found = resumed(folder)
    assert {o.component: o.status for o in found.outcomes} == dict.fromkeys(
        (
            "weights",
            "optimizer_state",
            "optimizer_step",
            "lr_scheduler",
            "rng",
            "loader_position",
        ),
        "restored",
    )
    assert {c for c in changes(folder) if c != "code"} == set()
    assert set(claims(folder).values()) == {"holds"}
    assert newest(folder, "drift").not_shown == {}
    assert newest(folder, "coverage").gaps == []
    assert found.findings == []
    assert warnings(folder) == []
    assert newest(folder, "segment").parent_evidence == "declared"
    assert len(losses(made)) == 5
    assert "what was recorded is restored" in printed(warm_reader, folder, "resume")


WAYS: dict[str, tuple[int, dict[str, Any]]] = {
    # where random numbers are restored before the loader begins
    "at the end of an epoch": (10, {"max_steps": 12, "save_steps": 10}),
    "across the end of an epoch": (8, {"max_steps": 12, "save_steps": 8}),
    "in the second epoch": (12, {"max_steps": 14, "save_steps": 12}),
    "with micro-batches": (3, {"gradient_accumulation_steps": 2}),
    "of a stream": (3, {"data": Stream(), "max_steps": 6}),
    "with workers that read ahead": (3, {"dataloader_num_workers": 1, "max_steps": 6}),
}

# a stream's order is its own affair; the iterator of a new epoch draws a number after the state was restored
NOT_SHOWN = ("of a stream", "at the end of an epoch")


@pytest.mark.parametrize("way", WAYS)
def test_a_faithful_resume_elsewhere_in_the_data(tmp_path: Path, way: str) -> None:
    """The position in the data is known and restored, however the loader comes there."""
    step, more = WAYS[way]
    made = trainer(tmp_path, **more)
    made.train()
    again = trainer(tmp_path, **more)
    again.train(resume_from_checkpoint=str(saved(tmp_path, step)))
    assert losses(again) == losses(made)
    assert named(tmp_path) == {}
    assert {c for c in changes(tmp_path) if c != "code"} == set()
    but = {"bitwise": "not_shown"} if way in NOT_SHOWN else {}
    assert {k: v for k, v in claims(tmp_path).items() if v != "holds"} == but
    assert warnings(tmp_path) == []


def test_a_resume_that_trainer_was_not_told_of_is_recognised(whole: Path, tmp_path: Path) -> None:
    """`LineageCallback(resumed_from=...)` names what a script loaded by itself."""
    folder = copied(whole, tmp_path / "run")
    made = trainer(folder, stop=2, options={"resumed_from": saved(folder, 3)})
    made._load_from_checkpoint(str(saved(folder, 3)))
    made.train()
    assert resumed(folder).step == 3
    assert "weights" not in named(folder)
    assert "optimizer state not restored" in named(folder)["optimizer_state"]


def test_a_loop_that_hides_its_trainer_is_said_and_no_false_alarm_comes_of_it(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No trainer among the callers: saves and resumes are recorded, batches and random numbers are not."""
    folder = copied(whole, tmp_path / "run")
    monkeypatch.setattr("lineage.integrations.hf_trainer._trainer", lambda: (None, None))
    resume(folder, resume_from_checkpoint=str(saved(folder, 3)))
    assert resumed(folder).step == 3
    assert named(folder) == {}
    assert any("Trainer that calls was not found" in gap for gap in newest(folder, "coverage").gaps)


def test_importing_the_layer_imports_no_framework() -> None:
    """Also not the folder of the integrations; each is imported by its own name."""
    code = (
        "import sys, lineage.integrations as i; i.__doc__; print({'torch', 'transformers'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


Break = Callable[[Path], None]


def remove(*names: str) -> Break:
    """Delete files of a checkpoint."""
    return lambda path: [(path / n).unlink() for n in names] and None


FILES: dict[str, tuple[Break, dict[str, str]]] = {
    # Trainer then loads neither optimizer nor scheduler, without a word
    "optimizer.pt": (
        remove("optimizer.pt"),
        {
            "optimizer_state": "not restored (tensors 32 -> 0)",
            "optimizer_step": "step 3 -> 0",
            "lr_scheduler": "last_epoch 3 -> 0",
        },
    ),
    "scheduler.pt": (
        remove("scheduler.pt"),
        {"optimizer_state": "not restored", "optimizer_step": "step 3 -> 0", "lr_scheduler": "last_epoch 3"},
    ),
    "rng_state.pth": (remove("rng_state.pth"), {"rng": "not as at the save (torch)"}),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_trainer_does_without_is_named_by_what_was_not_restored(
    whole: Path, tmp_path: Path, name: str, warm_reader: Warm
) -> None:
    """Trainer goes on where a file of a checkpoint is missing."""
    folder = copied(whole, tmp_path / "run")
    act, said = FILES[name]
    act(saved(folder, 3))
    resume(folder)
    found = named(folder)
    assert set(found) == set(said)
    assert all(text in found[component] for component, text in said.items())
    assert claims(folder)["bitwise"] == "broken"
    text = printed(warm_reader, folder, "resume")
    assert all(t in text for t in said.values())


LOADS: dict[str, dict[str, str]] = {
    "scheduler_restarted": {"lr_scheduler": "last_epoch 3 -> 0"},
    "untied": {"weights": "tied before: lm_head.weight = transformer.wte.weight; tied now: none"},
    "other_type": {
        "weights": "their type was changed by the load: float32 -> bfloat16",
        "optimizer_state": "32 of 32 tensors differ",
    },
    "counter_reset": {"optimizer_step": "not as at the save (step 3 -> 0)"},
    "stale_optimizer": {"optimizer_state": "not restored", "optimizer_step": "step 3 -> 0"},
    "one_too_many": {"loader_position": "samples 12 -> 16"},
}


@pytest.mark.parametrize("fault", LOADS)
def test_what_a_load_does_wrong_is_named_with_its_component(
    whole: Path, tmp_path: Path, fault: str, warm_reader: Warm
) -> None:
    """The component that is wrong is named, and no other one."""
    folder = copied(whole, tmp_path / "run")
    resume(folder, fault=fault)
    found = named(folder)
    assert set(found) == set(LOADS[fault])
    assert all(text in found[component] for component, text in LOADS[fault].items())
    assert claims(folder)["loss_curve"] == "broken"
    shown = printed(warm_reader, folder, "resume") + printed(warm_reader, folder, "show")
    assert all(text in shown for text in LOADS[fault].values())


def test_a_stale_optimizer_is_named_as_one_that_moves_no_weight_of_the_model(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = copied(whole, tmp_path / "run")
    resume(folder, fault="stale_optimizer")
    assert "LIN-P002: optimizer: 16 held by the optimizer and no part of the model" in caplog.text


def test_data_that_is_not_skipped_is_read_again(whole: Path, tmp_path: Path, warm_reader: Warm) -> None:
    """`ignore_data_skip`: the loader stands at its beginning."""
    folder = copied(whole, tmp_path / "run")
    resume(folder, ignore_data_skip=True)
    assert named(folder) == {"loader_position": "data-loader position not as at the save (samples 12 -> 0)"}
    assert claims(folder)["data_exposure"] == "broken"
    assert "samples 12 -> 0" in printed(warm_reader, folder, "show")


def test_a_batch_that_was_drawn_and_thrown_away_is_found_by_its_content(
    whole: Path, tmp_path: Path, warm_reader: Warm
) -> None:
    """The loader stands where it should; the batch is the next one."""
    folder = copied(whole, tmp_path / "run")
    resume(folder, fault="one_lost")
    said = "the batch of step 4 is not the one of the other branch"
    assert any(said in c.text and "it is the one that step 5 had" in c.text for c in changes(folder).values())
    assert claims(folder)["data_exposure"] == "not_shown"
    assert said in printed(warm_reader, folder, "show")


def test_a_buffer_that_no_checkpoint_holds_is_named(tmp_path: Path) -> None:
    """It is not persistent, training changes it, and the resume begins with a new one."""
    trainer(tmp_path, net=model(Counting), stop=4, remove_unused_columns=False).train()
    resume(tmp_path, net=model(Counting), remove_unused_columns=False)
    assert set(named(tmp_path)) == {"buffers"}
    assert "no state_dict holds seen (persistent=False)" in named(tmp_path)["buffers"]


@pytest.mark.parametrize("lost", [True, False])
def test_an_average_of_the_weights_is_named_where_it_began_anew(tmp_path: Path, lost: bool) -> None:
    """And it is silent where the script brought it back."""
    kept = Averaged()
    trainer(tmp_path, before=(kept,), stop=3, options={"ema": kept.held}).train()
    again = Averaged(None if lost else kept.held)
    resume(tmp_path, before=(again,), options={"ema": again.held})
    assert set(named(tmp_path)) == ({"ema"} if lost else set())
    assert claims(tmp_path)["evaluation"] == ("broken" if lost else "holds")


@pytest.mark.parametrize("lost", [True, False])
def test_a_gradient_scaler_that_began_anew_is_named(tmp_path: Path, lost: bool) -> None:
    """scaler.pt is gone: Trainer says nothing. The scaler is torch's own, on the CPU."""
    trainer(tmp_path, kind=Scaled, stop=4, max_grad_norm=0.0).train()
    if lost:
        (saved(tmp_path, 3) / "scaler.pt").unlink()
    resume(tmp_path, kind=Scaled, max_grad_norm=0.0)
    found = named(tmp_path)
    assert set(found) == ({"grad_scaler"} if lost else set())
    assert not lost or "scale 2048 -> 1024" in found["grad_scaler"]


@pytest.mark.parametrize(
    ("asked", "concept", "text"),
    [
        ({"learning_rate": 5e-3}, "learning_rate", "requested 0.01 -> 0.005, not in effect"),
        ({"weight_decay": 0.1}, "weight_decay", "requested 0 -> 0.1, not in effect"),
    ],
)
def test_arguments_that_the_checkpoint_overrides_are_not_in_effect(
    whole: Path, tmp_path: Path, asked: dict[str, float], concept: str, text: str, warm_reader: Warm
) -> None:
    """A new value is asked for; optimizer and scheduler took the old one from the checkpoint."""
    folder = copied(whole, tmp_path / "run")
    resume(folder, **asked)
    assert named(folder) == {}
    assert text in changes(folder)[concept].text
    assert text in printed(warm_reader, folder, "show")


CHANGED: dict[str, tuple[dict[str, Any], str, str]] = {
    "clip": ({"max_grad_norm": 0.5}, "grad_clip", "gradient clipping 1 -> 0.5"),
    "data": ({"data": Tokens(48)}, "data_mix", "Tokens, 40 samples -> Tokens, 48 samples"),
    "batch": ({"per_device_train_batch_size": 8}, "global_batch", "4 -> 8 in effect"),
}


@pytest.mark.parametrize("what", CHANGED)
def test_what_a_resume_changes_on_purpose_is_named_and_nothing_else_is_called_lost(
    whole: Path, tmp_path: Path, what: str, warm_reader: Warm
) -> None:
    """Clip, data and batch: the change is in effect, and weights, moments and schedule are as at the save."""
    folder = copied(whole, tmp_path / "run")
    more, concept, text = CHANGED[what]
    resume(folder, **more)
    assert set(named(folder)) <= {"loader_position"}
    assert text in changes(folder)[concept].text
    assert claims(folder)["loss_curve"] in ("broken", "caveat")
    assert text in printed(warm_reader, folder, "show")


def test_training_is_the_same_bit_for_bit_with_the_callback_and_without(tmp_path: Path) -> None:
    """Losses, weights and moments, over a resume, with an evaluation between and micro-batches."""
    found = []
    for observed in (False, True):
        folder = tmp_path / str(observed)
        more = {"gradient_accumulation_steps": 2, "observed": observed, "evaluated": Tokens(8)}
        more |= {"eval_strategy": "steps", "eval_steps": 2}
        trainer(folder, stop=4, **more).train()
        made = trainer(folder, **more)
        made.train(resume_from_checkpoint=True)
        moments = [s["exp_avg_sq"] for s in made.optimizer.state.values()]
        found.append((losses(made), [*made.model.state_dict().values(), *moments]))
        assert "training_step" not in vars(made)  # nothing of ours stays on it
    (a, tensors), (b, others) = found
    assert a == b
    assert all(torch.equal(x, y) for x, y in zip(tensors, others, strict=True))
    assert len(newest(tmp_path / "True", "coverage").recorded) > 5


def test_what_fails_in_the_callback_does_not_stop_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each part of it is contained."""

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError("no more")

    monkeypatch.setattr("lineage.integrations.hf_trainer.attach", fail)
    made = trainer(tmp_path, stop=2)
    made.train()
    assert made.state.global_step == 2
    assert "no more" in caplog.text


def test_the_loss_on_record_is_the_one_before_trainer_filters_it(tmp_path: Path) -> None:
    """Trainer logs a mean in place of a loss that is not finite; the layer raises an alarm."""

    class Broken(hf_loops.Trainer):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().compute_loss(*args, **kwargs)
            return loss * float("nan") if self.state.global_step == 2 else loss

    made = trainer(tmp_path, kind=Broken, stop=3)
    made.train()
    assert all(map(math.isfinite, losses(made)))
    assert newest(tmp_path, "alarm").signal in ("loss", "grad_norm", "grad_norm_local")
    assert newest(tmp_path, "first_bad").cell.step == 3
