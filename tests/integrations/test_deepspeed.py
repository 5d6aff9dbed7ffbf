"""DeepSpeed at ZeRO stages 0 to 2 on two ranks: what a resume did not restore is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")

from .printed import Told, in_ranks

pytestmark = pytest.mark.slow
BOTH = {0, 1}
SAVED = 16


class Run:
    """All resumes at one stage, each in a ledger of its own."""

    def __init__(self, stage: int, root: Path) -> None:
        self.stage, self.root = stage, root
        in_ranks("tests.integrations.deepspeed_loops", 2, root, str(stage))
        self.losses: dict[str, Any] = json.loads((root / "losses.json").read_text())

    def told(self, fault: str) -> Told:
        return Told(self.root / "resumed" / (fault or "healthy"))

    def wrong(self, fault: str) -> dict[str, set[int]]:
        """Component -> the ranks on which it was not restored."""
        told = self.told(fault)
        found: dict[str, set[int]] = {}
        for rank in range(2):
            for name, status in told.statuses(rank).items():
                if status in ("differs", "absent"):
                    found.setdefault(name, set()).add(rank)
        return found


@pytest.fixture(scope="module", params=[0, 1, 2], ids=["no ZeRO", "ZeRO 1", "ZeRO 2"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(request.param, tmp_path_factory.mktemp("deepspeed"))


def of_stage(run: Run, fault: str) -> None:
    """Skip what is not done at this stage. What was to be done and left nothing is no reason to skip."""
    if fault not in run.losses:
        assert run.stage == 2
        pytest.skip("shown at stages 0 and 1")


def test_a_faithful_resume_is_found_faithful_and_nothing_is_named(run: Run) -> None:
    """Each rank has its own part of the moments from stage 1 on: each is held against its own."""
    assert run.losses[""] == run.losses["saved"][SAVED:]
    told = run.told("")
    for rank in range(2):
        assert set(told.statuses(rank).values()) == {"restored"}
        assert {
            "weights",
            "buffers",
            "ema",
            "optimizer_state",
            "optimizer_step",
            "lr_scheduler",
            "rng",
        } <= set(told.statuses(rank))
    assert not told.changes().keys() - {"code"}
    assert told.segment_verdict().status == "holds"
    assert "on 2 ranks: what was recorded is restored" in told.says("resume")
    text = told.says("show") + told.says("ranks") + told.says("resume")
    assert "fault" not in text
    assert "warning" not in text


@pytest.mark.parametrize(
    ("fault", "components", "words"),
    [
        ("moments", {"optimizer_state": BOTH, "optimizer_step": BOTH}, "optimizer state │ NOT RESTORED"),
        (
            "module only",
            {"optimizer_state": BOTH, "optimizer_step": BOTH, "lr_scheduler": BOTH},
            "optimizer state │ NOT RESTORED",
        ),
        ("scheduler", {"lr_scheduler": BOTH}, "not as at the save (_step_count 17 -> 1, last_epoch 16 -> 0)"),
        ("no rng", {"rng": BOTH}, "random-number state │ DIFFERS │ 0-1 │ not as at the save (torch)"),
        ("rng above 0", {"rng": {1}}, "random-number state │ DIFFERS │ 1 │ not as at the save (torch)"),
        ("loader from the start", {"loader_position": BOTH}, "not as at the save (batches 16 -> 0)"),
        ("loader skips", {"loader_position": BOTH}, "not as at the save (batches 16 -> 17)"),
        ("untied", {"weights": BOTH}, "tied before: embedding.weight = head.weight; tied now: none"),
        ("buffer", {"buffers": BOTH}, "no state_dict holds unsaved (persistent=False)"),
        ("ema", {"ema": BOTH}, "averaged weights (EMA) │ DIFFERS │ 0-1"),
    ],
)
def test_what_was_not_restored_is_named_and_nothing_else(
    fault: str, components: dict[str, set[int]], words: str, run: Run
) -> None:
    """`load_optimizer_states=False`, `load_module_only`, and what DeepSpeed never saves by itself."""
    of_stage(run, fault)
    told = run.told(fault)
    assert run.wrong(fault) == components
    assert words in " ".join(told.says("resume").split())
    bitwise = fault in ("no rng", "rng above 0")
    assert told.segment_verdict().status == ("caveat" if bitwise else "broken")
    assert ("segment 2: caveat" if bitwise else "segment 2: BROKEN") in told.says("show")


def test_a_step_counter_that_begins_again_is_named_with_the_update_that_it_makes_too_large(run: Run) -> None:
    """Moments are kept: Adam's bias correction makes the first update 2.24 times too large, 2.44 so early."""
    assert run.wrong("counter") == {"optimizer_step": BOTH}
    text = run.told("counter").says("show")
    assert "optimizer step counter not as at the save (step 16 -> 0)" in text
    assert "LIN-C013" in text
    assert "make it 2.44 times as large (betas 0.9, 0.95)" in text


