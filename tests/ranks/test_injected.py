"""Faults of every kind, put into real process groups at random, are named and placed; healthy twins are not."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from lineage.ledger import beside
from lineage.ledger.beside import Beside
from lineage.ledger.reader import Ledger
from tests.probes import ranks
from tests.ranks import faults, tensor_parallel
from tests.ranks.faults import EVERY, Fault, Loop

_asked = os.environ.get("LINEAGE_FAULT_SEEDS", "1").split("-")
SEEDS = range(int(_asked[0]), int(_asked[1]) + 1) if len(_asked) == 2 else range(int(_asked[0]))
"""Seeds of each kind: one in an everyday run; docs/ranks.md has the table of twenty."""
WORLD = 3
STATE = ("flip_weight", "flip_moment1", "flip_moment2", "flip_buffer", "other_start", "clip_one_rank")
PLAIN = (
    *STATE,
    "healthy",
    "nan_gradient",
    "skip_bucket",
    "bypass",
    "same_shard",
    "slow_forward",
    "slow_loader",
)
AFTER = ("resumed", "other_step", "other_rng", "swapped")
TENSOR = ("tp_healthy", "tp_clip")
PARTS = {
    "flip_weight": "weights alone",
    "flip_moment1": "first moment",
    "flip_moment2": "second moment",
    "flip_buffer": "buffer",
    "other_start": "weights alone",
    "clip_one_rank": "both moments",
}


def body(rank: int, world: int, root: str, seeds: range) -> dict[str, list[str]]:
    """Every run of one rank; returns what only the run itself knows: the parameters of the bucket left out."""
    buckets = {}
    for seed in seeds:
        for kind in PLAIN:
            fault = None if kind == "healthy" else faults.draw(kind, seed, world)
            loop = Loop(Path(root), f"{kind}-{seed}", seed, fault)
            loop.go()
            buckets[f"{kind}-{seed}"] = loop.bucket
        for kind in AFTER:
            _twice(Path(root), kind, seed, world)
        for kind in TENSOR:
            fault = tensor_parallel.draw(seed, world) if kind == "tp_clip" else None
            tensor_parallel.run(Path(root), f"{kind}-{seed}", seed, fault)
    return buckets


def _twice(root: Path, kind: str, seed: int, world: int) -> None:
    """A healthy segment, and one after a restart, with the fault in it."""
    again = kind == "swapped"
    Loop(root, f"{kind}-{seed}", seed, None).go(last=faults.STEPS if again else 24, save_at=(16, 24))
    dist.barrier()
    second = Loop(root, f"{kind}-{seed}", seed, None if kind == "resumed" else faults.draw(kind, seed, world))
    if again:
        second.go()
    else:
        second.load(24)
        second.go(first=25)
    dist.barrier()


class Runs:
    """The ledgers of all runs."""

    def __init__(self, root: Path, known: dict[str, list[str]]) -> None:
        self.root, self.buckets = root, known

    def path(self, kind: str, seed: int) -> Path:
        return self.root / f"{kind}-{seed}"

    def last(self, kind: str, seed: int) -> Beside:
        """The newest segment's ranks beside each other."""
        ledger = Ledger(self.path(kind, seed))
        return beside.compare(ledger, ledger.segments[-1])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """All of them, made by one process group."""
    root = tmp_path_factory.mktemp("injected")
    found = ranks.run(functools.partial(body, root=str(root / "ledgers"), seeds=SEEDS), WORLD, root)
    return Runs(root / "ledgers", found[0])


def codes(found: Beside) -> set[str]:
    """Codes of what is more than a note."""
    return {f.code for f in found.findings if f.severity != "note"}


def only(found: Beside, code: str) -> Any:
    """The one finding of a code."""
    held = [f for f in found.findings if f.code == code]
    assert len(held) == 1, [f.text for f in found.findings]
    return held[0]


def plain(finding: Any, name: str) -> Any:
    """One of the values of a finding."""
    return finding.values[name].plain()


seeds = pytest.mark.parametrize("seed", SEEDS)


@seeds
@pytest.mark.parametrize("kind", ["healthy", "resumed", "tp_healthy"])
def test_nothing_is_said_of_a_healthy_run(runs: Runs, kind: str, seed: int) -> None:
    found = runs.last(kind, seed)
    assert not codes(found), [f.text for f in found.findings]
    assert found.state.tensors > 6
    assert len(found.state.steps) > 3
    assert not found.state.missing
    assert _first_bad(runs.path(kind, seed)) is None


