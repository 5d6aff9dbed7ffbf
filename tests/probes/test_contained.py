"""What fails in a probe is said, and training and the other probes go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn

from lineage.probes import host, small
from lineage.probes.columns import WIDTH
from lineage.probes.gradients import Gradients
from lineage.probes.probes import Probes, Settings
from lineage.probes.read import Reader
from lineage.probes.sheet import Key, Sheets

from . import ranks
from .models import batch, loss_of, net


def test_running_out_of_memory_in_one_tensor_leaves_the_others_and_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    probes = Probes(model=model, optimizer=optimizer)
    read, room = host.read, small.fits
    monkeypatch.setattr(small, "fits", lambda g: g.numel() != model.head.weight.numel() and room(g))

    def once(flats: Any, **options: Any) -> Any:
        if flats[0].numel() == model.head.weight.numel():
            raise torch.OutOfMemoryError("no room")
        return read(flats, **options)

    monkeypatch.setattr(host, "read", once)
    probes.start()
    loss_of(model, batch(1)).backward()
    optimizer.step()
    probes.finish(1)
    (frame,) = probes.arrived()
    reason = "OutOfMemoryError while reading"
    assert frame.facts.not_read[Key("gradient", "head.weight")] == reason
    assert Key("gradient", "head.weight") not in frame.found
    assert Key("gradient", "blocks.0.inner.weight") in frame.found
    assert Key("weight", "head.weight") in frame.found
    probes.remove()


def test_a_tensor_that_can_be_read_again_is_no_longer_called_unread() -> None:
    model, sheets = nn.Sequential(nn.Embedding(7, 4, sparse=True)), Sheets()
    gradients = Gradients(list(model.named_parameters()), sheets, Reader())
    model(torch.tensor([1])).sum().backward()
    assert set(gradients.not_read) == {"0.weight"}
    model[0].sparse = False
    model.zero_grad()
    model(torch.tensor([1])).sum().backward()
    assert gradients.not_read == {}


def test_modules_that_change_at_run_time_are_followed() -> None:
    """A new head after the second step, in model and optimizer: read from the next look on, stale ones named."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    probes = Probes(model=model, optimizer=optimizer, settings=Settings(follow_every=2))
    names = []
    for step in range(1, 6):
        probes.start()
        optimizer.zero_grad()
        loss_of(model, batch(step)).backward()
        optimizer.step()
        if step == 2:
            model.head = nn.Linear(13, 31)
        probes.finish(step)
        (frame,) = probes.arrived()
        names.append({n for n, _ in frame.of("gradient")})
    assert "head.bias" not in names[1]
    assert "head.bias" in names[2]
    assert probes.held is not None
    assert probes.held.not_held == ["head.weight", "head.bias"]
    assert probes.held.stale == ["group 0, place 13, [31, 13]"]
    probes.remove()


def test_what_is_unfrozen_and_not_held_or_held_later_is_found() -> None:
    """The optimizer was made with what was trainable then: an unfrozen layer never learns, until a group is added."""
    model = net()
    model.head.requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    probes = Probes(model=model, optimizer=optimizer, settings=Settings(follow_every=1))
    assert probes.held is not None
    assert probes.held.not_held == []
    model.head.requires_grad_(True)
    probes.finish(1)
    assert probes.held.not_held == ["head.weight"]
    optimizer.add_param_group({"params": list(model.head.parameters())})
    probes.finish(2)
    assert probes.held.not_held == []
    probes.remove()


def test_an_optimizer_of_another_kind_is_read_as_far_as_it_goes() -> None:
    class Odd(torch.optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {"lr": 0.1})

        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["exp_avg"] = torch.ones(2)  # no parameter has this shape
                    p.data.add_(p.grad, alpha=-group["lr"])

    model = net()
    optimizer = Odd(model.parameters())
    probes = Probes(model=model, optimizer=optimizer)
    probes.start()
    loss_of(model, batch(1)).backward()
    optimizer.step()
    probes.finish(1)
    (frame,) = probes.arrived()
    assert "its shape [2] is not the parameter's" in frame.facts.not_read[Key("moment1", "head.weight")]
    assert frame.found[Key("weight", "head.weight")].finite
    assert frame.facts.groups == ({"lr": 0.1},)
    probes.remove()


