"""Public faults of distributed training and of saves on many ranks, in real process groups, beside healthy twins."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch.distributed as dist

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

import schemas
from lineage.ledger import beside
from lineage.ledger.reader import Ledger
from tests.probes import ranks

from . import rank_loops, said

pytestmark = pytest.mark.slow  # the process groups take a while; each test itself does not


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ledgers of all runs on two ranks."""
    folder = tmp_path_factory.mktemp("public-faults")
    ranks.run(functools.partial(rank_loops.on_two, root=str(folder / "runs")), 2, folder)
    return folder / "runs"


@pytest.fixture(scope="module")
def fewer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saves on four ranks, and what two make of them."""
    four, two = (tmp_path_factory.mktemp(name) for name in ("on-four", "on-two"))
    ranks.run(functools.partial(rank_loops.on_four, root=str(four / "runs")), 4, four)
    ranks.run(functools.partial(rank_loops.on_two_after_four, root=str(four / "runs")), 2, two)
    return four / "runs"


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs whose ranks each log to a tracker."""
    folder = tmp_path_factory.mktemp("logged")
    ranks.run(functools.partial(rank_loops.on_two_logged, root=str(folder / "runs")), 2, folder)
    return folder / "runs"


def ledger(root: Path, name: str) -> Ledger:
    return Ledger(root / name / "run")


def beside_each_other(found: Ledger) -> list[schemas.Finding]:
    """What the newest segment's ranks show beside each other, notes left out."""
    return [f for f in beside.compare(found, found.segments[-1]).findings if f.severity != "note"]


@pytest.mark.parametrize("name", ["healthy", "averaged_all", "clipped_by_whole", "no_empty_group"])
def test_nothing_is_named_of_a_healthy_twin(root: Path, prints: said.Prints, name: str) -> None:
    found = ledger(root, name)
    assert [f.text for f in beside_each_other(found)] == []
    assert [f.text for f in said.findings(found)] == []
    assert "LIN-" not in prints("ranks", found)
    assert "LIN-" not in prints("show", found)
    if name == "healthy":
        assert "what was recorded is restored" in prints("resume", found)


def test_a_wrapper_that_is_bypassed_is_named_with_the_first_step_and_all_parameters(
    root: Path, prints: said.Prints
) -> None:
    """TrainCheck, x-jxmnop: the loop called the module inside DistributedDataParallel."""
    found = ledger(root, "bypassed_wrapper")
    (differ,) = beside_each_other(found)
    assert differ.code == "LIN-R002"
    assert differ.values["first_step"].plain() == 1
    assert len(differ.names) == 6
    assert differ.values["differs"].plain() == "both moments"
    assert "ranks 0-1 differ" in prints("ranks", found)
    assert "BROKEN" in prints("show", found)


def test_gradients_that_are_not_averaged_are_named_by_their_parameters(
    root: Path, prints: said.Prints
) -> None:
    """pytorch#69031, #109191: some parameters' gradients are reduced, and others' are not."""
    found = ledger(root, "averaged_matrices_only")
    (differ,) = beside_each_other(found)
    assert differ.code == "LIN-R002"
    assert differ.names == ["0.bias", "1.bias", "1.weight", "3.bias"]
    text = prints("ranks", found)
    assert "0.bias, 1.bias, 1.weight, 3.bias" in text
    assert "0.weight" not in text


def test_a_norm_of_one_shard_that_is_taken_for_the_whole_is_named_with_what_the_whole_would_be(
    root: Path, prints: said.Prints
) -> None:
    """pytorch#88621, #88955, #170862; torchtitan#766: each shard is clipped by a norm of its own."""
    found = ledger(root, "clipped_by_shard")
    (norms,) = beside_each_other(found)
    assert norms.code == "LIN-R020"
    assert said.number(norms, "steps") == 8
    after, threshold = (said.number(norms, name) for name in ("after_clipping", "threshold"))
    assert threshold == 1.0
    assert after > 1.01  # clipping the whole leaves exactly 1
    text = prints("ranks", found)
    assert "ranks clip by norms of their own, in 8 of 8 steps" in text
    assert f"and {after:.4g} after each was clipped to 1, where clipping the whole leaves 1" in text


def test_running_statistics_that_differ_between_ranks_are_named_with_the_rank_whose_are_saved(
    root: Path, prints: said.Prints
) -> None:
    """pytorch#63916, #111138, #13711; mmdetection#4582."""
    found = ledger(root, "batch_norm")
    (buffers,) = said.findings(found, "LIN-C010")
    assert buffers.values["ranks"].plain() == "0-1"
    text = prints("show", found)
    assert "buffers differ between ranks at the save of step 8 (alike: rank 0 | rank 1)" in text
    assert "usually rank 0's" in text


