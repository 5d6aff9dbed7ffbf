"""Several micro-batches in a step: what is read is this rank's own, and what is not finite in one is not lost."""

from __future__ import annotations

import contextlib
import functools
import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn

from lineage.probes.probes import Probes

from . import ranks


class Experts(nn.Module):
    """An input layer, experts of which a forward pass uses some, and a frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Linear(6, 10)
        self.experts = nn.ModuleList(nn.Linear(10, 10) for _ in range(3))
        self.frozen = nn.Parameter(torch.ones(7), requires_grad=False)

    def forward(self, x: Any, used: tuple[int, ...]) -> Any:
        x = torch.relu(self.first(x))
        for i in used:
            x = x + self.experts[i](x)
        return x


def micro(rank: int, step: int, place: int, *, bad: bool = False) -> Any:
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(100 * rank + 10 * step + place))
    x[0, 0] = math.nan if bad else x[0, 0]
    return x


def _rank(
    rank: int,
    world: int,
    kind: str,
    used: tuple[tuple[int, ...], tuple[int, ...]],
    once: bool,
    bad: bool = False,
) -> Any:
    """Two steps of two micro-batches: per step {name -> this rank's own norm}, read and by hand, and what was bad.

    `once`: reduced at the last micro-batch alone. By hand is then the sum of both, else what is due for the last.
    `bad`: in step 2 the first micro-batch of rank 1 has a NaN.
    """
    model, alone = Experts(), Experts()
    if kind == "DDP":
        model = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    else:
        from torch.distributed.fsdp import fully_shard

        fully_shard(model)
    probes = Probes(model=model)
    found = []
    for step in (1, 2):
        probes.start()
        model.zero_grad()
        alone.zero_grad()
        for place in (0, 1):
            x = micro(rank, step, place, bad=bad and (rank, step, place) == (1, 2, 0))
            whole = contextlib.nullcontext()
            if once and kind == "DDP" and place == 0:
                whole = model.no_sync()
            elif once and kind == "FSDP2":
                model.set_requires_gradient_sync(place == 1)
            with whole:
                model(x, used[place]).square().mean().backward()
            if not once:
                for n in used[place]:
                    alone.experts[n].zero_grad()
                alone.first.zero_grad()
            alone(x, used[place]).square().mean().backward()
        probes.finish(step)
        (frame,) = probes.arrived(wait=True)
        own = {n: p.grad.norm().item() for n, p in alone.named_parameters() if p.grad is not None}
        read = {n: s.norm_of_finite for n, s in frame.of("gradient")}
        equal = read.keys() == own.keys() and all(math.isclose(read[n], own[n], rel_tol=1e-4) for n in own)
        broken = sorted(n for n, s in frame.of("gradient") if not s.finite)
        found.append({"equal": equal, "read": sorted(read), "own": sorted(own), "broken": broken})
    assert probes.trouble == {}
    probes.remove()
    return found


ALL = (0, 1, 2)
FSDP2 = pytest.param(
    "FSDP2",
    marks=pytest.mark.skipif(not ranks.FSDP2_ON_CPU, reason="FSDP2 does not run on a CPU with this torch"),
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["DDP", FSDP2])
def test_where_each_micro_batch_is_reduced_a_rank_still_reads_its_own(tmp_path: Path, kind: str) -> None:
    """The last micro-batch's own, not what accumulated from all ranks; a NaN of the first stays with its rank."""
    body = functools.partial(_rank, kind=kind, used=(ALL, ALL), once=False, bad=True)
    for rank, (_, second) in enumerate(ranks.run(body, 2, tmp_path)):
        assert second["equal"]
        assert second["broken"] == (second["own"] if rank == 1 else [])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["DDP", FSDP2])
def test_an_expert_of_an_earlier_micro_batch_alone_has_a_gradient(tmp_path: Path, kind: str) -> None:
    """Reduced once, at the end, where that expert got no token: from the second step on it is read."""
    for _, second in ranks.run(
        functools.partial(_rank, kind=kind, used=(ALL, (0, 1)), once=True), 2, tmp_path
    ):
        assert "experts.2.weight" in second["own"]
        assert second["equal"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [FSDP2])
def test_what_a_flat_buffer_leaves_out_does_not_hide_the_rest(tmp_path: Path, kind: str) -> None:
    """A frozen parameter never; an expert without tokens, of which the buffer does not tell, for a step."""
    for first, second in ranks.run(
        functools.partial(_rank, kind=kind, used=(ALL, ALL), once=True), 2, tmp_path
    ):
        assert first["equal"], "the frozen parameter is known to be none of the buffer's"
        assert second["equal"]
    (tmp_path / "unused").mkdir()
    body = functools.partial(_rank, kind=kind, used=((0, 1), (0, 1)), once=True)
    for first, second in ranks.run(body, 2, tmp_path / "unused"):
        assert first["read"] == ["group:first.weight"]
        assert second["equal"]
        assert "experts.2.weight" not in second["read"]
