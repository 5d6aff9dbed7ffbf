"""Plain loops with torch.distributed.checkpoint, under DDP and FSDP2: what a resume did not restore is named."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.probes import ranks
from tests.probes.ranks import FSDP2_ON_CPU

from . import dcp_loops as loops
from .printed import Told

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FSDP2_ON_CPU, reason="FSDP2 on the CPU asks for torch 2.7"),
]
BOTH = {0, 1}


class Run:
    """All resumes of one kind of loop, on two ranks."""

    def __init__(self, kind: str, root: Path, scratch: Path) -> None:
        self.kind, self.root = kind, root
        body = functools.partial(loops.every_fault, root=str(root), kind=kind)
        self.losses: dict[str, list[float]] = ranks.run(body, 2, scratch)[0]

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


@pytest.fixture(scope="module", params=["ddp", "fsdp2"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    kind = request.param
    return Run(kind, tmp_path_factory.mktemp(kind), tmp_path_factory.mktemp("ranks"))


def test_a_faithful_resume_is_found_faithful_and_nothing_is_named(run: Run) -> None:
    assert run.losses["healthy"] == run.losses["saved"][loops.SAVED :]
    told = run.told("")
    for rank in range(2):
        assert set(told.statuses(rank).values()) == {"restored"}
        assert {"weights", "buffers", "ema", "optimizer_state", "rng", "loader_position"} <= set(
            told.statuses(rank)
        )
    assert not told.changes().keys() - {"code"}
    assert told.segment_verdict().status == "holds"
    assert "on 2 ranks: what was recorded is restored" in told.says("resume")
    assert "saved on 2 ranks, resumed on 2 ranks: equal" in told.says("ranks")
    assert "fault" not in told.says("show") + told.says("ranks") + told.says("resume")


@pytest.mark.parametrize(
    ("fault", "components", "words"),
    [
        ("moments", {"optimizer_state": BOTH, "optimizer_step": BOTH}, "optimizer state │ NOT RESTORED"),
        ("scheduler", {"lr_scheduler": BOTH}, "not as at the save (_step_count 17 -> 1, last_epoch 16 -> 0)"),
        ("no rng", {"rng": BOTH}, "random-number state │ DIFFERS │ 0-1 │ not as at the save (torch)"),
        ("rng above 0", {"rng": {1}}, "random-number state │ DIFFERS │ 1 │ not as at the save (torch)"),
        ("loader from the start", {"loader_position": BOTH}, "not as at the save (batches 16 -> 0"),
        ("loader skips", {"loader_position": BOTH}, "not as at the save (batches 16 -> 17"),
        ("untied", {"weights": BOTH}, "tied before: embedding.weight = head.weight; tied now: none"),
        ("ema", {"ema": BOTH}, "averaged weights (EMA) │ DIFFERS │ 0-1"),
    ],
)
def test_what_was_not_restored_is_named_and_nothing_else(
    fault: str, components: dict[str, set[int]], words: str, run: Run
) -> None:
    told = run.told(fault)
    assert run.wrong(fault) == components
    assert words in " ".join(told.says("resume").split())
    bitwise = fault in ("no rng", "rng above 0")
    assert told.segment_verdict().status == ("caveat" if bitwise else "broken")
    assert ("segment 2: caveat" if bitwise else "segment 2: BROKEN") in told.says("show")


def test_a_scaler_that_begins_again_is_named(run: Run) -> None:
    if run.kind != "ddp":
        pytest.skip("this loop scales under DDP only")
    assert run.wrong("scaler") == {"grad_scaler": BOTH}
    assert "gradient scaler state not as at the save (scale 1024 -> 4)" in run.told("scaler").says("show")


def test_a_type_that_the_load_changes_without_a_word_is_named(run: Run) -> None:
    """DCP copies what it reads into the tensors that it is given, whatever their type is."""
    assert {"weights", "buffers", "ema", "optimizer_state"} == set(run.wrong("dtype"))
    assert (
        "model weights not as at the save (their type was changed by the load: float32 -> bfloat16)"
        in run.told("dtype").says("show")
    )


def test_a_buffer_that_no_state_dict_holds_is_named_as_lost(run: Run) -> None:
    """Under DDP rank 0's is given to all before each forward pass, so that rank 0 is who lost it."""
    assert run.wrong("buffer") == {"buffers": {0} if run.kind == "ddp" else BOTH}
    assert "no state_dict holds unsaved (persistent=False): 1 of 2 tensors differ (unsaved)" in run.told(
        "buffer"
    ).says("show")


def test_a_step_counter_that_begins_again_is_named_with_the_update_that_it_makes_too_large(run: Run) -> None:
    """Moments are kept: Adam's bias correction makes the first update 2.24 times too large, 2.44 so early."""
    assert run.wrong("counter") == {"optimizer_step": BOTH}
    text = run.told("counter").says("show")
    assert "optimizer step counter not as at the save (step 16 -> 0)" in text
    assert "LIN-C013" in text
    assert "make it 2.44 times as large (betas 0.9, 0.95)" in text