def test_a_loss_scale_that_begins_again_is_named_and_one_that_is_restored_is_not(run: Run) -> None:
    if run.stage != 1:
        pytest.skip("shown at stage 1")
    assert run.wrong("scaled") == {}
    assert run.told("scaled").statuses()["grad_scaler"] == "restored"
    assert run.wrong("scaled scaler") == {"grad_scaler": BOTH}
    words = "gradient scaler state not as at the save (iteration 16 -> 0, scale 512 -> 16)"
    assert words in run.told("scaled scaler").says("show")


def test_a_type_that_the_load_changes_is_named(run: Run) -> None:
    """float32 weights into a bfloat16 engine; the optimizer's states it refuses to load then, so the weights alone."""
    of_stage(run, "dtype")
    assert set(run.wrong("dtype")) == {"weights", "optimizer_state", "optimizer_step", "lr_scheduler"}
    assert (
        "model weights not as at the save (their type was changed by the load: float32 -> bfloat16)"
        in run.told("dtype").says("show")
    )


def test_a_stale_optimizer_is_named_without_zero_and_refused_by_deepspeed_with_it(run: Run) -> None:
    if run.stage == 0:
        text = run.told("stale optimizer").says("show")
        assert "fault LIN-P002 optimizer: 3 held by the optimizer and no part of the model" in text
        assert "LIN-P001 optimizer: 3 trainable and in no group of the optimizer: never updated" in text
    elif run.stage == 1:
        assert "Traceback" in run.losses["stale optimizer"]
    else:
        pytest.skip("shown at stages 0 and 1")


def test_a_parameter_that_zeros_parts_leave_out_is_named(run: Run) -> None:
    """The head that is no longer tied is in no group: the optimizer says which parameters its parts stand for."""
    text = run.told("untied").says("show")
    assert (
        "LIN-P001 optimizer: 1 trainable and in no group of the optimizer: never updated (head.weight)"
        in text
    )


def test_random_numbers_of_another_rank_are_named_with_both_ranks(run: Run) -> None:
    of_stage(run, "rng of another rank")
    assert run.wrong("rng of another rank") == {"rng": {1}}
    words = (
        "LIN-R006 random numbers: rank 1 has, after the load, the random numbers that rank 0 saved (torch)"
    )
    told = run.told("rng of another rank")
    for command in ("ranks", "show", "resume"):
        assert words in told.says(command)


def test_a_rank_that_loaded_another_tag_is_named_with_its_step(run: Run) -> None:
    """Each rank has its own disk, and rank 1 an older tag on it; all name the same path."""
    found = run.wrong("one rank from another step")
    assert found["optimizer_state"] == found["optimizer_step"] == found["loader_position"] == {1}
    words = "LIN-C008 resume: rank 1 went on from the save of step 8, and step 16 was named"
    told = run.told("one rank from another step")
    assert words in told.says("resume")
    assert words in told.says("show")
    assert "LIN-R003 optimizer_step_min: ranks have it unlike each other from step 17" in told.says("ranks")


def test_arguments_that_the_checkpoint_silently_puts_in_place_of_the_configs_are_named(run: Run) -> None:
    of_stage(run, "arguments")
    assert run.wrong("arguments") == {}
    text = run.told("arguments").says("show")
    assert "lr requested 0.01 -> 0.03, not in effect" in text
    assert "weight_decay requested 0.1 -> 0.3, not in effect" in text


def test_a_load_that_found_nothing_and_only_warned_is_named(run: Run) -> None:
    """`load_checkpoint` returns (None, None) where `latest` is missing, and training begins from scratch."""
    of_stage(run, "latest names nothing")
    assert {"weights", "optimizer_state", "lr_scheduler"} <= set(run.wrong("latest names nothing"))
    assert "not restored: model weights" in run.told("latest names nothing").says("resume")
