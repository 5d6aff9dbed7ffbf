"""A save on some ranks and a resume on fewer: equal is found equal, and one changed bit is found, by tensor."""

from __future__ import annotations

import functools
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import lineage
from lineage.capture import digest, digest_shards, state
from lineage.capture.watched import Watched
from lineage.judge.resharded import Resharded
from lineage.ledger import files, sidecars, whole_states
from lineage.ledger.reader import Ledger
from tests.probes import ranks
from tests.probes.ranks import FSDP2_ON_CPU

pytestmark = pytest.mark.skipif(not FSDP2_ON_CPU, reason="FSDP2 on the CPU asks for torch 2.7")


class Net(torch.nn.Module):
    """Sizes that no number of ranks divides, a norm, and a buffer that every rank has whole."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(12, 37)
        self.norm = torch.nn.LayerNorm(37)
        self.down = torch.nn.Linear(37, 12, bias=False)
        self.register_buffer("scale", torch.full((5,), 1.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down(torch.tanh(self.norm(self.up(x))))
        return y * self.scale.mean()


def build(world: int, *, by_columns: bool = False) -> tuple[Any, Any]:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(3)
    model = Net()
    if world > 1:
        place = (lambda p: Shard(1) if p.ndim == 2 and p.shape[1] == 12 else Shard(0)) if by_columns else None
        fully_shard(model, mesh=init_device_mesh("cpu", (world,)), shard_placement_fn=place)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)


def steps(rec: Any, model: Any, optimizer: Any, first: int, last: int) -> None:
    for step in range(first, last + 1):
        x = torch.randn(4, 12, generator=torch.Generator().manual_seed(step))
        with rec.step(step, {"x": x}) as st:
            loss = model(x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            st.loss(loss)


def saving(rank: int, world: int, root: str) -> None:
    model, optimizer = build(world)
    with lineage.attach(
        None, dir=root, run_id="saved", model=model, optimizer=optimizer, quiet=True, report=False
    ) as rec:
        steps(rec, model, optimizer, 1, 3)
        weights, moments = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optim": moments}, checkpoint_id=f"{root}/checkpoint")
        rec.checkpoint(f"{root}/checkpoint", step=3)


def resuming(rank: int, world: int, root: str, name: str, damage: str = "", by_columns: bool = False) -> Any:
    model, optimizer = build(world, by_columns=by_columns)
    weights, moments = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optim": moments}, checkpoint_id=f"{root}/checkpoint")
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    parameters = dict(model.named_parameters())
    if damage == "moment" and rank == world - 1:
        optimizer.state[parameters["up.weight"]]["exp_avg_sq"].to_local().view(torch.int32)[-1, 3] ^= 1
    if damage == "no moments":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    with lineage.attach(
        None,
        dir=root,
        run_id=name,
        model=model,
        optimizer=optimizer,
        resumed_from=f"{root}/checkpoint",
        quiet=True,
        report=False,
    ) as rec:
        steps(rec, model, optimizer, 4, 4)
    return len(parameters)


def compared(root: Path, name: str) -> Resharded:
    ledger = Ledger(root / name)
    found = whole_states.of_resume(ledger, ledger.segments[-1].uid, root / "saved")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run on four ranks saved after three steps."""
    folder = tmp_path_factory.mktemp("saved")
    ranks.run(functools.partial(saving, root=str(folder)), 4, tmp_path_factory.mktemp("ranks"))
    return folder


def resume(root: Path, scratch: Path, world: int, **how: Any) -> Resharded:
    body = functools.partial(resuming, root=str(root), name=scratch.name, **how)
    ranks.run(body, world, scratch)
    return compared(root, scratch.name)


@pytest.mark.parametrize(("world", "by_columns"), [(2, False), (3, True), (1, False)], ids=str)
def test_a_resume_on_other_ranks_with_equal_weights_and_moments_is_found_equal(
    root: Path, tmp_path: Path, world: int, by_columns: bool
) -> None:
    found = resume(root, tmp_path, world, by_columns=by_columns)
    assert found.status == "restored", found.lines()
    assert found.lines()[0] == f"saved on 4 ranks, resumed on {world} rank{'s' * (world > 1)}: equal"
    assert {name: c.equal for name, c in found.components.items()} == {
        "weights": 5,
        "buffers": 1,
        "optimizer_state": 10,
    }