def _first_bad(ledger: Path) -> dict[str, Any] | None:
    done = subprocess.run(
        [sys.executable, "-m", "lineage", "first-bad", str(ledger), "--json"],
        check=False,
        capture_output=True,
        text=True,
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said["first_bad"]


@seeds
@pytest.mark.parametrize("kind", STATE)
def test_a_rank_that_holds_other_bits_is_named_with_tensor_and_step(runs: Runs, kind: str, seed: int) -> None:
    fault, found = faults.draw(kind, seed, WORLD), runs.last(kind, seed)
    said = only(found, "LIN-R001")
    assert plain(said, "rank") == fault.rank
    assert plain(said, "differs") == PARTS[kind]
    if kind == "other_start":
        assert "agreed_at" not in said.values
        assert plain(said, "first_step") == 1
    else:
        assert plain(said, "agreed_at") == fault.digest_before
        assert plain(said, "first_step") == -(-fault.step // EVERY) * EVERY
    if kind in ("other_start", "clip_one_rank"):
        assert len(said.names) == 6  # every parameter
    else:
        assert said.names == [fault.tensor]
    assert codes(found) == ({"LIN-R001", "LIN-R003"} if kind == "clip_one_rank" else {"LIN-R001"})


@seeds
def test_a_state_that_differs_is_the_first_bad_cell(runs: Runs, seed: int) -> None:
    fault = faults.draw("flip_weight", seed, WORLD)
    bad = _first_bad(runs.path("flip_weight", seed))
    assert bad is not None
    assert (bad["cell"]["rank"], bad["cell"]["tensor"]) == (fault.rank, fault.tensor)
    assert bad["cell"]["abnormal"] == "differs"
    assert bad["last_good_step"] == fault.digest_before


@seeds
def test_a_nan_is_placed_on_its_rank_before_the_reduction(runs: Runs, seed: int) -> None:
    fault = faults.draw("nan_gradient", seed, WORLD)
    bad = _first_bad(runs.path("nan_gradient", seed))
    assert bad is not None
    cell = bad["cell"]
    assert (cell["rank"], cell["step"], cell["tensor"]) == (fault.rank, fault.step, fault.tensor)
    assert bad["last_good_step"] == fault.step - 1


@seeds
def test_a_bucket_that_was_not_reduced_is_named_by_its_parameters(runs: Runs, seed: int) -> None:
    fault = faults.draw("skip_bucket", seed, WORLD)
    said = only(runs.last("skip_bucket", seed), "LIN-R002")
    bucket = runs.buckets[f"skip_bucket-{seed}"]
    assert fault.tensor in bucket
    assert len(bucket) < 6
    assert sorted(said.names) == bucket
    assert plain(said, "differs") == "both moments"
    assert plain(said, "agreed_at") == fault.digest_before


@seeds
def test_a_parameter_that_nothing_averages_is_named(runs: Runs, seed: int) -> None:
    said = only(runs.last("bypass", seed), "LIN-R002")
    assert said.names == ["late"]
    assert plain(said, "differs") == "both moments"


@seeds
def test_ranks_on_one_shard_are_named(runs: Runs, seed: int) -> None:
    assert codes(runs.last("same_shard", seed)) == {"LIN-B004"}


@seeds
@pytest.mark.parametrize(
    ("kind", "signal"), [("slow_forward", "time_to_gradient"), ("slow_loader", "time_between")]
)
def test_a_slow_rank_is_named_with_where_it_waits(runs: Runs, kind: str, signal: str, seed: int) -> None:
    fault, found = faults.draw(kind, seed, WORLD), runs.last(kind, seed)
    said = only(found, "LIN-R004")
    assert plain(said, "rank") == fault.rank
    assert said.subject == signal
    assert abs(plain(said, "first_step") - (fault.step - 20)) <= 2  # a busy machine may add a step
    assert codes(found) == {"LIN-R004"}


@seeds
def test_a_rank_resumed_from_another_step_is_named(runs: Runs, seed: int) -> None:
    fault, found = faults.draw("other_step", seed, WORLD), runs.last("other_step", seed)
    assert plain(only(found, "LIN-R005"), "rank") == fault.rank
    assert plain(only(found, "LIN-R001"), "rank") == fault.rank
    counters = next(f for f in found.findings if f.subject == "optimizer_step_min")
    assert plain(counters, "rank") == fault.rank
    assert counters.severity == "fault"


@seeds
def test_the_random_numbers_of_another_rank_are_named(runs: Runs, seed: int) -> None:
    fault, found = faults.draw("other_rng", seed, WORLD), runs.last("other_rng", seed)
    said = only(found, "LIN-R006")
    assert plain(said, "rank") == fault.rank
    assert plain(said, "of_rank") == (fault.rank + 1) % WORLD
    assert codes(found) == {"LIN-R006"}


@seeds
def test_ranks_that_read_each_others_data_are_named(runs: Runs, seed: int) -> None:
    fault, found = faults.draw("swapped", seed, WORLD), runs.last("swapped", seed)
    said = only(found, "LIN-R007")
    other = (fault.rank + 1) % WORLD
    pair = sorted((fault.rank, other))
    assert said.names == [f"rank {a} reads what rank {b} read" for a, b in (pair, pair[::-1])]
    assert plain(said, "first_step") == fault.step
    assert codes(found) == {"LIN-R007"}


@seeds
def test_clipping_on_one_tensor_parallel_rank_shows_in_what_ranks_share(runs: Runs, seed: int) -> None:
    fault: Fault = tensor_parallel.draw(seed, WORLD)
    said = only(runs.last("tp_clip", seed), "LIN-R001")
    assert plain(said, "rank") == fault.rank
    assert plain(said, "differs") == "both moments"
    assert sorted(said.names) == ["down.bias", "norm.bias", "norm.weight"]  # the sharded ones are no copies
    assert plain(said, "agreed_at") == fault.digest_before


def _command(name: str, ledger: Path, *more: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "lineage", name, str(ledger), *more],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
    )
    return done.returncode, done.stdout


def test_the_command_says_who_differs_in_what_since_when_and_its_exit_code_tells(runs: Runs) -> None:
    fault = faults.draw("flip_weight", SEEDS[0], WORLD)
    code, text = _command("ranks", runs.path("flip_weight", SEEDS[0]))
    assert code == 1
    assert f"rank {fault.rank} holds other bits than" in text
    assert "Weights differ and their moments do not" in text
    assert fault.tensor in text
    code, text = _command("ranks", runs.path("healthy", SEEDS[0]))
    assert code == 0
    assert "ranks agree on all of them" in text
    code, text = _command("ranks", runs.path("flip_weight", SEEDS[0]), "--json")
    (segment,) = json.loads(text)["segments"]
    (d,) = segment["disagreements"]
    assert (d["kind"], d["tensor"], d["odd_ranks"]) == ("weight", fault.tensor, [fault.rank])


def test_the_finding_is_written_while_the_run_goes_on_and_shown_with_the_run(runs: Runs) -> None:
    ledger = Ledger(runs.path("flip_weight", SEEDS[0]))
    live = [r for r in ledger.of("finding") if r.payload.code == "LIN-R001"]
    assert [r.rank for r in live] == [0]  # the lowest rank of the group compares
    assert [r.payload.code for r in ledger.of("alarm") if r.payload.signal == "replicas"] == ["LIN-A007"]
    _, text = _command("show", runs.path("flip_weight", SEEDS[0]))
    assert "LIN-R001" in text


def test_replicas_that_differ_break_what_rests_on_the_weights(runs: Runs) -> None:
    fault = faults.draw("flip_weight", SEEDS[0], WORLD)
    code, text = _command("verdict", runs.path("flip_weight", SEEDS[0]), "--json")
    assert code == 1
    verdict = json.loads(text)["verdict"]
    broken = {c["claim"] for c in verdict["claims"] if c["status"] == "broken"}
    assert broken == {"loss_curve", "scaling_law", "ablation", "evaluation"}
    chain = next(c for c in verdict["claims"] if c["claim"] == "loss_curve")["chain"]
    (link,) = [
        k for k in chain if k["code"] == "LIN-A007"
    ]  # where rank 0 is hit, its write is in the chain too
    assert f"rank {fault.rank}" in link["text"]
