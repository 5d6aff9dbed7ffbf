"""Flat parts of ZeRO are told from parameters that went stale, and are each rank's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from lineage.capture import flat_parts, state
from lineage.capture.watched import Watched
from lineage.probes import held


def model() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.LayerNorm(5), torch.nn.Linear(5, 4))


def zero(net: Any, parts: int = 2, rank: int = 0) -> Any:
    """An optimizer of this rank's part of all parameters, stepped once, as ZeRO's first stages make one."""
    whole = torch.cat([p.detach().flatten() for p in net.parameters()])
    part = torch.nn.Parameter(whole.chunk(parts)[rank].clone())
    optimizer = torch.optim.AdamW([part], lr=0.1)
    part.grad = torch.ones_like(part)
    optimizer.step()
    return optimizer


def named(net: Any) -> dict[str, Any]:
    return dict(net.named_parameters())


def test_a_part_of_all_parameters_is_told_from_them() -> None:
    net = model()
    optimizer = zero(net)
    assert flat_parts.held(named(net), optimizer.param_groups) == optimizer.param_groups[0]["params"]
    assert held.look(list(named(net).items()), optimizer).stale == []
    assert held.look(list(named(net).items()), optimizer).not_held == []


@pytest.mark.parametrize("which", ["all", "vectors", "own", "none"])
def test_copies_that_went_stale_and_a_models_own_parameters_are_no_flat_parts(which: str) -> None:
    net, other = model(), model()
    held_ = {
        "all": list(other.parameters()),
        "vectors": [p for p in other.parameters() if p.dim() == 1],
        "own": list(net.parameters()),
        "none": [torch.nn.Parameter(torch.zeros(3))],
    }[which]
    optimizer = torch.optim.SGD(held_, lr=0.1)
    assert flat_parts.held(named(net), optimizer.param_groups) == []


def test_a_model_of_vectors_only_says_nothing_of_what_an_optimizer_holds() -> None:
    net = torch.nn.LayerNorm(5)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(10))], lr=0.1)
    assert flat_parts.held(named(net), optimizer.param_groups) == []


def test_moments_of_flat_parts_are_recorded_as_this_ranks_own_with_how_they_are_cut() -> None:
    net = model()
    cuts = []
    for parts in (2, 3):
        (found,) = state.capture(Watched(model=net, optimizer=zero(net, parts)), only=("optimizer_state",))
        assert found.scope == "rank"
        cuts.append(found.detail["layout"].text())
    assert cuts[0] != cuts[1]
    (whole,) = state.capture(
        Watched(model=net, optimizer=torch.optim.AdamW(net.parameters())), only=("optimizer_state",)
    )
    assert whole.scope == "replicated"


def test_what_deepspeeds_optimizer_says_of_its_parts_shows_who_is_not_trained() -> None:
    net = model()
    inner = zero(net)
    all_but_one = [p for n, p in net.named_parameters() if n != "2.weight"]
    told = SimpleNamespace(param_groups=inner.param_groups, bit16_groups=[all_but_one])
    assert flat_parts.tells(told)
    assert held.look(list(named(net).items()), told).not_held == ["2.weight"]
    stale = SimpleNamespace(param_groups=inner.param_groups, bit16_groups=[list(model().parameters())])
    assert len(held.look(list(named(net).items()), stale).stale) == 6
