"""Trainer and Accelerate on several gloo ranks: faults of single ranks are named, and four ranks go on as two."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from tests.warm import Warm

from .hf_loops import copied, saved
from .launch import launch
from .reading import changes, claims, named, newest, printed, resumed, warnings

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    """Ranks that start with the frameworks imported."""
    modules = ("torch.nn.parallel", "torch._dynamo", "transformers.trainer", "accelerate", "pyarrow.parquet")
    with Warm(*modules) as server:
        yield server


@pytest.fixture(scope="module")
def hf_two(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Path:
    """A Trainer's run on two ranks."""
    folder = tmp_path_factory.mktemp("two")
    launch(warm, "hf_loops", 2, folder, "")
    return folder


@pytest.fixture(scope="module")
def accelerate_two(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Path:
    """A loop on Accelerate, on two ranks."""
    folder = tmp_path_factory.mktemp("two")
    launch(warm, "accelerate_loops", 2, folder, 0)
    return folder


def on(folder: Path, component: str) -> dict[tuple[int, ...], str]:
    """Ranks -> what became of a component."""
    return {o.ranks: o.status for o in resumed(folder).outcomes if o.component == component}


def healthy(folder: Path, *but: str) -> None:
    """Nothing is named, and nothing but `but` changed."""
    assert named(folder) == {}
    assert {c for c in changes(folder) if c not in ("code", *but)} == set()
    assert resumed(folder).findings == []
    assert newest(folder, "coverage").gaps == []
    assert warnings(folder) == []


def test_trainer_on_two_ranks_is_found_faithful(hf_two: Path, tmp_path: Path, warm: Warm) -> None:
    folder = copied(hf_two, tmp_path / "run")
    launch(warm, "hf_loops", 2, folder, saved(folder, 3), "stop=5")
    healthy(folder)
    assert set(claims(folder).values()) == {"holds"}
    assert on(folder, "rng") == {(0, 1): "restored"}
    assert "ranks 0 and 1 have" not in printed(warm, folder, "show")  # a second pass deals samples out anew


def test_trainer_of_four_ranks_goes_on_as_two(tmp_path: Path, warm: Warm) -> None:
    """The same global batch: the state is restored, and the place in the data is counted in samples of all ranks."""
    launch(warm, "hf_loops", 4, tmp_path, "", "per_device_train_batch_size=1", "max_steps=4")
    launch(warm, "hf_loops", 2, tmp_path, saved(tmp_path, 3), "per_device_train_batch_size=2", "max_steps=4")
    healthy(tmp_path, "micro_batch", "world_size")
    assert claims(tmp_path)["scaling_law"] == "holds"
    text = printed(warm, tmp_path, "resume")
    assert "saved on 4 ranks, on 2 ranks now: what was recorded is restored" in text


def test_trainer_of_four_ranks_that_goes_on_as_two_with_half_the_batch_reads_data_again(
    tmp_path: Path, warm: Warm
) -> None:
    """It skips as many batches, which are half as large."""
    launch(warm, "hf_loops", 4, tmp_path, "", "per_device_train_batch_size=1", "max_steps=4")
    launch(warm, "hf_loops", 2, tmp_path, saved(tmp_path, 3), "per_device_train_batch_size=1", "max_steps=4")
    assert "samples 12 -> 6" in named(tmp_path)["loader_position"]
    assert claims(tmp_path)["data_exposure"] == "broken"


def test_random_numbers_that_only_rank_0_restored_are_named_with_the_rank(
    hf_two: Path, tmp_path: Path, warm: Warm
) -> None:
    """The file of rank 1 is gone; Trainer says it in a line of information."""
    folder = copied(hf_two, tmp_path / "run")
    (saved(folder, 3) / "rng_state_1.pth").unlink()
    launch(warm, "hf_loops", 2, folder, saved(folder, 3), "stop=5")
    assert on(folder, "rng") == {(0,): "restored", (1,): "differs"}
    assert set(named(folder)) == {"rng"}
    assert claims(folder)["bitwise"] == "broken"
    assert "random-number state" in printed(warm, folder, "resume")


def test_random_numbers_of_another_rank_are_named_with_both(hf_two: Path, tmp_path: Path, warm: Warm) -> None:
    """Rank 1 has those that rank 0 saved: both draw the same from now on."""
    folder = copied(hf_two, tmp_path / "run")
    shutil.copy(saved(folder, 3) / "rng_state_0.pth", saved(folder, 3) / "rng_state_1.pth")
    launch(warm, "hf_loops", 2, folder, saved(folder, 3), "stop=5")
    said = "rank 1 has, after the load, the random numbers that rank 0 saved (torch)"
    assert [f.text for f in resumed(folder).findings] == [said]
    assert on(folder, "rng") == {(0,): "restored", (1,): "differs"}
    assert said in printed(warm, folder, "resume")


def test_a_rank_of_trainer_that_went_on_from_another_step_is_named_with_the_step(
    hf_two: Path, tmp_path: Path, warm: Warm
) -> None:
    """Rank 1 reads optimizer and schedule of the save before. The wrapper gives it the weights of rank 0."""
    folder = copied(hf_two, tmp_path / "run")
    launch(warm, "hf_loops", 2, folder, saved(folder, 6), "stop=8", "fault=optimizer_of_another_step")
    (found,) = resumed(folder).findings
    assert found.text.startswith("rank 1 went on from the save of step 3, and step 6 was named")
    assert on(folder, "optimizer_step") == {(0,): "restored", (1,): "differs"}
    assert claims(folder)["loss_curve"] == "broken"
    assert found.text in printed(warm, folder, "resume")


def test_accelerate_on_two_ranks_is_found_faithful(accelerate_two: Path, tmp_path: Path, warm: Warm) -> None:
    folder = copied(accelerate_two, tmp_path / "run")
    launch(warm, "accelerate_loops", 2, folder, 3, "upto=5")
    healthy(folder)
    assert set(claims(folder).values()) == {"holds"}
    assert on(folder, "rng") == {(0, 1): "restored"}


def test_accelerate_of_four_ranks_goes_on_as_two(tmp_path: Path, warm: Warm) -> None:
    """The same global batch. Accelerate steps a scheduler once for each rank, so that its further course is another."""
    launch(warm, "accelerate_loops", 4, tmp_path, 0, "batch=1", "upto=4")
    launch(warm, "accelerate_loops", 2, tmp_path, 3, "batch=2", "upto=5")
    healthy(tmp_path, "micro_batch", "world_size", "lr_schedule")
    text = printed(warm, tmp_path, "resume")
    assert "saved on 4 ranks, on 2 ranks now: what was recorded is restored" in text


@pytest.mark.parametrize("lost", [True, False])
def test_random_numbers_of_accelerate_that_rank_1_has_not_its_own_are_named(
    accelerate_two: Path, tmp_path: Path, warm: Warm, lost: bool
) -> None:
    """The file of rank 1 is gone, or is rank 0's. Accelerate says of the first in a line of information."""
    folder = copied(accelerate_two, tmp_path / "run")
    mine = folder / "step_3" / "random_states_1.pkl"
    if lost:
        mine.unlink()
    else:
        shutil.copy(folder / "step_3" / "random_states_0.pkl", mine)
    launch(warm, "accelerate_loops", 2, folder, 3, "upto=5")
    assert on(folder, "rng") == {(0,): "restored", (1,): "differs"}
    assert set(named(folder)) == {"rng"}
    said = [f.text for f in resumed(folder).findings]
    assert said == (
        [] if lost else ["rank 1 has, after the load, the random numbers that rank 0 saved (torch)"]
    )
    assert "not as at the save (torch)" in printed(warm, folder, "resume")


def test_a_rank_of_accelerate_that_went_on_from_another_step_is_named_with_the_step(
    accelerate_two: Path, tmp_path: Path, warm: Warm
) -> None:
    """Rank 1 loads the save before, with its weights: nothing brings them in line after `prepare`."""
    folder = copied(accelerate_two, tmp_path / "run")
    shutil.copytree(folder / "step_3", folder / "step_6-of-rank-1")
    launch(warm, "accelerate_loops", 2, folder, 6, "upto=8", "fault=another_step")
    (found,) = resumed(folder).findings
    assert found.text.startswith("rank 1 went on from the save of step 3, and step 6 was named")
    assert on(folder, "optimizer_step") == {(0,): "restored", (1,): "differs"}
    assert "weights" in named(folder)
    assert claims(folder)["loss_curve"] == "broken"
    assert found.text in printed(warm, folder, "resume")
