"""Placement tells which ranks must hold the same, for wrappers, meshes, stages and what is declared by hand."""

from __future__ import annotations

import functools
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import lineage
from lineage.capture import placement
from lineage.capture.watched import Watched
from lineage.ledger import beside
from lineage.ledger.reader import Ledger
from tests.probes import ranks
from tests.probes.ranks import FSDP2_ON_CPU
from tests.ranks.tensor_parallel import Block

Found = dict[str, list[Any]]
"""`kind name` -> [part, ranks of each group]"""


def groups(model: Any, optimizer: Any = None, replicas: Any = None) -> Found:
    """What placement says of every tensor on this rank."""
    found = placement.look(Watched(model=model, optimizer=optimizer), replicas)
    return {f"{p.kind} {p.name}": [p.part, [list(g.ranks) for g in p.groups]] for p in found.placed}


def _step(model: Any, optimizer: Any, width: int = 12) -> None:
    model(torch.randn(4, width, generator=torch.Generator().manual_seed(1))).pow(2).mean().backward()
    optimizer.step()


def under_ddp(rank: int, world: int) -> Found:
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(12, 12), torch.nn.BatchNorm1d(12)))
    optimizer = torch.optim.AdamW(model.parameters())
    _step(model, optimizer)
    return groups(model, optimizer)


