"""The first value that is not finite, by module and by operator: nested modules, checkpointing, tuples, masks."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn
from torch.utils.checkpoint import checkpoint

from lineage.probes.deep import Deep
from lineage.replay.operations import Counting, Operations


class Log(nn.Module):
    """A tuple, whose second part has the log of zero where its input is below zero."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Any) -> tuple[Any, Any]:
        y = self.inner(x)
        return y, torch.log(torch.relu(y))


class Block(nn.Module):
    """Nests it, checkpointed or not, and hides the infinities again: their gradients are NaN all the same."""

    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        self.deep, self.reentrant = nn.ModuleDict({"log": Log()}), reentrant

    def forward(self, x: Any) -> Any:
        log = self.deep["log"]
        y, z = log(x) if self.reentrant is None else checkpoint(log, x, use_reentrant=self.reentrant)
        return x + y + torch.where(torch.isfinite(z), z, 0.0)


WAYS = pytest.mark.parametrize("reentrant", [None, False, True], ids=["plain", "checkpointed", "reentrant"])


def net(reentrant: bool | None) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), Block(reentrant), nn.Linear(8, 1))


@WAYS
def test_module_operator_and_node_of_the_backward_pass_are_named(reentrant: bool | None) -> None:
    """Also where the forward pass is made again within the backward pass."""
    model, x = net(reentrant), torch.randn(4, 8)
    with Deep(model) as deep, Operations(model) as operations:
        model(x).mean().backward()
    assert deep.first is not None
    assert (deep.first.phase, deep.first.name, deep.first.place) == ("forward", "1.deep.log", 1)
    forward, backward = operations.forward[0], operations.backward[0]
    assert (forward.operation, forward.module, forward.cls) == ("aten.log.default", "1.deep.log", "Log")
    assert forward.largest_before == pytest.approx(
        float(torch.relu(model[1].deep["log"].inner(model[0](x))).max())
    )
    assert (backward.node, backward.module) == ("LogBackward0", "1.deep.log")
    assert backward.broken == forward.broken


@WAYS
def test_gradients_of_inner_modules_are_seen_under_checkpointing_too(reentrant: bool | None) -> None:
    """The order of the backward pass: from the last module to the first, each once."""
    model = net(reentrant)
    with Deep(model) as deep:
        model(torch.randn(4, 8)).mean().backward()
    order = [s.name for s in deep.seen if s.phase == "backward"]
    assert order.index("2") < order.index("1.deep.log") < order.index("1.deep.log.inner") < order.index("0")
    assert order.count("1.deep.log.inner") == 1
    assert [s.name for s in deep.seen if s.phase == "forward"].count("1.deep.log.inner") == 1


class Masked(nn.Module):
    """Attention with a mask of minus infinities; a row that sees nothing is NaN."""

    def __init__(self, sees_something: bool) -> None:
        super().__init__()
        self.mask = torch.triu(torch.ones(4, 4, dtype=torch.bool), 1) | (not sees_something)

    def forward(self, q: Any) -> Any:
        bias = torch.zeros(4, 4).masked_fill(self.mask, -math.inf)
        return torch.softmax(q @ q.T + bias, -1) @ q


def test_a_mask_of_infinities_is_none_and_a_row_that_sees_nothing_is_one() -> None:
    """What is put there on purpose is not counted; the NaN that comes of it is."""
    q = torch.randn(4, 8, requires_grad=True)
    for sees_something, found in ((True, []), (False, ["aten._softmax.default"])):
        model = Masked(sees_something)
        with Operations(model) as operations:
            model(q).sum().backward()
        assert [f.operation for f in operations.forward] == found


def test_a_broken_gradient_of_ones_own_function_is_named_by_its_node() -> None:
    """A finite forward pass, one NaN in the backward pass."""

    class Trap(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * math.nan

    class Caught(nn.Module):
        def forward(self, x: Any) -> Any:
            return Trap.apply(x)

    model = nn.Sequential(nn.Linear(8, 8), Caught(), nn.Linear(8, 1))
    with Operations(model) as operations:
        model(torch.randn(4, 8)).mean().backward()
    assert operations.forward == []
    assert (operations.backward[0].node, operations.backward[0].module) == ("TrapBackward", "1")


def test_looking_changes_no_bit_and_leaves_no_hook() -> None:
    """Losses and gradients are those without it."""

    def gradients(look: bool) -> list[Any]:
        model = net(False)
        if look:
            with Deep(model), Operations(model):
                model(torch.ones(4, 8)).sum().backward()
        else:
            model(torch.ones(4, 8)).sum().backward()
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
        return [p.grad for p in model.parameters()]

    assert all(
        torch.equal(a.view(torch.int32), b.view(torch.int32))
        for a, b in zip(gradients(True), gradients(False), strict=True)
    )


def test_counting_tells_16_bit_results_and_fused_attention() -> None:
    """By these a change is told from a wish."""
    q = torch.randn(1, 2, 8, 16)
    with Counting() as counting:
        nn.functional.scaled_dot_product_attention(q, q, q)
        torch.ones(2, dtype=torch.bfloat16) * 2
    assert counting.census.fused_attention == ["aten._scaled_dot_product_flash_attention_for_cpu.default"]
    assert "aten.mul.Tensor" in counting.census.lower