def test_one_changed_bit_of_one_moment_is_found_with_the_tensors_name(root: Path, tmp_path: Path) -> None:
    found = resume(root, tmp_path, 2, damage="moment")
    assert found.status == "differs"
    assert found.components["optimizer_state"].differing == ["up.weight.moment2"]
    assert found.components["optimizer_state"].equal == 9
    assert found.components["weights"].status == "restored"


def test_weights_restored_without_moments_are_named(root: Path, tmp_path: Path) -> None:
    found = resume(root, tmp_path, 2, damage="no moments")
    assert found.components["weights"].status == "restored"
    assert len(found.components["optimizer_state"].absent) == 10


def test_one_rank_alone_says_nothing_of_parts_that_are_cut_otherwise(root: Path, tmp_path: Path) -> None:
    """Each rank records the comparison it can make by itself: on two ranks, no shard is what it was on four."""
    resume(root, tmp_path, 2)
    records = Ledger(root / tmp_path.name).of("restore")
    found = {c.component: c for r in records if r.payload.scope == "rank" for c in r.payload.components}
    assert found["weights"].status == "not_recorded"
    assert "cut otherwise than at the save" in found["weights"].text
    assert found["optimizer_step"].status == "restored"


def test_one_rank_alone_can_tell_where_its_parts_are_cut_alike(root: Path, tmp_path: Path) -> None:
    resume(root, tmp_path, 4)
    records = Ledger(root / tmp_path.name).of("restore")
    found = [c.status for r in records for c in r.payload.components if c.component == "weights"]
    assert found
    assert set(found) == {"restored"}


def test_the_manifest_that_ranks_made_together_is_that_of_the_files(root: Path) -> None:
    sidecar = sidecars.read(root / "checkpoint")
    assert sidecar is not None
    assert sidecar.checkpoint.manifest == files.manifest(root / "checkpoint")
    assert len([e for e in sidecar.checkpoint.manifest.files if e.path.endswith(".distcp")]) == 4


def shares(rank: int, world: int, shape: tuple[int, int]) -> list[Any]:
    """What each rank adds, for a model under FSDP2 over tensor parallelism and for tensors cut by hand."""
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
    torch.manual_seed(5)
    plain = torch.nn.Sequential(OrderedDict(up=torch.nn.Linear(8, 18), down=torch.nn.Linear(18, 8)))
    want = {n: digest.tensor_digest(p) for n, p in plain.named_parameters()}
    model = parallelize_module(plain, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    odd = torch.arange(7 * 11, dtype=torch.float64).view(7, 11)
    tensors = dict(model.named_parameters()) | {"cut": distribute_tensor(odd, mesh, [Shard(1), Shard(0)])}
    want["cut"] = digest.tensor_digest(odd)
    out = []
    for name, t in tensors.items():
        assert isinstance(t, DTensor)
        pair = digest_shards.lanes(t).tolist()
        out.append([name, digest.header(t), pair, digest_shards.first_of_replicas(t), want[name]])
    return out


@pytest.mark.parametrize("shape", [(2, 2), (1, 3)], ids=str)
def test_shares_of_real_ranks_on_a_mesh_of_two_dimensions_add_up(
    shape: tuple[int, int], tmp_path: Path
) -> None:
    """FSDP2 over tensor parallelism cuts one dimension twice, the other way round; replicas count once."""
    found = ranks.run(functools.partial(shares, shape=shape), shape[0] * shape[1], tmp_path)
    for of_ranks in zip(*found, strict=True):
        name, head, _, _, want = of_ranks[0]
        counted = [pair for _, _, pair, first, _ in of_ranks if first]
        assert digest.finish(head, [sum(p[n] for p in counted) for n in (0, 1)]) == want, name


def test_a_tensor_whose_placement_is_a_partial_sum_is_recorded_without_a_digest(tmp_path: Path) -> None:
    (found, _) = ranks.run(partial, 2, tmp_path)
    assert found == [None, "no digest is made: it is a partial sum"]


def partial(rank: int, world: int) -> list[Any]:
    from torch.distributed.tensor import Partial

    model = torch.nn.Linear(3, 3)
    mesh = init_device_mesh("cpu", (world,))
    model.weight = torch.nn.Parameter(DTensor.from_local(model.weight.data, mesh, [Partial()]))
    (found,) = state.capture(Watched(model=model), only=("weights",))
    return [found.digest, found.note]
