"""Activations by block: whole compiled graphs, once per forward, and the deep mode's first non-finite value."""

from __future__ import annotations

import copy
import io
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn
from torch.utils.checkpoint import checkpoint

from lineage.probes import activations, columns
from lineage.probes.deep import Deep
from lineage.probes.sheet import Sheets

from .models import Net, batch, loss_of, net


def attached(model: Any) -> tuple[Sheets, activations.Activations]:
    sheets = Sheets()
    found = activations.Activations(activations.blocks(model), torch.device("cpu"), sheets)
    assert found.not_read == {}
    return sheets, found


def rows(sheets: Sheets) -> dict[str, columns.Stats | None]:
    (sheet,) = sheets.all()
    return {k.name: columns.stats(r) for k, r in zip(sheet.keys, sheet.used().tolist(), strict=True)}


def norms(model: Any, ids: Any) -> dict[str, float]:
    """Norms of the blocks' outputs by hand."""
    x, found = model.tokens(ids), {}
    for i, block in enumerate(model.blocks):
        x = block(x)
        found[f"blocks.{i}"] = x.detach().double().norm().item()
    return found


def test_blocks_are_the_members_of_lists_of_one_class() -> None:
    assert [n for n, _ in activations.blocks(net(blocks=3))] == ["blocks.0", "blocks.1", "blocks.2"]
    assert [n for n, _ in activations.blocks(nn.Sequential(nn.Linear(1, 1), nn.ReLU()))] == ["0", "1"]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_no_graph_breaks_under_fullgraph_and_the_norms_are_right(backend: str) -> None:
    """Training, with the backward pass; the compiled float32 losses and gradients are those without the hooks."""
    results = []
    for hooked in (True, False):
        # a compiled graph may serve another instance of the class, and does not ask whether that one has hooks
        torch._dynamo.reset()
        model, plain = net(), net()
        sheets = attached(model)[0] if hooked else None
        compiled = torch.compile(model, fullgraph=True, backend=backend)
        losses = []
        for step in (1, 2):
            ids = batch(step)
            loss = loss_of(compiled, ids)
            loss.backward()
            losses.append(loss.item())
            if sheets is not None:
                found = {n: s.norm for n, s in rows(sheets).items() if s}
                assert found == pytest.approx(norms(plain, ids[:, :-1]), rel=1e-5)
        results.append((losses, [p.grad for p in model.parameters()]))
    (on, grads_on), (off, grads_off) = results
    assert on == off
    assert all(torch.equal(a, b) for a, b in zip(grads_on, grads_off, strict=True))


class Checkpointed(Net):
    reentrant = False

    def forward(self, ids: Any) -> Any:
        x = self.tokens(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x)


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_under_checkpointing_is_not_read_again(
    reentrant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    model = Checkpointed()
    model.reentrant = reentrant
    sheets, _ = attached(model)
    reads = []
    read = activations._reader.read
    monkeypatch.setattr(activations._reader, "read", lambda x, s, r: reads.append(r[0]) or read(x, s, r))
    loss_of(model, batch(1)).backward()
    assert reads == [0, 1], "each block once, and not again in the backward pass"
    assert all(s is not None for s in rows(sheets).values())


def test_checkpointing_in_a_compiled_graph_is_read_once_too(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    torch.manual_seed(1)
    model = Checkpointed()
    sheets, _ = attached(model)
    reads = []
    read = activations._reader.read
    monkeypatch.setattr(activations._reader, "read", lambda x, s, r: reads.append(r[0]) or read(x, s, r))
    loss_of(torch.compile(model, fullgraph=True, backend="aot_eager"), batch(1)).backward()
    assert sorted(reads) == [0, 1]
    assert all(s is not None for s in rows(sheets).values())


def test_a_block_that_did_not_run_is_absent() -> None:
    model = net()
    sheets, _ = attached(model)
    model.blocks[1](torch.ones(2, 13))
    assert {n for n, s in rows(sheets).items() if s} == {"blocks.1"}


def test_a_model_with_hooks_can_be_saved_whole_and_its_copies_write_no_rows() -> None:
    """Nothing of ours is in the file; a copy, as for weight averaging, is another model."""
    model = net()
    sheets, _ = attached(model)
    copied = copy.deepcopy(model)
    kept = io.BytesIO()
    torch.save(model, kept)
    assert b"lineage" not in kept.getvalue()
    kept.seek(0)
    loaded = torch.load(kept, weights_only=False)
    ids = batch(1)[:, :-1]
    model(ids)
    before = rows(sheets)
    assert None not in before.values()
    for other in (copied, loaded):
        other.tokens.weight.data.fill_(math.nan)
        other(ids)
        torch.compile(other, fullgraph=True, backend="eager")(ids)
        assert rows(sheets) == before


def test_the_deep_mode_names_the_first_non_finite_output_and_its_largest_finite_magnitude() -> None:
    model = net()
    with torch.no_grad():
        model.blocks[1].inner.weight[7, 3] = math.inf
    with Deep(model) as deep:
        loss_of(model, batch(1)).backward()
    assert deep.first is not None
    assert (deep.first.phase, deep.first.name, deep.first.module) == ("forward", "blocks.1.inner", "Linear")
    clean = [s for s in deep.seen if s.order < deep.first.order]
    assert all(s.stats.finite for s in clean)
    assert [s.name for s in clean if s.phase == "forward"][-1] == "blocks.1.norm"
    assert 0 < deep.first.stats.largest < 100
    assert deep.first.stats.n_posinf + deep.first.stats.n_neginf > 0


class Trap(torch.autograd.Function):
    """Finite forward, one NaN in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        grad = grad.clone()
        grad.view(-1)[0] = math.nan
        return grad


def test_the_deep_mode_follows_the_backward_pass() -> None:
    """The NaN is made between norm and inner of block 0: inner's gradients are whole, the norm's is the first bad."""
    model = net()
    block = model.blocks[0]
    block.forward = lambda x: x + block.outer(block.inner(Trap.apply(block.norm(x))))
    with Deep(model) as deep:
        loss_of(model, batch(1)).backward()
    assert deep.first is not None
    assert (deep.first.phase, deep.first.name) == ("backward", "blocks.0.norm")
    bad = [s.name for s in deep.seen if s.phase == "gradient" and not s.stats.finite]
    assert set(bad) == {"blocks.0.norm.weight", "blocks.0.norm.bias", "tokens.weight"}


def test_the_deep_mode_sees_a_checkpointed_block_once_and_leaves_no_hook() -> None:
    torch.manual_seed(1)
    model = Checkpointed()
    with Deep(model) as deep:
        loss_of(model, batch(1)).backward()
    forward = [s.name for s in deep.seen if s.phase == "forward"]
    assert len(forward) == len(set(forward))
    assert deep.first is None
    count = len(deep.seen)
    loss_of(model, batch(1)).backward()
    assert len(deep.seen) == count
