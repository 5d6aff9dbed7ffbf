"""Gradients and one update of every parameter, of a real stack of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import schemas
from lineage import ladder
from lineage.judge.gradient_report import Row


class Deep(torch.nn.Module):
    """A stack of linear layers, `scale` times what torch initialises."""

    def __init__(self, depth: int = 9, scale: float = 1.7) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(7, 16)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(depth))
        self.norm = torch.nn.LayerNorm(16)
        self.head = torch.nn.Linear(16, 7)
        self.unused = torch.nn.Linear(16, 16)
        with torch.no_grad():
            for layer in self.layers:
                layer.weight.mul_(scale)

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def loss(model: Any, ids: Any) -> Any:
    return torch.nn.functional.cross_entropy(model(ids), (ids * 2) % 7)


def ask(
    model: Any, lr: float = 1e-2, decay: Sequence[str] = (), **more: Any
) -> tuple[dict[str, schemas.Answer], dict[str, Row]]:
    named = dict(model.named_parameters())
    with_ = [p for n, p in named.items() if n in decay]
    groups = [
        {"params": [p for n, p in named.items() if n not in decay], "weight_decay": 0.0},
        *([{"params": with_, "weight_decay": 0.1}] if with_ else []),
    ]
    found, rows = ladder.gradient_report(
        model, loss, torch.arange(7), optimizer=torch.optim.SGD(groups, lr=lr), **more
    )
    return {a.question: a for a in found.answers}, {r.name: r for r in rows}


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    return Deep()


def test_rows_are_the_norms_of_weight_gradient_and_the_real_update(model: Any) -> None:
    found, rows = ask(model, lr=0.01)
    loss(model, torch.arange(7)).backward()
    for name, p in model.named_parameters():
        assert rows[name].weight == pytest.approx(float(p.detach().norm()), rel=1e-5)
        if p.grad is not None:
            assert rows[name].gradient == pytest.approx(float(p.grad.norm()), rel=1e-5)
            assert rows[name].update == pytest.approx(0.01 * float(p.grad.norm()), rel=1e-2, abs=1e-9)
    assert found["update_over_weight"].values["way"].plain() == ["measured: weights before and after"]
    assert list(rows)[:2] == ["embed.weight", "layers.0.weight"]


def test_a_part_without_gradient_is_named(model: Any) -> None:
    found, rows = ask(model)
    assert found["gradient_arrives"].names == ["unused.weight", "unused.bias"]
    assert rows["unused.weight"].gradient is None
    del model.unused
    assert ask(model)[0]["gradient_arrives"].outcome == "pass"


@pytest.mark.parametrize(("scale", "outcome"), [(1.7, "pass"), (0.15, "fail")])
def test_a_gradient_that_vanishes_by_depth_is_told(scale: float, outcome: str) -> None:
    torch.manual_seed(0)
    net = Deep(depth=15, scale=scale)
    net.norm = torch.nn.Identity()
    answer = ask(net)[0]["gradient_by_depth"]
    assert answer.outcome == outcome, answer.text
    assert "along 15 layers of layers the gradient is" in answer.text


@pytest.mark.parametrize(("lr", "words"), [(50.0, "above 0.1"), (1e-9, "below 1e-07")])
def test_updates_out_of_proportion_are_named(model: Any, lr: float, words: str) -> None:
    found = ask(model, lr=lr)[0]["update_over_weight"]
    assert found.outcome == "fail"
    assert words in found.text


def test_weight_decay_on_norms_and_biases_is_named_and_on_embeddings_left_open(model: Any) -> None:
    decay = ["norm.weight", "head.bias", "embed.weight", "layers.0.weight"]
    found = ask(model, decay=decay)[0]["decay_on_vectors"]
    assert (found.outcome, found.names) == ("fail", ["norm.weight", "head.bias", "embed.weight"])
    assert ask(model, decay=["embed.weight"])[0]["decay_on_vectors"].outcome == "cannot_tell"
    assert ask(model, decay=["layers.0.weight"])[0]["decay_on_vectors"].outcome == "pass"


def test_a_gradient_that_is_not_finite_is_named_and_the_model_is_left_as_it_was(model: Any) -> None:
    with torch.no_grad():
        model.head.bias[0] = float("inf")
    before = {n: t.clone() for n, t in model.state_dict().items()}
    found, _ = ask(model)
    assert found["gradient_is_finite"].outcome == "fail"
    assert "head.weight" in found["gradient_is_finite"].names
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_without_an_optimizer_there_is_no_update(model: Any) -> None:
    found, rows = ladder.gradient_report(model, loss, torch.arange(7))
    answers = {a.question: a.outcome for a in found.answers}
    assert (answers["update_over_weight"], answers["decay_on_vectors"]) == ("cannot_tell", "cannot_tell")
    assert {r.update for r in rows} == {None}