def test_a_stale_optimizer_is_named_as_one_that_trains_nothing_of_the_model(run: Run) -> None:
    """It was built before `fully_shard`, or before a deep copy: both make new parameters."""
    text = run.told("stale optimizer").says("show")
    assert "fault LIN-P002 optimizer: 3 held by the optimizer and no part of the model" in text
    assert "LIN-P001 optimizer: 3 trainable and in no group of the optimizer: never updated" in text


def test_random_numbers_of_another_rank_are_named_with_both_ranks(run: Run) -> None:
    assert run.wrong("rng of another rank") == {"rng": {1}}
    words = (
        "LIN-R006 random numbers: rank 1 has, after the load, the random numbers that rank 0 saved (torch)"
    )
    told = run.told("rng of another rank")
    for command in ("ranks", "show", "resume"):
        assert words in told.says(command)


def test_a_rank_that_loaded_another_step_is_named_with_that_step(run: Run) -> None:
    """Each rank loads by itself from its own disk, and rank 1 has an older copy there; all name the same path."""
    found = run.wrong("one rank from another step")
    assert found["weights"] == found["optimizer_state"] == found["loader_position"] == {1}
    words = "LIN-C008 resume: rank 1 went on from the save of step 8, and step 16 was named: model weights"
    told = run.told("one rank from another step")
    assert words in told.says("resume")
    assert words in told.says("show")
    assert "LIN-R003 optimizer_step_min: ranks have it unlike each other from step 17" in told.says("ranks")


def test_arguments_that_the_checkpoint_silently_puts_in_place_of_the_configs_are_named(run: Run) -> None:
    assert run.wrong("arguments") == {}
    text = run.told("arguments").says("show")
    assert "lr requested 0.01 -> 0.03, not in effect" in text
    assert "weight_decay requested 0.1 -> 0.3, not in effect" in text


def test_a_key_that_all_ranks_share_is_named_where_one_rank_has_what_the_other_saved(run: Run) -> None:
    """DCP keeps one of what several ranks save under one key, and gives it to all of them."""
    (rank,) = run.wrong("shared key")["loader_position"]
    assert run.wrong("shared key") == {"rng": {rank}, "loader_position": {rank}}
    told = run.told("shared key")
    assert (
        f"LIN-C009 resume: rank {rank} holds what rank {1 - rank} saved: data-loader position"
        in told.says("resume")
    )
    assert f"rank {rank} has, after the load, the random numbers that rank {1 - rank} saved" in told.says(
        "ranks"
    )


def test_an_asynchronous_save_that_wrote_the_first_ones_bytes_again_is_named_before_anybody_resumes(
    run: Run,
) -> None:
    """The stager hands out what it staged first. A resume from there is named as one from that step."""
    told = Told(run.root / "stale staging" / "runs")
    words = "the files of the save at step 16 are those of step 8, byte for byte"
    assert f"fault LIN-C012 checkpoint: {words}" in told.says("show")
    assert words in told.says("resume")
    after = run.told("stale staging").says("resume")
    assert "LIN-C008 resume: ranks 0-1 went on from the save of step 8, and step 16 was named" in after


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_digests_of_an_asynchronous_save_are_those_of_the_state_that_was_staged(
    kind: str, tmp_path: Path
) -> None:
    """Its files are written after the next updates; a resume from them finds everything as it was digested."""
    (tmp_path / "ranks").mkdir()
    body = functools.partial(loops.save_asynchronously, root=str(tmp_path), kind=kind)
    ranks.run(body, 2, tmp_path / "ranks")
    told = Told(tmp_path / "runs")
    for rank in range(2):
        assert set(told.statuses(rank).values()) == {"restored"}
    assert "LIN-C012" not in told.says("show")


