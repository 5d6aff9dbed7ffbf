"""What the optimizer holds, and the update it really made."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn

from lineage.probes import held
from lineage.probes.probes import Probes, Settings
from lineage.probes.sheet import Key

from .models import batch, loss_of, net

EACH = Settings(state_every=1)

OPTIMIZERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1),
    "AdamW without decay": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.0),
    "AdamW fused": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1, fused=True),
    "AdamW amsgrad": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1, amsgrad=True),
    "AdamW maximize": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.0, maximize=True),
    "AdamW, rate as a tensor": lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-2), foreach=False),
    "Adam with L2": lambda p: torch.optim.Adam(p, lr=1e-2, weight_decay=0.1, betas=(0.8, 0.95)),
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-2, weight_decay=0.1),
    "SGD maximize": lambda p: torch.optim.SGD(p, lr=1e-2, weight_decay=0.1, maximize=True),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, weight_decay=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_update_is_the_one_that_was_made(name: str) -> None:
    """Against the difference of weights before and after, in float64, at every step."""
    model = net().double() if name != "AdamW fused" else net()
    optimizer = OPTIMIZERS[name](model.parameters())
    probes = Probes(model=model, optimizer=optimizer, settings=EACH)
    for step in (1, 2, 3, 4):
        probes.start()
        optimizer.zero_grad()
        loss_of(model, batch(step)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        before = {n: p.detach().double().clone() for n, p in model.named_parameters()}
        optimizer.step()
        probes.finish(step)
        (frame,) = probes.arrived()
        assert frame.facts.not_read == {}
        for n, p in model.named_parameters():
            real = (p.detach().double() - before[n]).norm().item()
            ratio, way = frame.update_ratio(n) or (0.0, "")
            assert way.startswith("exact")
            assert ratio == pytest.approx(real / p.detach().double().norm().item(), rel=2e-4), n
            assert frame.found[Key("weight", n)].norm == pytest.approx(p.detach().norm().item(), rel=1e-5)
    probes.remove()
    assert probes.trouble == {}


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), "Nesterov"),
        (lambda p: torch.optim.RMSprop(p, lr=0.1), "RMSprop: proxy"),
        (lambda p: type("Mine", (torch.optim.AdamW,), {})(p, lr=0.1), "Mine: proxy"),
    ],
)
def test_where_no_formula_is_known_the_ratio_is_a_proxy_and_says_so(make: Any, reason: str) -> None:
    model = net()
    optimizer = make(model.parameters())
    probes = Probes(model=model, optimizer=optimizer, settings=EACH)
    probes.start()
    loss_of(model, batch(1)).backward()
    g = model.head.weight.grad.norm().item()
    optimizer.step()
    probes.finish(1)
    (frame,) = probes.arrived()
    assert reason in frame.facts.not_read[Key("update", "head.weight")]
    ratio, way = frame.update_ratio("head.weight") or (0.0, "")
    assert way == "proxy: lr x gradient norm"
    assert ratio == pytest.approx(0.1 * g / model.head.weight.detach().norm().item(), rel=1e-5)
    probes.remove()


def test_moments_are_read_and_a_broken_or_negative_one_is_named() -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    probes = Probes(model=model, optimizer=optimizer, settings=EACH)
    loss_of(model, batch(1)).backward()
    optimizer.step()
    optimizer.state[model.head.weight]["exp_avg_sq"][3, 3] = -1e-3
    optimizer.state[model.tokens.weight]["exp_avg"][0, 0] = math.inf
    probes.finish(1)
    (frame,) = probes.arrived()
    assert frame.negative_moments() == ["head.weight"]
    assert set(frame.non_finite()) == {
        Key("moment1", "tokens.weight"),
        Key("update", "head.weight"),
        Key("update", "tokens.weight"),
    }
    second = optimizer.state[model.blocks[0].inner.weight]["exp_avg_sq"].double().norm().item()
    assert frame.found[Key("moment2", "blocks.0.inner.weight")].norm == pytest.approx(second, rel=1e-6)
    assert frame.facts.counters == (1.0, 1.0)
    probes.remove()


def test_step_counters_that_part_are_shown_and_what_was_not_updated_has_no_update() -> None:
    """An expert without tokens has no gradient: its counter stays behind, and there is no update to report."""
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})
    optimizer = torch.optim.AdamW(model.parameters())
    probes = Probes(model=model, optimizer=optimizer, settings=EACH)
    frames = []
    for step, used in enumerate(("ab", "a", "ab"), start=1):
        probes.start()
        optimizer.zero_grad()
        sum(model[k](torch.ones(4)).sum() for k in used).backward()
        optimizer.step()
        probes.finish(step)
        frames += probes.arrived()
    assert [f.facts.counters for f in frames] == [(1.0, 1.0), (1.0, 2.0), (2.0, 3.0)]
    assert frames[1].no_gradient(["a.weight", "b.weight"]) == ["b.weight"]
    assert frames[1].facts.not_read[Key("update", "b.weight")] == "not updated in this step"
    assert Key("update", "b.weight") not in frames[1].found
    assert Key("update", "b.weight") in frames[2].found
    probes.remove()


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("every", [1, 3])
def test_a_step_that_leaves_a_parameter_alone_shows_no_update_of_it(name: str, every: int) -> None:
    """A step that the loop skips, and one in which an expert got no tokens, however long ago the last look was."""
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})
    optimizer = OPTIMIZERS[name](model.parameters())
    probes = Probes(model=model, optimizer=optimizer, settings=Settings(state_every=every))
    updated = {}
    for step in range(1, 8):
        probes.start()
        optimizer.zero_grad()
        used = "a" if step == 7 else "ab"
        sum(model[k](torch.ones(4)).sum() for k in used).backward()
        if step != 4:
            optimizer.step()
        probes.finish(step)
        (frame,) = probes.arrived()
        updated[step] = {n for n, _ in frame.of("update")}
    probes.remove()
    assert updated[1] == {"a.weight", "a.bias", "b.weight", "b.bias"}
    assert updated[4] == set()
    assert updated[7] == {"a.weight", "a.bias"}


def test_parameters_that_the_optimizer_does_not_hold_or_holds_wrongly_are_named() -> None:
    model = net()
    model.blocks[0].inner.weight.requires_grad_(False)
    dead = nn.Parameter(torch.ones(3, 4))
    head = model.head.weight
    rest = [p for n, p in model.named_parameters() if p is not head and n != "tokens.weight"]
    optimizer = torch.optim.AdamW([{"params": [*rest, dead]}], weight_decay=0.1)
    optimizer.param_groups.append({**optimizer.param_groups[0], "params": [rest[1]], "weight_decay": 0.0})
    found = held.look(list(model.named_parameters()), optimizer)
    assert found.not_held == ["tokens.weight", "head.weight"]
    assert found.stale == [f"group 0, place {len(rest)}, [3, 4]"]
    assert found.twice == ["blocks.0.norm.bias"]
    assert found.frozen == ["blocks.0.inner.weight"]
    assert "blocks.0.norm.weight" in found.decayed
    assert "blocks.0.outer.bias" in found.decayed
    assert "blocks.0.outer.weight" not in found.decayed


def test_a_usual_optimizer_gives_no_finding() -> None:
    model = net(tied=True)
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    assert held.look(list(model.named_parameters()), torch.optim.AdamW(groups)) == held.Held()


def test_effective_values_are_those_of_the_step() -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.5, 1.0, 4)
    probes = Probes(model=model, optimizer=optimizer, settings=EACH)
    rates, rate = [], 0.0
    for step in (1, 2, 3):
        probes.start()
        loss_of(model, batch(step)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-6 if step < 3 else 1e6)
        optimizer.step()
        probes.finish(step)
        schedule.step()
        (frame,) = probes.arrived()
        rates.append(frame.facts.groups[0]["lr"])
        rate = frame.clip_rate or 0.0
        assert frame.facts.clip_threshold == (1e-6 if step < 3 else 1e6)
        assert frame.scalars["clip_norm"] > 0
    assert rates == [0.5, 0.625, 0.75]
    assert frame.facts.groups[0]["betas"] == [0.9, 0.999]
    assert frame.facts.groups[0]["weight_decay"] == 0.1
    assert rate == pytest.approx(2 / 3)
    probes.remove()


def test_the_loss_scale_its_search_and_skipped_steps_are_told_and_a_search_is_no_alarm() -> None:
    """A scale at which gradients overflow, found by halving: infinities are tagged, updates are held back."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1000)
    probes = Probes(model=model, optimizer=optimizer, scaler=scaler, settings=EACH)
    frames = []
    for step in range(1, 12):
        probes.start()
        optimizer.zero_grad()
        scaler.scale(loss_of(model, batch(step)) * 300).backward()
        local = model.head.weight.grad.double().norm().item()
        scaler.unscale_(optimizer)
        norm = model.head.weight.grad.double().norm().item()
        scaler.step(optimizer)
        scaler.update()
        probes.finish(step)
        (frame,) = probes.arrived()
        frames.append((frame, local, norm))
    skipped = [f.skipped for f, _, _ in frames]
    assert skipped[0] is True
    assert skipped[-1] is False
    assert skipped == sorted(skipped, reverse=True)
    for frame, local, norm in frames:
        assert frame.facts.scaled
        assert frame.searching == frame.skipped
        if frame.skipped:
            assert any(not s.finite for _, s in frame.of("gradient"))
            assert frame.non_finite() == []
            assert not list(frame.of("update"))
        else:
            seen = frame.found[Key("gradient", "head.weight")].norm
            assert seen == pytest.approx(local, rel=1e-5), "read while scaled"
            assert frame.gradient_norm("head.weight") == pytest.approx(norm, rel=1e-5), (
                "and told without the scale"
            )
            assert list(frame.of("update"))
    probes.remove()


def test_a_search_that_does_not_end_is_an_alarm() -> None:
    from lineage.probes.columns import Stats
    from lineage.probes.frame import SEARCH, Facts, Frame, Memory

    memory = Memory()
    broken = Stats(elements=1, sumsq=0.0, largest=0.0, lowest=0.0, n_nan=1, n_posinf=0, n_neginf=0)
    heard = []
    for step in range(SEARCH + 2):
        frame = Frame(step, Facts(scaled=True), {Key("gradient", "w"): broken}, {})
        heard.append(bool(memory.add(frame).non_finite()))
    assert heard == [False] * SEARCH + [True, True]