def test_step_counters_that_differ_between_ranks_are_named_rank_by_rank(
    root: Path, prints: said.Prints
) -> None:
    """TransformerEngine#1986, #3318: a group that is empty on a rank does not count its steps there."""
    found = ledger(root, "empty_group")
    (counters,) = said.findings(found, "LIN-C011")
    assert counters.severity == "fault"
    assert "rank 0: 8; rank 1: 0, 8" in counters.text
    assert counters.text in prints("show", found)


@pytest.mark.parametrize(
    ("name", "pairs"), [("other_random_numbers", {(0, 1), (1, 0)}), ("one_key_for_all", {(0, 1)})]
)
def test_random_numbers_of_another_rank_are_named_with_both_ranks(
    root: Path, prints: said.Prints, name: str, pairs: set[tuple[int, int]]
) -> None:
    """Megatron-LM#6858: 252 of 256 ranks restored another one's; one key for all ranks has the same effect."""
    found = ledger(root, name)
    taken = [f for f in beside_each_other(found) if f.code == "LIN-R006"]
    assert {(f.values["rank"].plain(), f.values["of_rank"].plain()) for f in taken} == pairs
    assert {f.code for f in beside_each_other(found)} == {"LIN-R006"}
    assert "has, after the load, the random numbers that rank" in prints("ranks", found)


def test_random_numbers_that_only_rank_0_restored_are_named_on_the_other(
    root: Path, prints: said.Prints
) -> None:
    """transformers PR 14994: a rank whose file is not there goes on without."""
    found = ledger(root, "random_numbers_of_rank_0_only")
    restores = {
        r.rank: {c.component: c.status for c in r.payload.components}
        for r in found.of("restore", found.segments[-1].uid)
        if r.payload.scope == "rank"
    }
    assert (restores[0]["rng"], restores[1]["rng"]) == ("restored", "differs")
    text = prints("resume", found)
    assert "not restored: random-number state" in text
    assert "rank 1: random-number state not as at the save (torch)" in prints("verdict", found)
    assert "rank 1: random-number state not as at the save (torch)" in prints("show", found)


def test_a_rank_that_goes_on_with_another_model_is_named(root: Path, prints: said.Prints) -> None:
    """Megatron-LM PR 6920: parameters were not gathered after the load, and the loss looked normal."""
    found = ledger(root, "not_gathered")
    (differ,) = beside_each_other(found)
    assert (differ.code, differ.values["first_step"].plain()) == ("LIN-R002", 9)
    assert differ.values["differs"].plain() == "weights alone"
    statuses = {
        r.rank: next(c.status for c in r.payload.components if c.component == "weights")
        for r in found.of("restore", found.segments[-1].uid)
        if r.payload.scope == "rank"
    }
    assert statuses == {0: "restored", 1: "differs"}
    assert "not restored: model weights" in prints("resume", found)
    shown = prints("show", found)
    assert "rank 1: model weights not as at the save" in shown
    assert "nothing differs from the state at the save on rank 0" in shown
    assert "BROKEN" in shown


def test_an_optimizer_that_is_skipped_on_fewer_ranks_is_named_with_both_numbers_of_ranks(
    fewer: Path, prints: said.Prints
) -> None:
    """Fast-LLM#436: saved on 4 ranks, loaded on 2, and the optimizer was silently left out."""
    found = ledger(fewer, "resume_on_two_without_optimizer")
    whole = said.component(found, "optimizer_state")
    assert whole.status == "absent"
    changed = said.changes(found)
    assert {"optimizer_state", "world_size"} <= set(changed)
    text = prints("resume", found)
    assert "saved on 4 ranks, on 2 ranks now: not restored: optimizer state, optimizer step counter" in text
    assert "12 of 12 tensors are not there" in text
    shown = prints("show", found)
    assert "world size 4 -> 2" in shown
    assert "optimizer state not restored" in shown


def test_a_resume_on_fewer_ranks_with_all_its_state_is_found_faithful(
    fewer: Path, prints: said.Prints
) -> None:
    found = ledger(fewer, "resume_on_two")
    assert {c.status for c in said.components(found).values()} <= {"restored", "not_recorded"}
    assert said.component(found, "optimizer_state").status == "restored"
    assert said.component(found, "weights").status == "restored"
    assert beside_each_other(found) == []
    assert said.findings(found) == []
    assert "what was recorded is restored" in prints("resume", found)


def test_a_loss_of_one_rank_under_a_name_that_says_global_is_named(logged: Path, prints: said.Prints) -> None:
    """OLMo-core's changelog: ranks other than 0 reported metrics that were not reduced."""
    found = ledger(logged, "logged_as_global")
    (scope,) = {f.code for f in said.findings(found)}
    assert scope == "LIN-S007"
    text = prints("check", found)
    assert (
        "its name says global, and it is this rank's loss in 20 rows, not the mean loss over the ranks"
        in text
    )


def test_a_loss_that_was_reduced_may_call_itself_global(logged: Path, prints: said.Prints) -> None:
    found = ledger(logged, "logged_reduced")
    assert [f.text for f in said.findings(found)] == []
    assert "the mean loss over the ranks" in prints("check", found)