def staged(rank: int, world: int, root: str, handed: bool) -> Any:
    """One save, and updates at once after it; what is on record of it, what was staged, and what it took."""
    import lineage
    from lineage.capture import digest
    from lineage.integrations.dcp import Stager
    from lineage.ledger import sidecars

    torch.manual_seed(0)
    model = torch.nn.Linear(512, 2048, bias=False)
    model.register_buffer("unsaved", torch.ones(3), persistent=False)
    kept: list[Any] = []

    class Keeps(loops.BlockingAsyncStager):  # type: ignore[misc]
        def stage(self, state: Any) -> Any:
            kept.append(super().stage(state))
            return kept[-1]

    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    path = Path(root) / "step-1"

    def update() -> None:
        model(torch.ones(1, 512)).sum().backward()
        optimizer.step()
        model.unsaved.add_(1.0)

    with lineage.attach(None, dir=root, model=model, optimizer=optimizer, quiet=True, report=False) as rec:
        with rec.step(1):
            update()
        known = rec.saving(1)
        known.__enter__()
        stager, largest = Stager(Keeps()) if handed else Keeps(), Largest()
        with rec.saving(1, stager=stager if handed else None) as save, largest:
            future = loops.dcp.async_save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
                checkpoint_id=path,
                async_stager=stager,
            )
        for _ in range(3):
            update()
        future.result()
        save.commit(path)
    sidecar = sidecars.read(path)
    assert sidecar is not None
    saved = {c.component: c for c in sidecar.checkpoint.live}
    weight = kept[0]["model"]["weight"]
    assert known._record is not None
    return {
        "weights": saved["weights"].digest,
        "of the copy": digest.root({"weight": digest.tensor_digest(weight)}),
        "largest": largest.bytes,
        "whole": weight.numel() * 4,
        "as without": sorted({c.component for c in known._record.live if c == saved[c.component]}),
        "components": sorted(saved),
    } | {"rows": sum(r["step"] == 1 for r in _states(root))}


def _states(root: str) -> list[dict[str, Any]]:
    return Told(Path(root)).ledger.series("states", ["step", "tensor", "moment"]).to_pylist()


class Largest(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[name-defined,misc]
    """Bytes of the largest tensor that is made on this thread, other than by the stager."""

    bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() not in known:
            size = result.untyped_storage().nbytes()
            staging = func in (torch.ops.aten.empty.memory_format, torch.ops.aten.empty_like.default)
            self.bytes = max(self.bytes, 0 if staging else size)
        return result


@pytest.mark.parametrize("handed", [False, True], ids=["digested before it is staged", "of the staged copy"])
def test_digests_at_a_save_are_of_the_staged_state_and_make_no_second_copy_of_it(
    handed: bool, tmp_path: Path
) -> None:
    """Training goes on at once, and changes all of it; both ways give the same, of buffers without a file too."""
    (tmp_path / "ranks").mkdir()
    body = functools.partial(staged, root=str(tmp_path / "runs"), handed=handed)
    (found,) = ranks.run(body, 1, tmp_path / "ranks")
    assert found["weights"] == found["of the copy"]
    assert found["largest"] < found["whole"]
    assert set(found["as without"]) == set(found["components"])
    assert found["rows"] == 2 * 4  # weight, buffer and two moments, of two saves


def test_a_save_that_was_to_be_staged_and_was_not_has_its_digests_all_the_same(tmp_path: Path) -> None:
    """The loop saved otherwise within the block: what the state was at its end is on record."""
    import lineage
    from lineage.integrations.dcp import Stager
    from lineage.ledger import sidecars

    model = torch.nn.Linear(4, 4)
    with lineage.attach(None, dir=tmp_path / "runs", model=model, quiet=True, report=False) as rec:
        with rec.step(1):
            model(torch.ones(1, 4)).sum().backward()
        for name, stager in (("with", Stager()), ("without", None)):
            with rec.saving(1, stager=stager) as save:
                torch.save(model.state_dict(), tmp_path / name)
            save.commit(tmp_path / name)
    saved = [sidecars.read(tmp_path / name) for name in ("with", "without")]
    assert saved[0] is not None
    assert saved[1] is not None
    assert saved[0].checkpoint.live == saved[1].checkpoint.live


def test_the_example_resumes_on_one_rank_what_two_saved_and_is_found_faithful(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "dcp_loop.py"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    for words in (["2", str(example)], ["1", str(example), "checkpoints/step-10"]):
        done = subprocess.run(
            [*torchrun, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
    text = Told(tmp_path / "lineage-runs").says("resume")
    assert "saved on 2 ranks, on 1 rank now: what was recorded is restored" in text
    assert "not recorded" not in text


def test_a_resume_on_two_ranks_of_what_four_saved_is_found_faithful(tmp_path: Path) -> None:
    for name, body, world in (("four", loops.save_on_many, 4), ("two", loops.resume_on_fewer, 2)):
        (tmp_path / name).mkdir()
        ranks.run(functools.partial(body, root=str(tmp_path)), world, tmp_path / name)
    told = Told(tmp_path / "runs")
    whole = [p for p in told.payloads("restore") if p.scope == "whole"][-1]
    assert {c.component: c.status for c in whole.components} == dict.fromkeys(
        ("weights", "buffers", "optimizer_state"), "restored"
    )
    for rank in range(2):
        assert set(told.statuses(rank).values()) <= {"restored", "not_recorded"}
    text = told.says("resume")
    assert "saved on 4 ranks, on 2 ranks now: what was recorded is restored" in text
    assert (
        "model weights as at the save over 2 ranks, saved on 4" in text
        or "as at the save over 2 ranks" in text
    )
    assert "saved on 4 ranks, resumed on 2 ranks: equal" in told.says("ranks")
    assert "fault" not in told.says("show") + told.says("ranks") + text
