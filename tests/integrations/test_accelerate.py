"""A loop on Accelerate with `attach`: healthy resumes are silent, and each fault of a resume is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")

from tests.warm import Warm

from .accelerate_loops import FAULTS, Loop, Small
from .hf_loops import copied
from .reading import changes, claims, named, newest, only, printed, resumed, warnings


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """A run of eight steps, saved after three and six, and its losses."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, Loop(folder).run(8).losses


def resume(folder: Path, fault: str | None = None, step: int = 3, **more: Any) -> Loop:
    """Go on for two steps from a save of a run's folder."""
    loop = Loop(folder, **more)
    (FAULTS[fault] if fault is not None else Loop.load)(loop, step)
    return loop.run(step + 2)


def test_a_faithful_resume_is_found_faithful(
    whole: tuple[Path, list[float]], tmp_path: Path, warm_reader: Warm
) -> None:
    """Every component is restored, nothing changed, all claims hold, and the losses are those of the whole run."""
    folder = copied(whole[0], tmp_path / "run")
    loop = resume(folder)
    assert loop.losses == whole[1][3:5]
    found = resumed(folder)
    assert {o.status for o in found.outcomes} == {"restored"}
    assert {"weights", "optimizer_state", "lr_scheduler", "rng", "loader_position"} < {
        o.component for o in found.outcomes
    }
    assert {c for c in changes(folder) if c != "code"} == set()
    assert set(claims(folder).values()) == {"holds"}
    assert newest(folder, "drift").not_shown == {}
    assert newest(folder, "coverage").gaps == []
    assert found.findings == []
    assert warnings(folder) == []
    assert "what was recorded is restored" in printed(warm_reader, folder, "resume")


@pytest.mark.parametrize("step", [10, 12])
def test_a_faithful_resume_at_the_end_of_an_epoch_and_in_the_next_one(tmp_path: Path, step: int) -> None:
    losses = Loop(tmp_path).run(14, saves=(10, 12)).losses
    assert Loop(tmp_path).load(step).run(14).losses == losses[step:]
    assert named(tmp_path) == {}
    assert {c for c in changes(tmp_path) if c != "code"} == set()
    assert set(claims(tmp_path).values()) == {"holds"}


def test_a_sampler_that_leaves_no_trace_of_its_order_is_not_shown_to_be_restored(tmp_path: Path) -> None:
    """Accelerate's default: each pass is drawn from the process's random numbers, and a resume draws another one."""
    first = Loop(tmp_path / "killed", seedable=False).run(3)
    again = Loop(tmp_path / "killed", seedable=False).load(3).run(5)
    assert set(named(tmp_path / "killed")) == {"rng"}  # the pass is drawn from them
    assert "loader_position" in newest(tmp_path / "killed", "drift").not_shown
    assert claims(tmp_path / "killed")["data_exposure"] == "not_shown"
    whole = Loop(tmp_path / "whole", seedable=False).run(5)
    assert whole.losses[:3] == first.losses
    assert whole.losses[3:] != again.losses  # so it was right to say so
    Loop(tmp_path / "whole", seedable=False).load(3).run(5)
    said = changes(tmp_path / "whole")["data_order"].text
    assert said.startswith("the batch of step 4 is not the one of the other branch")


def test_random_numbers_that_the_loader_draws_between_the_load_and_the_first_step_are_named(
    tmp_path: Path, warm_reader: Warm
) -> None:
    """`load_state` restores them, and the new pass draws one: dropout draws others than the whole run did."""
    whole = Loop(tmp_path, apart=False).run(5)
    again = Loop(tmp_path, apart=False).load(3).run(5)
    assert whole.losses[3:] != again.losses
    assert named(tmp_path) == {
        "rng": "random-number state not as at the save (torch): random numbers were restored by the load, and drawn "
        "from before the first step, as a loader does when a pass begins: give it a generator of its own "
        "(DataLoader(..., generator=torch.Generator()))"
    }
    assert claims(tmp_path)["bitwise"] == "broken"
    assert any("give it a generator of its own" in gap for gap in newest(tmp_path, "coverage").gaps)
    assert "random-number state not as at the save" in printed(warm_reader, tmp_path, "show")


SAID: dict[str, dict[str, str]] = {
    "weights_only": {
        "optimizer_state": "not restored (tensors 6 -> 0)",
        "optimizer_step": "step 3 -> 0",
        "lr_scheduler": "last_epoch 3 -> 0",
        "rng": "not as at the save (torch)",
    },
    "scheduler_restarted": {"lr_scheduler": "last_epoch 3 -> 0"},
    "skip_forgotten": {"loader_position": "samples 12 -> 0"},
    "one_too_many": {"loader_position": "samples 12 -> 16"},
    "epoch_forgotten": {"loader_position": "order of epoch 0 -> of epoch 7"},
    "untied": {"weights": "tied before: embed.weight = head.weight; tied now: none"},
    "counter_reset": {"optimizer_step": "not as at the save (step 3 -> 0)"},
}


