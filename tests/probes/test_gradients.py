"""Gradients are this rank's, before the reduction, and a NaN of one rank is seen by that rank alone."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn

from lineage.capture import digest
from lineage.capture.names import clean
from lineage.probes import columns
from lineage.probes.flat import Fsdp1, places_in_shard
from lineage.probes.fsdp import Fsdp, is_fsdp2, places
from lineage.probes.gradients import Gradients
from lineage.probes.read import Reader
from lineage.probes.readable import slices
from lineage.probes.sheet import Sheets

from . import ranks
from .models import batch, loss_of, net

BAD = "blocks.1.inner.weight"


def named(model: Any) -> list[tuple[str, Any]]:
    return [(clean(n), p) for n, p in model.named_parameters()]


def found(sheets: Sheets) -> dict[str, columns.Stats]:
    """name -> statistics, of what was read."""
    (sheet,) = sheets.all()
    rows = zip(sheet.keys, sheet.used().tolist(), strict=True)
    return {key.name: s for key, row in rows if (s := columns.stats(row)) is not None}


def test_each_gradient_is_read_as_it_was_before_clipping() -> None:
    model, sheets = net(), Sheets()
    gradients = Gradients(named(model), sheets, Reader())
    loss_of(model, batch(1)).backward()
    before = {n: p.grad.double().norm().item() for n, p in named(model)}
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    assert {n: s.norm for n, s in found(sheets).items()} == pytest.approx(before, rel=1e-6)
    assert gradients.order[0] == "head.weight", "the backward pass begins at the head"
    assert set(gradients.order) == set(before)
    assert set(gradients.dtypes.values()) == {"float32"}


def test_with_accumulation_the_accumulated_gradient_stands() -> None:
    model, sheets = net(), Sheets()
    Gradients(named(model), sheets, Reader())
    for micro in (1, 2, 3):
        loss_of(model, batch(micro)).backward()
    assert found(sheets)["head.weight"].norm == pytest.approx(
        model.head.weight.grad.double().norm().item(), rel=1e-6
    )


def test_frozen_and_unused_parameters_are_absent_and_a_tied_weight_is_read_once() -> None:
    model, sheets = net(tied=True), Sheets()
    model.blocks[0].inner.weight.requires_grad_(False)
    model.experts = nn.ModuleList([nn.Linear(13, 13), nn.Linear(13, 13)])
    gradients = Gradients(named(model), sheets, Reader())
    (loss_of(model, batch(1)) + model.experts[0](torch.ones(13)).sum()).backward()
    assert gradients.order.count("tokens.weight") == 1
    names = set(found(sheets))
    assert "blocks.0.inner.weight" not in names
    assert "experts.0.weight" in names
    assert "experts.1.weight" not in names, (
        "an expert without tokens has no gradient, which is not a zero one"
    )


def test_an_expert_that_got_tokens_without_effect_has_a_zero_gradient_which_is_not_absent() -> None:
    layer, sheets = nn.Linear(3, 3), Sheets()
    Gradients(named(layer), sheets, Reader())
    (layer(torch.ones(3)) * 0.0).sum().backward()
    assert found(sheets)["weight"].norm == 0.0


def test_a_sparse_gradient_is_said_and_the_rest_is_read() -> None:
    model, sheets = nn.Sequential(nn.Embedding(7, 4, sparse=True), nn.Linear(4, 4)), Sheets()
    gradients = Gradients(named(model), sheets, Reader())
    model(torch.tensor([1, 2])).sum().backward()
    assert gradients.not_read == {"0.weight": "its layout is sparse_coo"}
    assert set(found(sheets)) == {"1.weight", "1.bias"}


def test_what_changes_at_run_time_is_followed() -> None:
    model, sheets = net(), Sheets()
    gradients = Gradients(named(model), sheets, Reader())
    model.head = nn.Linear(13, 31)
    assert gradients.follow(named(model)) == ["head.weight", "head.bias"]
    assert gradients.follow(named(model)) == []
    loss_of(model, batch(1)).backward()
    assert {"head.weight", "head.bias"} <= set(found(sheets))


def test_what_becomes_trainable_or_is_made_by_the_first_forward_pass_is_read() -> None:
    """A layer that was frozen at the start, and a lazy one, which has no parameters before it was used."""
    model, sheets = nn.Sequential(nn.Linear(3, 3), nn.LazyLinear(2)), Sheets()
    model[0].requires_grad_(False)
    gradients = Gradients(named(model), sheets, Reader())
    model(torch.ones(1, 3)).sum().backward()
    model[0].requires_grad_(True)
    gradients.start()
    model(torch.ones(1, 3)).sum().backward()
    assert set(found(sheets)) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert gradients.not_read == {}


def test_after_remove_no_hook_is_left() -> None:
    model = net()
    gradients = Gradients(named(model), Sheets(), Reader())
    gradients.remove()
    loss_of(model, batch(1)).backward()
    assert gradients.order == []


def test_hooks_break_no_compiled_graph() -> None:
    """fullgraph, and the backend sees one graph, with the gradients read all the same."""
    model, sheets = net(), Sheets()
    Gradients(named(model), sheets, Reader())
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    loss_of(compiled, batch(1)).backward()
    assert len(graphs) == 1
    assert set(found(sheets)) == {n for n, _ in named(model)}


def _ddp(rank: int, world: int, bucket_view: bool) -> Any:
    model, sheets = net(), Sheets()
    ddp = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=bucket_view)
    gradients = Gradients(named(ddp), sheets, Reader(), model=ddp)
    out: dict[str, Any] = {}
    for step in (1, 2, 3):
        gradients.start()
        sheets.on(torch.device("cpu")).buffer.zero_()
        model.zero_grad()
        ids = batch(step, rank)
        handle = None
        if step == 3 and rank == 1:
            handle = model.blocks[1].inner.weight.register_hook(_one_nan)
        with torch.no_grad():
            alone = net()
            alone.load_state_dict(model.state_dict())
        loss_of(alone, ids).backward()
        loss_of(ddp, ids).backward()
        if handle is not None:
            handle.remove()
        seen = found(sheets)
        local = {n: p.grad.double().norm().item() for n, p in named(alone)}
        if step < 3:
            out[f"local {step}"] = all(math.isclose(seen[n].norm, v, rel_tol=1e-5) for n, v in local.items())
            reduced = {n: p.grad.double().norm().item() for n, p in named(ddp)}
            out[f"reduced {step}"] = all(
                math.isclose(seen[n].norm, v, rel_tol=1e-5) for n, v in reduced.items()
            )
        else:
            out["bad"] = [n for n, s in seen.items() if not s.finite]
            out["spread"] = [n for n, p in named(ddp) if not p.grad.isfinite().all()]
            out["read"] = len(seen)
    return out


def _one_nan(grad: Any) -> Any:
    grad = grad.clone()
    grad.view(-1)[5] = math.nan
    return grad


@pytest.mark.slow
@pytest.mark.parametrize(("world", "bucket_view"), [(2, False), (2, True), (3, False)])
def test_under_ddp_a_rank_reads_its_own_gradients_and_only_the_bad_rank_sees_its_nan(
    tmp_path: Path, world: int, bucket_view: bool
) -> None:
    results = ranks.run(functools.partial(_ddp, bucket_view=bucket_view), world, tmp_path)
    for rank, out in enumerate(results):
        assert out["local 1"], "the values are those of this rank's batch alone"
        assert out["local 2"], "also after DDP has rebuilt its buckets"
        assert not out["reduced 1"]
        assert out["bad"] == ([BAD] if rank == 1 else [])
        assert out["spread"] == [BAD], "after the reduction every rank has it: too late to tell"
        assert out["read"] == 14


def _no_sync(rank: int, world: int) -> Any:
    model, sheets = net(), Sheets()
    ddp = nn.parallel.DistributedDataParallel(model)
    gradients = Gradients(named(ddp), sheets, Reader(), model=ddp)
    with ddp.no_sync():
        loss_of(ddp, batch(1, rank)).backward()
    before = list(gradients.order)
    loss_of(ddp, batch(2, rank)).backward()
    alone = net()
    for micro in (1, 2):
        loss_of(alone, batch(micro, rank)).backward()
    expected = {n: p.grad.double().norm().item() for n, p in named(alone)}
    seen = {n: s.norm for n, s in found(sheets).items()}
    return {
        "before": before,
        "equal": all(math.isclose(seen[n], v, rel_tol=1e-5) for n, v in expected.items()),
    }


@pytest.mark.slow
def test_under_no_sync_the_whole_local_gradient_is_read_once(tmp_path: Path) -> None:
    assert ranks.run(_no_sync, 2, tmp_path) == [{"before": [], "equal": True}] * 2


def _fsdp(rank: int, world: int, way: str) -> Any:
    from torch.distributed.fsdp import FSDPModule, fully_shard

    model, alone = net(), net()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    if way == "unsharded parameter":
        FSDPModule.set_custom_reduce_scatter = property()  # as on torch before 2.9: the name is not there
    sheets = Sheets()
    gradients = Gradients([], sheets, Reader())
    fsdp = Fsdp(model, {id(p): n for n, p in named(model)}, gradients)
    out: dict[str, Any] = {"ways": fsdp.ways, "managed": len(fsdp.managed), "is": is_fsdp2(model)}
    ids = batch(1, rank)
    loss_of(model, ids).backward()
    loss_of(alone, ids).backward()
    local = {n: p.grad.double().norm().item() for n, p in named(alone)}
    seen = found(sheets)
    out["names"] = sorted(seen) == sorted(local)
    out["local"] = all(math.isclose(seen[n].norm, v, rel_tol=1e-5) for n, v in local.items())
    out["elements"] = all(seen[n].elements == p.numel() for n, p in named(alone))
    model.zero_grad()
    sheets.on(torch.device("cpu")).buffer.zero_()
    if (
        rank == 1
    ):  # the bad value is made in the block's output, so that it reaches parameters through autograd
        model.blocks[1].inner.register_full_backward_hook(lambda m, i, o: (i[0] * math.nan,))
    loss_of(model, batch(2, rank)).backward()
    out["bad"] = sorted(n for n, s in found(sheets).items() if not s.finite)
    out["not read"] = {**fsdp.not_read, **gradients.not_read}
    fsdp.remove()
    return out


@pytest.mark.slow
@pytest.mark.skipif(not ranks.FSDP2_ON_CPU, reason="FSDP2 does not run on a CPU with this torch")
@pytest.mark.parametrize("way", ["reduce-scatter", "unsharded parameter"])
@pytest.mark.parametrize("world", [2, 3])
def test_under_fsdp2_a_rank_reads_its_own_gradients_and_only_the_bad_rank_sees_its_nan(
    tmp_path: Path, way: str, world: int
) -> None:
    """Both ways; widths do not divide by the world size, so shards are padded."""
    for rank, out in enumerate(ranks.run(functools.partial(_fsdp, way=way), world, tmp_path)):
        assert out["ways"][way] == 3
        assert sum(out["ways"].values()) == 3
        assert (out["is"], out["managed"]) == (True, 14)
        assert out["names"]
        assert out["local"]
        assert out["elements"], "padding is not counted"
        assert out["not read"] == {}
        assert bool(out["bad"]) == (rank == 1), out["bad"]
        if rank == 1:
            assert "head.weight" not in out["bad"], "what came before the NaN in the backward pass is clean"
            assert "tokens.weight" in out["bad"]


def _fsdp1(rank: int, world: int, original: bool) -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel

    wrap = functools.partial(
        FullyShardedDataParallel, use_orig_params=original, device_id=torch.device("cpu")
    )
    model, alone = net(), net()
    for i, block in enumerate(model.blocks):
        model.blocks[i] = wrap(block)
    model, sheets = wrap(model), Sheets()
    gradients = Gradients([], sheets, Reader())
    flat = Fsdp1(model, gradients)
    loss_of(model, batch(1, rank)).backward()
    loss_of(alone, batch(1, rank)).backward()
    local = {n: (p.grad.double().norm().item(), p.numel()) for n, p in named(alone)}
    seen = {n: (s.norm, s.elements) for n, s in found(sheets).items()}
    digests = []
    for module in model.modules():
        if getattr(module, "_handle", None) is not None and len(module._handle.flat_param._fqns) == 2:
            parameter = module._handle.flat_param
            views, starts = places_in_shard(parameter)
            held = slices(parameter.detach(), views)
            for name in ("tokens.weight", "head.weight"):
                out = torch.zeros(1, columns.WIDTH, dtype=torch.float64)
                piece = [held[name]] if name in held else [None]
                Reader().read(piece, out, [0], digest=True, starts=[starts.get(name, 0)])
                digests.append(out.view(torch.int64)[0, 7:9].tolist())
    equal = all(math.isclose(seen[n][0], v, rel_tol=1e-5) and seen[n][1] == c for n, (v, c) in local.items())
    return {
        "names": sorted(seen) == sorted(local),
        "equal": equal,
        "not read": flat.not_read,
        "digests": digests,
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("world", "original"), [(2, False), (3, True)])
def test_flat_parameters_are_read_by_parameter_before_the_reduction_and_their_shards_digests_add_up(
    tmp_path: Path, world: int, original: bool
) -> None:
    results = ranks.run(functools.partial(_fsdp1, original=original), world, tmp_path)
    for out in results:
        assert out["names"]
        assert out["equal"], "the values and sizes are those of this rank's batch alone, padding left out"
        assert out["not read"] == {}
    model = net()
    for i, weight in enumerate((model.tokens.weight, model.head.weight)):
        total = [sum(out["digests"][i][lane] for out in results) for lane in (0, 1)]
        whole = digest.lanes(weight).tolist()
        assert [(t - w) % 2**64 for t, w in zip(total, whole, strict=True)] == [0, 0]


def test_a_flat_buffer_with_a_gradient_missing_is_read_as_a_group() -> None:
    flat = torch.arange(12.0)
    assert [n for n, _ in places(flat, 2, [("a", (3, 1)), ("b", (4, 2))], "a")] == ["a", "b"]
    pieces = dict(places(flat, 2, [("a", (3, 1)), ("b", (4, 2))], "a"))
    assert [p.tolist() for p in pieces["a"]] == [[0.0, 1.0], [6.0]], (
        "the padding of a's second chunk is left out"
    )
    assert [p.tolist() for p in pieces["b"]] == [[2.0, 3.0, 4.0, 5.0], [8.0, 9.0, 10.0, 11.0]]
    ((name, whole),) = places(flat, 2, [("a", (3, 1)), ("b", (4, 2)), ("c", (5, 5))], "a")
    assert (name, whole.numel()) == ("group:a", 12)