def under_ddp_of_a_part(rank: int, world: int) -> Found:
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    return groups(DistributedDataParallel(torch.nn.Linear(12, 12), process_group=pairs[rank // 2]))


def sharded(rank: int, world: int, shape: tuple[int, ...], names: tuple[str, ...]) -> Found:
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Sequential(torch.nn.Linear(12, 12), torch.nn.Linear(12, 12))
    fully_shard(model, mesh=init_device_mesh("cpu", shape, mesh_dim_names=names))
    optimizer = torch.optim.AdamW(model.parameters())
    _step(model, optimizer)
    return groups(model, optimizer)


def tensor_and_data(rank: int, world: int) -> Found:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = parallelize_module(Block(), mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    _step(model, optimizer)
    return groups(model, optimizer, [[0, 2], [1, 3]])


def test_a_ddp_wrapper_declares_its_group_and_batch_norm_statistics_are_left_out(tmp_path: Path) -> None:
    found = ranks.run(under_ddp, 2, tmp_path)[1]
    everyone = ["whole", [[0, 1]]]
    assert {k: found[k] for k in ("weight 0.weight", "moment1 0.bias", "moment2 1.weight")} == {
        "weight 0.weight": everyone,
        "moment1 0.bias": everyone,
        "moment2 1.weight": everyone,
    }
    assert "buffer 1.running_mean" not in found  # each rank's own
    assert found["buffer 1.num_batches_tracked"] == ["whole", []]


def test_a_ddp_wrapper_over_some_ranks_declares_those_alone(tmp_path: Path) -> None:
    found = ranks.run(under_ddp_of_a_part, 4, tmp_path)
    assert [f["weight weight"][1] for f in found] == [[[0, 1]], [[0, 1]], [[2, 3]], [[2, 3]]]


@pytest.mark.skipif(not FSDP2_ON_CPU, reason="FSDP2 on the CPU asks for torch 2.7")
def test_full_sharding_declares_nothing(tmp_path: Path) -> None:
    found = ranks.run(functools.partial(sharded, shape=(4,), names=("shard",)), 4, tmp_path)
    assert all(groups == [] for f in found for _, groups in f.values())
    assert found[2]["moment1 0.weight"][0] == "S(0) 3 of 4"


@pytest.mark.skipif(not FSDP2_ON_CPU, reason="FSDP2 on the CPU asks for torch 2.7")
def test_hybrid_sharding_declares_the_ranks_with_the_same_shard(tmp_path: Path) -> None:
    found = ranks.run(functools.partial(sharded, shape=(2, 2), names=("replicate", "shard")), 4, tmp_path)
    assert [f["weight 0.weight"] for f in found] == [
        ["S(0) 1 of 2", [[0, 2]]],
        ["S(0) 2 of 2", [[1, 3]]],
        ["S(0) 1 of 2", [[0, 2]]],
        ["S(0) 2 of 2", [[1, 3]]],
    ]
    assert found[3]["moment2 1.bias"] == ["S(0) 2 of 2", [[1, 3]]]


def test_tensor_parallel_shards_agree_over_data_parallelism_and_whole_parts_over_both(tmp_path: Path) -> None:
    found = ranks.run(tensor_and_data, 4, tmp_path)
    assert [f["weight up.weight"] for f in found] == [
        ["S(0) 1 of 2", [[0, 2]]],
        ["S(0) 2 of 2", [[1, 3]]],
        ["S(0) 1 of 2", [[0, 2]]],
        ["S(0) 2 of 2", [[1, 3]]],
    ]
    assert found[1]["weight down.bias"] == ["whole", [[0, 1], [1, 3]]]
    assert found[1]["moment1 up.weight"] == ["S(0) 2 of 2", [[1, 3]]]


def _train(root: Path, name: str, model: Any, flip: Any, replicas: Any = None, width: int = 12) -> None:
    """Eight steps, with something done to the state before the sixth."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    held: dict[str, Any] = {"replicas": replicas, "quiet": True, "report": False}
    with lineage.attach(
        None, dir=root, run_id=name, model=model, optimizer=optimizer, agree_every=1, **held
    ) as rec:
        for step in range(1, 9):
            x = torch.randn(4, width, generator=torch.Generator().manual_seed(step))
            if step == 6:
                flip(optimizer)
            with rec.step(step, {"x": x}) as st:
                loss = model(x).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                st.loss(loss)


def flipped_in_hybrid(rank: int, world: int, root: str) -> None:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(12, 12), torch.nn.Linear(12, 12))
    fully_shard(model, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))

    def flip(optimizer: Any) -> None:
        if rank == 3:
            local = optimizer.state[dict(model.named_parameters())["1.weight"]]["exp_avg_sq"].to_local()
            local.view(torch.int32)[2, 5] ^= 1 << 4

    _train(Path(root), "hybrid", model, flip)


@pytest.mark.skipif(not FSDP2_ON_CPU, reason="FSDP2 on the CPU asks for torch 2.7")
def test_one_bit_in_a_moment_of_one_shard_is_placed_under_hybrid_sharding(tmp_path: Path) -> None:
    ranks.run(functools.partial(flipped_in_hybrid, root=str(tmp_path / "l")), 4, tmp_path)
    ledger = Ledger(tmp_path / "l" / "hybrid")
    found = beside.compare(ledger, ledger.segments[0]).state.found
    assert {(d.kind, d.tensor, d.part, d.agreed, d.step) for d in found} >= {
        ("moment2", "1.weight", "S(0) 2 of 2", 5, 6)
    }
    assert {(d.tensor, d.classes) for d in found} == {("1.weight", ((1,), (3,)))}


def two_stages(rank: int, world: int, root: str) -> None:
    """Pipeline stages of two ranks each: names are equal, and layers are not."""
    stages = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    torch.manual_seed(rank // 2)
    model = DistributedDataParallel(torch.nn.Linear(12, 12), process_group=stages[rank // 2])

    def flip(optimizer: Any) -> None:
        if rank == 2:
            with torch.no_grad():
                model.module.bias[4] += 1.0

    _train(Path(root), "stages", model, flip)


def test_stages_are_not_compared_with_each_other(tmp_path: Path) -> None:
    ranks.run(functools.partial(two_stages, root=str(tmp_path / "l")), 4, tmp_path)
    ledger = Ledger(tmp_path / "l" / "stages")
    found = beside.compare(ledger, ledger.segments[0]).state.found
    assert {(d.tensor, d.step, d.classes) for d in found if d.kind == "weight"} == {("bias", 6, ((2,), (3,)))}


def test_what_nobody_declares_is_told_when_ranks_stop_to_agree(tmp_path: Path) -> None:
    """A loop that averages by hand: no wrapper says that its ranks are replicas."""
    ranks.run(functools.partial(by_hand, root=str(tmp_path / "l")), 3, tmp_path)
    ledger = Ledger(tmp_path / "l" / "hand")
    found = beside.compare(ledger, ledger.segments[0])
    said = [f for f in found.findings if f.code.startswith("LIN-R")]
    assert [(f.code, f.severity, f.names, f.values["rank"].plain()) for f in said] == [
        ("LIN-R001", "warning", ["weight"], 1)
    ]
    assert any("replicas=" in text for text in found.not_compared)


def by_hand(rank: int, world: int, root: str) -> None:
    torch.manual_seed(3)
    model = torch.nn.Linear(12, 12)
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad))

    def flip(optimizer: Any) -> None:
        if rank == 1:
            with torch.no_grad():
                model.weight[0, 0] += 1.0

    _train(Path(root), "hand", model, flip)


def test_megatrons_marks_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Megatron-LM needs CUDA: its parallel state stands here as a module with the functions that are called."""
    state = types.ModuleType("megatron.core.parallel_state")
    calls = {
        "get_data_parallel_group": [0, 4],
        "get_expert_data_parallel_group": [1],
        "get_tensor_model_parallel_group": [0, 1],
    }
    for name, held in calls.items():
        setattr(state, name, lambda held=held, **_: held)
    at = ("get_tensor_model_parallel_rank", 1), ("get_tensor_model_parallel_world_size", 2)
    for name, value in (*at, ("get_pipeline_model_parallel_rank", 0), ("get_expert_model_parallel_rank", 3)):
        setattr(state, name, lambda value=value: value)
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda group: group)
    model = torch.nn.ParameterDict(
        {n: torch.nn.Parameter(torch.ones(2)) for n in ("norm", "column", "expert")}
    )
    for name, p in model.items():
        p.tensor_model_parallel = name == "column"
        p.allreduce = name != "expert"
    assert groups(model) == {
        "weight norm": ["stage 1", [[0, 4], [0, 1]]],
        "weight column": ["stage 1, tensor 2 of 2", [[0, 4]]],
        "weight expert": ["stage 1, experts 4, tensor 2 of 2", []],
    }
