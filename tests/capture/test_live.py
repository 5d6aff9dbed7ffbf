"""What is read off live objects: digests, fingerprints, clipping, schedules, and that reading changes nothing."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.utils import clip_grad_norm_

from lineage.capture import batch, clip, digest, digest_many, schedule, state
from lineage.capture.names import clean
from lineage.capture.watched import Watched

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1,), (7, 3), (4096,), (3, 4097), (70_000,)], ids=str)
def test_any_changed_element_changes_the_digest(dtype: Any, shape: tuple[int, ...]) -> None:
    """A single changed word is found with certainty, wherever it stands."""
    one = (torch.rand(shape, generator=torch.Generator().manual_seed(1)) * 100).to(dtype)
    before = digest.tensor_digest(one)
    for at in (0, one.numel() // 2, one.numel() - 1):
        other = one.clone()
        bits = other.view(-1).view(torch.uint8)
        bits[at * one.element_size()] ^= 1
        assert digest.tensor_digest(other) != before


def test_the_digest_sees_what_sums_and_xor_do_not() -> None:
    """Swaps, equal pairs, signs of zero, payloads of NaN, dtype and shape."""
    t = torch.arange(10_000, dtype=torch.float32)
    swapped = t.clone()
    swapped[[3, 9000]] = swapped[[9000, 3]]
    zero = torch.zeros(1024)
    different = [t, swapped, zero, -zero, torch.ones(1024), zero.view(32, 32), zero.int(), zero.double()]
    nan = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    different += [nan[:1], nan[1:]]
    assert len({digest.tensor_digest(d) for d in different}) == len(different)


def test_strides_do_not_matter() -> None:
    """The digest is of the logical tensor."""
    t = torch.arange(12, dtype=torch.float32).view(3, 4)
    assert digest.tensor_digest(t.t().contiguous().t()) == digest.tensor_digest(t)


def multiplier(n: int) -> int:
    """splitmix64, made odd, in plain Python."""
    x = (n + 1) * 0x9E3779B97F4A7C15 % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return (x ^ (x >> 31)) | 1


@pytest.mark.parametrize("count", [1, 5, 4095, 4096, 9000])
def test_the_lanes_are_what_the_format_says(count: int) -> None:
    """Word i counts table[i % 4096] * block[i // 4096], summed modulo 2^64: the value is part of the format."""
    t = torch.randint(-(2**31), 2**31 - 1, (count,), generator=torch.Generator().manual_seed(2)).int()
    words = [w % 2**32 for w in t.tolist()]
    want = [
        sum(
            w * multiplier((1 << (40 + lane)) + i % 4096) * multiplier((lane << 50) + i // 4096)
            for i, w in enumerate(words)
        )
        % 2**64
        for lane in (0, 1)
    ]
    assert [v % 2**64 for v in digest.lanes(t).tolist()] == want


def test_many_tensors_at_once_have_the_digests_that_each_has_alone() -> None:
    """Small ones share passes, large ones do not, and none is changed by its neighbours."""
    sizes = [1, 4095, 4096, 4097, 0, 70_000, 3, *range(100, 4100, 333), 65_536, 65_537]
    kinds = [
        torch.float32,
        torch.bfloat16,
        torch.int64,
        torch.bool,
        torch.uint8,
        torch.int16,
        torch.complex64,
    ]
    g = torch.Generator().manual_seed(4)
    tensors = [
        torch.randint(-9, 9, (n,), generator=g).to(kinds[i % len(kinds)])[:: 1 + i % 2]
        for i, n in enumerate(sizes * 7)
    ]
    together = digest_many.lanes(tensors)
    assert together.tolist() == [digest.lanes(t).tolist() for t in tensors]


@dataclass
class Packed:
    ids: Any
    note: str = "x"


def test_a_batch_is_the_same_on_any_integer_type_and_in_any_key_order() -> None:
    """int32 or int64, dict order, dataclass or dict: content decides."""
    ids = torch.arange(20).view(4, 5)
    one = batch.fingerprint({"ids": ids, "labels": ids + 1})
    same = batch.fingerprint({"labels": (ids + 1).int(), "ids": ids.short()})
    assert one.digest() == same.digest()
    assert (one.samples, one.tokens) == (4, 20)
    other = [
        {"ids": ids, "labels": ids},
        {"ids": ids.flip(0), "labels": ids + 1},
        {"ids": ids, "labels": (ids + 1).float()},
        (ids, ids + 1),
        Packed(ids),
        [{"ids": ids}, {"labels": ids + 1}],
        None,
        {},
    ]
    digests = [batch.fingerprint(b).digest() for b in other]
    assert len({one.digest(), *digests}) == 1 + len(digests)


def test_clipping_is_seen_whoever_imported_it_and_the_result_is_untouched() -> None:
    """`from torch.nn.utils import clip_grad_norm_` before the watch is seen too; afterwards all is as before."""
    from torch.nn.utils import clip_grad

    before = clip_grad._clip_grads_with_norm_
    p = torch.nn.Parameter(torch.ones(4))
    p.grad = torch.full((4,), 3.0)
    seen: list[tuple[float, float]] = []

    def angry(threshold: float, norm: Any) -> None:
        raise RuntimeError

    ends = [clip.watch(lambda t, n: seen.append((t, float(n)))), clip.watch(angry)]
    norm = clip_grad_norm_([p], 1.0)
    assert float(norm) == 6.0
    assert seen == [(1.0, 6.0)]
    assert torch.allclose(p.grad.norm(), torch.tensor(1.0), atol=1e-5)
    for end in ends:
        end()
    clip_grad_norm_([p], 0.5)
    assert len(seen) == 1
    assert clip_grad._clip_grads_with_norm_ is before


def test_clipping_by_value_is_seen_whoever_imported_it_and_the_result_is_untouched() -> None:
    """A name imported before the watch is seen too, a failing sink is swallowed, and all is undone afterwards."""
    from torch.nn.utils import clip_grad, clip_grad_value_

    assert clip.sees_values()
    held = clip_grad.clip_grad_value_
    code_before = [c.cell_contents for c in held.__closure__]
    p = torch.nn.Parameter(torch.ones(4))
    p.grad = torch.tensor([3.0, -3.0, 0.1, float("inf")])
    norms: list[float] = []
    values: list[float] = []

    def angry(largest: float) -> None:
        raise RuntimeError

    ends = [clip.watch(lambda t, n: norms.append(t), values.append), clip.watch(lambda t, n: None, angry)]
    assert clip_grad_value_(iter([p]), clip_value=0.5) is None
    torch.nn.utils.clip_grad_value_(p, 0.25, foreach=False)
    assert (values, norms) == ([0.5, 0.25], [])
    assert p.grad.tolist() == [0.25, -0.25, pytest.approx(0.1), 0.25]
    with pytest.raises(TypeError):
        clip_grad_value_([p])
    assert clip_grad.clip_grad_value_ is held is clip_grad_value_
    ends[0]()
    clip_grad_value_(p, 1.0)
    ends[1]()
    clip_grad_value_(p, 1.0)
    assert values == [0.5, 0.25]
    assert [c.cell_contents for c in held.__closure__] == code_before


def test_predicting_a_schedule_leaves_it_as_it_was() -> None:
    """The prediction equals what the live scheduler then does, and moves nothing."""
    p = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW([p], lr=0.1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=60)
    before = copy.deepcopy((scheduler.state_dict(), optimizer.state_dict()))
    ahead = schedule.ahead(scheduler, 0, upto=50)
    assert repr((scheduler.state_dict(), optimizer.state_dict())) == repr(before)
    for step in range(1, 51):
        optimizer.step()
        scheduler.step()
        if step in ahead:
            assert ahead[step] == [pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)]


def test_a_schedule_of_unknown_make_is_not_stepped() -> None:
    """Somebody's own class could write files when it is stepped: it is described, not predicted."""

    class Mine(torch.optim.lr_scheduler.LambdaLR):
        def step(self, *a: Any) -> None:
            raise AssertionError("stepped")

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    scheduler = Mine.__new__(Mine)
    scheduler.optimizer = optimizer
    assert schedule.ahead(scheduler, 0) == {}


def test_digesting_the_state_draws_no_random_number_and_changes_no_tensor() -> None:
    """Reading is read-only."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    before = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    found = {c.component: c for c in state.capture(Watched(model=model, optimizer=optimizer))}
    assert all(torch.equal(model.state_dict()[k], v) for k, v in before[0].items())
    assert torch.equal(torch.get_rng_state(), before[1])
    assert {"weights", "buffers", "optimizer_state", "optimizer_step", "rng"} <= set(found)
    assert found["optimizer_step"].detail["step"].plain() == 1


def test_wrapper_prefixes_are_removed_wherever_they_stand() -> None:
    """A name is the same under DDP, FSDP, compile and checkpointing."""
    assert clean("module._orig_mod.blocks.0._checkpoint_wrapped_module.w") == "blocks.0.w"
    assert clean("_fsdp_wrapped_module.module.head.weight") == "head.weight"
    assert clean("submodule.weight") == "submodule.weight"