@pytest.mark.parametrize("fault", SAID)
def test_what_a_load_does_wrong_is_named_with_its_component(
    whole: tuple[Path, list[float]], tmp_path: Path, fault: str, warm_reader: Warm
) -> None:
    """The component that is wrong is named, and no other one."""
    folder = copied(whole[0], tmp_path / "run")
    resume(folder, fault)
    found = named(folder)
    assert set(found) == set(SAID[fault])
    assert all(text in found[component] for component, text in SAID[fault].items())
    assert claims(folder)["loss_curve"] == "broken"
    shown = printed(warm_reader, folder, "resume") + printed(warm_reader, folder, "show")
    assert all(text in shown for text in SAID[fault].values())


def test_weights_that_the_load_turned_into_another_type_are_named(
    whole: tuple[Path, list[float]], tmp_path: Path
) -> None:
    """The script builds the model in bfloat16; the load casts weights and moments without a word."""
    folder = copied(whole[0], tmp_path / "run")
    resume(folder, dtype=torch.bfloat16)
    found = named(folder)
    assert set(found) == {"weights", "buffers", "optimizer_state"}
    assert "their type was changed by the load: float32 -> bfloat16" in found["weights"]


def test_a_buffer_that_no_checkpoint_holds_is_named(tmp_path: Path) -> None:
    """It is not persistent, training changes it, and the resume begins with a new one."""
    Loop(tmp_path, kind=Small).run(4)
    resume(tmp_path, kind=Small)
    assert set(named(tmp_path)) == {"buffers"}
    assert "no state_dict holds seen (persistent=False)" in named(tmp_path)["buffers"]


@pytest.mark.parametrize("lost", [True, False])
def test_an_average_of_the_weights_is_named_where_it_began_anew(tmp_path: Path, lost: bool) -> None:
    """And it is silent where the script brought it back."""
    held: dict[str, Any] = {}
    Loop(tmp_path, averaged=held).run(3)
    resume(tmp_path, averaged={} if lost else held)
    assert set(named(tmp_path)) == ({"ema"} if lost else set())
    assert claims(tmp_path)["evaluation"] == ("broken" if lost else "holds")


@pytest.mark.parametrize("fault", ["scaler_reset", None])
def test_a_gradient_scaler_that_began_anew_is_named(tmp_path: Path, fault: str | None) -> None:
    """The scaler is torch's own, on the CPU."""
    Loop(tmp_path, scaled=True).run(4)
    resume(tmp_path, fault, scaled=True)
    found = named(tmp_path)
    assert set(found) == ({"grad_scaler"} if fault else set())
    assert not fault or "scale 2048 -> 1024" in found["grad_scaler"]


@pytest.mark.parametrize(
    ("asked", "concept", "text"),
    [
        ({"rate": 5e-3}, "learning_rate", "requested 0.01 -> 0.005, not in effect"),
        ({"decay": 0.1}, "weight_decay", "requested 0 -> 0.1, not in effect"),
    ],
)
def test_arguments_that_the_checkpoint_overrides_are_not_in_effect(
    whole: tuple[Path, list[float]], tmp_path: Path, asked: dict[str, float], concept: str, text: str
) -> None:
    """A new value is asked for; optimizer and scheduler took the old one from the checkpoint."""
    folder = copied(whole[0], tmp_path / "run")
    resume(folder, **asked)
    assert named(folder) == {}
    assert text in changes(folder)[concept].text


def test_training_is_the_same_bit_for_bit_with_the_integration_and_without(tmp_path: Path) -> None:
    """Losses, weights and moments, over a resume."""
    found = []
    for observed in (False, True):
        folder = tmp_path / str(observed)
        first = Loop(folder, observed=observed).run(4)
        loop = Loop(folder, observed=observed).load(3).run(8)
        moments = [s["exp_avg_sq"] for s in loop.optimizer.state.values()]
        found.append((first.losses + loop.losses, [*loop.model.state_dict().values(), *moments]))
        assert not {"save_state", "load_state"} & set(vars(loop.accelerator))  # nothing of ours stays on it
    (a, tensors), (b, others) = found
    assert a == b
    assert all(torch.equal(x, y) for x, y in zip(tensors, others, strict=True))


def test_the_tracker_brings_the_config_and_what_was_logged(whole: tuple[Path, list[float]]) -> None:
    """`init_trackers(config=...)` is what was asked for, and `accelerator.log` is in the series."""
    ledger = only(whole[0])
    config = ledger.of("config")[0].payload
    assert config.values["lr"].plain() == 1e-2
    rows = ledger.series("metrics", ["step", "tracker", "key", "value"]).to_pylist()
    assert [r["value"] for r in rows if r["key"] == "train/loss"] == whole[1]
    assert {r["tracker"] for r in rows} == {"accelerate"}
    (loop,) = [Loop(whole[0] / "other")]
    assert loop.accelerator.get_tracker("lineage", unwrap=True) is loop.rec
    loop.accelerator.end_training()
    assert not loop.rec.live


def test_what_fails_in_the_integration_does_not_stop_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each part of it is contained."""

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError("no more")

    monkeypatch.setattr("lineage.recorder.saving.checkpoint_uid", fail)
    monkeypatch.setattr("lineage.integrations._loader.LoaderPosition.observe", fail)
    assert Loop(tmp_path).run(4).done == 4
    assert "no more" in caplog.text
