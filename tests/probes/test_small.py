"""Small gradients on the CPU: the quick read gives what the full one does, or leaves it to the full one."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from lineage.probes import host, small
from lineage.probes.columns import N_NAN, N_POSINF
from lineage.probes.gradients import Gradients
from lineage.probes.read import Reader
from lineage.probes.sheet import Key, Sheets

from .models import batch, loss_of, net

MADE: dict[str, Any] = {
    "normal": lambda: torch.randn(100, 7, generator=torch.Generator().manual_seed(1)),
    "largest that fits": lambda: torch.randn(small.SMALL, generator=torch.Generator().manual_seed(2)),
    "added in runs": lambda: torch.randn(small.MOST, generator=torch.Generator().manual_seed(3)),
    "all negative": lambda: -torch.ones(50),
    "one element": lambda: torch.tensor([-3.5]),
    "all zero": lambda: torch.zeros(9),
}


@pytest.mark.parametrize("name", MADE)
def test_a_row_is_that_of_the_full_read(name: str) -> None:
    """Sum of squares within float32's rounding, the rest exactly."""
    g = MADE[name]()
    assert small.fits(g)
    full = host.read([g.reshape(-1)])
    row = small.read(g)
    assert row is not None
    assert row[0] == pytest.approx(full[0], rel=2e-6)
    assert row[1:7] == full[1:7]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30, 1e-30])
def test_what_is_broken_or_leaves_the_range_of_squares_is_left_to_the_full_read(value: float) -> None:
    assert small.read(torch.full((5,), value)) is None
    assert small.read(torch.tensor([1.0, value, 2.0])) is None or value == 1e-30


def test_what_does_not_fit_is_known() -> None:
    """Other types, holes, other layouts, empty and large tensors."""
    refused = (
        torch.ones(4, dtype=torch.bfloat16),
        torch.ones(4, dtype=torch.float64),
        torch.ones(4, 4).t()[1:],
        torch.ones(4).to_sparse(),
        torch.ones(0),
        torch.ones(small.MOST + 1),
        torch.nn.Parameter(torch.ones(4)),
    )
    assert not any(small.fits(t) for t in refused)


def test_a_broken_small_gradient_is_counted_and_named_by_the_full_read() -> None:
    """One NaN and one infinity in one of many gradients; the others keep their quick rows."""
    model, sheets = net(), Sheets()
    gradients = Gradients(list(model.named_parameters()), sheets, Reader())
    bias = model.head.bias if getattr(model.head, "bias", None) is not None else model.blocks[0].inner.bias
    name = next(n for n, p in model.named_parameters() if p is bias)

    def spoil(g: Any) -> Any:
        g = g.clone()
        g[0], g[1] = math.nan, math.inf
        return g

    bias.register_hook(spoil)
    loss_of(model, batch(1)).backward()
    (sheet,) = sheets.all()
    row = sheet.buffer[sheet.keys.index(Key("gradient", name))].tolist()
    assert (row[N_NAN], row[N_POSINF]) == (1.0, 1.0)
    assert gradients.not_read == {}
    assert len(sheet.keys) == len(list(model.named_parameters()))


@pytest.mark.parametrize("together", [None, True])
def test_an_optimizer_that_steps_within_the_backward_pass_is_read_all_the_same(together: bool | None) -> None:
    """Its hook takes the gradient away: read in the hook, or (as on a GPU) said once and read so from then on."""
    model, sheets = net(), Sheets()
    gradients = Gradients(list(model.named_parameters()), sheets, Reader(), together=together)
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
    loss_of(model, batch(1)).backward()
    said = set(gradients.not_read.values())
    assert all("taken away within the backward pass" in reason for reason in said)
    assert bool(said) is (together is True)
    gradients.start()
    loss_of(model, batch(2)).backward()
    assert gradients.not_read == {}
    (sheet,) = sheets.all()
    assert {k.name for k in sheet.keys} == {n for n, _ in model.named_parameters()}