def test_without_model_or_optimizer_there_is_nothing_to_read_and_no_trouble() -> None:
    probes = Probes()
    probes.start()
    probes.finish(1)
    (frame,) = probes.arrived()
    assert frame.found == {}
    assert probes.trouble == {}
    probes.remove()


def test_a_probe_that_breaks_does_not_reach_the_training_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    probes = Probes(model=model, optimizer=optimizer)

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(probes.reader, "read", broken)
    monkeypatch.setattr(small, "read", broken)
    monkeypatch.setattr(probes._optimizer, "read", broken)
    probes.start()
    loss_of(model, batch(1)).backward()
    optimizer.step()
    probes.finish(1)
    assert probes.trouble == {"optimizer": "RuntimeError while reading"}
    (frame,) = probes.arrived()
    assert len(frame.facts.order) == 14, "what can still be known is told"
    assert probes.gradients is not None
    assert set(probes.gradients.not_read.values()) == {"RuntimeError while reading"}
    probes.remove()


def test_gradients_read_together_at_the_end_of_the_backward_pass_are_the_same() -> None:
    """The way that is taken on CUDA, driven here on the CPU."""
    rows = []
    for together in (False, True):
        model, sheets = net(), Sheets()
        gradients = Gradients(list(model.named_parameters()), sheets, Reader(), together=together)
        loss_of(model, batch(1)).backward()
        (sheet,) = sheets.all()
        rows.append(dict(zip(sheet.keys, sheet.used().tolist(), strict=True)))
        assert len(gradients.order) == 14
    assert rows[0] == rows[1]


def test_a_backward_pass_that_raises_leaves_nothing_for_the_next_step() -> None:
    model, sheets = net(), Sheets()
    gradients = Gradients(list(model.named_parameters()), sheets, Reader(), together=True)

    def stop(grad: Any) -> None:
        raise ValueError("the training code's own")

    handle = model.tokens.weight.register_hook(stop)
    with pytest.raises(ValueError, match="own"):
        loss_of(model, batch(1)).backward()
    handle.remove()
    gradients.start()
    model.zero_grad()
    loss_of(model, batch(2)).backward()
    assert len(gradients.order) == 14
    (sheet,) = sheets.all()
    assert len(sheet.keys) == 14


@pytest.mark.parametrize("together", [None, True])
def test_a_backward_pass_that_raised_and_is_tried_again_in_the_same_step_is_read(
    together: bool | None,
) -> None:
    """As a loop does that runs out of memory and tries again."""
    model, sheets = net(), Sheets()
    gradients = Gradients(list(model.named_parameters()), sheets, Reader(), together=together)

    def stop(grad: Any) -> None:
        raise ValueError("the training code's own")

    gradients.start()
    handle = model.tokens.weight.register_hook(stop)
    with pytest.raises(ValueError, match="own"):
        loss_of(model, batch(1)).backward()
    handle.remove()
    model.zero_grad()
    loss_of(model, batch(2)).backward()
    (sheet,) = sheets.all()
    read = {key.name: row for key, row in zip(sheet.keys, sheet.used().tolist(), strict=True)}
    for name, p in model.named_parameters():
        assert read[name][0] == pytest.approx(p.grad.double().square().sum().item(), rel=1e-5), name


def _partial(rank: int, world: int) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (world,))
    partial = DTensor.from_local(torch.ones(4), mesh, [Partial()])
    shard = distribute_tensor(torch.arange(6.0), mesh, [Shard(0)])
    out = torch.zeros(2, WIDTH, dtype=torch.float64)
    refused = Reader().read([partial, shard], out, [0, 1])
    return {"refused": refused.get(0, ""), "row": out[1].tolist()}


@pytest.mark.slow
def test_a_partial_sum_is_refused_and_a_shard_is_read_as_this_rank_holds_it(tmp_path: Path) -> None:
    a, b = ranks.run(_partial, 2, tmp_path)
    assert a["refused"].startswith("a partial sum of a distributed tensor")
    assert a["row"][0] == pytest.approx(0.0 + 1.0 + 4.0, rel=1e-6)
    assert b["row"][0] == pytest.approx(9.0 + 16.0 + 25.0, rel=1e-6)
