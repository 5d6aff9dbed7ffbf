"""One batch, learnt by heart: what keeps model, loss, gradients and optimizer from belonging together is named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import schemas
from lineage import ladder
from lineage.ledger.reader import open_ledger

VOCABULARY = 11


class Tiny(torch.nn.Module):
    """Embedding, a layer, a norm, a head."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, 8)
        self.mix = torch.nn.Linear(8, 8)
        self.drop = torch.nn.Dropout(dropout)
        self.norm = torch.nn.LayerNorm(8)
        self.head = torch.nn.Linear(8, VOCABULARY)
        self.cut: Callable[[Any], Any] = lambda x: x

    def forward(self, ids: Any) -> Any:
        return self.head(self.norm(self.drop(self.cut(self.mix(self.embed(ids)).tanh()))))


def loss(model: Any, batch: Any) -> Any:
    return torch.nn.functional.cross_entropy(model(batch["ids"]).flatten(0, 1), batch["labels"].flatten())


def batch() -> dict[str, Any]:
    ids = torch.arange(2 * VOCABULARY).reshape(2, -1) % VOCABULARY
    return {"ids": ids, "labels": (ids * 3 + 1) % VOCABULARY}


def make(lr: float = 0.05, **more: Any) -> tuple[Tiny, Any]:
    torch.manual_seed(3)
    model = Tiny(**more)
    return model, torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)


def outcomes(found: schemas.Rung) -> dict[str, str]:
    return {a.question: a.outcome for a in found.answers}


def named(found: schemas.Rung, question: str) -> schemas.Answer:
    (one,) = [a for a in found.answers if a.question == question]
    return one


def test_a_healthy_recipe_passes_and_is_left_as_it_was_to_the_last_bit() -> None:
    model, optimizer = make()
    loss(model, batch()).backward()
    optimizer.step()
    weights, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    gradients = [p.grad.clone() for p in model.parameters()]
    rng = torch.get_rng_state()
    found = ladder.overfit(model, optimizer, loss, batch())
    ladder.require(found)
    assert set(outcomes(found).values()) == {"pass"}
    assert all(torch.equal(a, weights[n]) for n, a in model.state_dict().items())
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients, strict=True))
    after = optimizer.state_dict()
    assert after["param_groups"] == state["param_groups"]
    for i, held in state["state"].items():
        assert all(torch.equal(held[k], after["state"][i][k]) for k in held)
    assert torch.equal(torch.get_rng_state(), rng)


def missing(model: Tiny, optimizer: Any) -> Any:
    return torch.optim.AdamW([p for n, p in model.named_parameters() if not n.startswith("head")], lr=0.05)


def stale(model: Tiny, optimizer: Any) -> Any:
    model.head = torch.nn.Linear(8, VOCABULARY)  # replaced after the optimizer was made
    return optimizer


def twice(model: Tiny, optimizer: Any) -> Any:
    optimizer.param_groups.append({**optimizer.param_groups[0], "params": [model.head.bias]})
    return optimizer


def frozen(model: Tiny, optimizer: Any) -> Any:
    model.embed.weight.requires_grad_(False)
    return optimizer


@pytest.mark.parametrize(
    ("fault", "question", "names"),
    [
        (missing, "optimizer_holds_missing", ["head.weight", "head.bias"]),
        (stale, "optimizer_holds_stale", ["group 0, place 5, [11, 8]", "group 0, place 6, [11]"]),
        (twice, "optimizer_holds_twice", ["head.bias"]),
        (frozen, "optimizer_holds_frozen", ["embed.weight"]),
    ],
)
def test_what_the_optimizer_holds_wrongly_is_named(
    fault: Callable[[Tiny, Any], Any], question: str, names: list[str]
) -> None:
    model, optimizer = make()
    optimizer = fault(model, optimizer)
    for found in (ladder.holds(model, optimizer), ladder.overfit(model, optimizer, loss, batch())):
        assert found.outcome == "fail"
        assert named(found, question).outcome == "fail"
        assert named(found, question).names == names
    with pytest.raises(AssertionError, match=question):
        ladder.require(ladder.holds(model, optimizer))


def test_frozen_layers_that_thaw_later_may_be_meant() -> None:
    model, optimizer = make()
    frozen(model, optimizer)
    found = ladder.holds(model, optimizer, allow=["optimizer_holds_frozen"])
    assert found.outcome == "pass"
    assert "it is meant" in named(found, "optimizer_holds_frozen").text


def test_tied_weights_are_one_parameter() -> None:
    model, _ = make()
    model.head.weight = model.embed.weight
    assert ladder.holds(model, torch.optim.SGD(model.parameters(), lr=0.1)).outcome == "pass"
    both = [
        model.head.weight,
        model.embed.weight,
        *model.mix.parameters(),
        *model.norm.parameters(),
        model.head.bias,
    ]
    by_name = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    by_name.param_groups[0]["params"] = both  # as a hand-made optimizer that collects by name does
    assert named(ladder.holds(model, by_name), "optimizer_holds_twice").names == ["embed.weight"]


def test_a_cut_in_the_backward_pass_is_named_with_what_lies_before_it() -> None:
    model, optimizer = make()
    model.cut = lambda x: x.detach()
    found = ladder.overfit(model, optimizer, loss, batch())
    assert named(found, "gradient_arrives").outcome == "fail"
    assert named(found, "gradient_arrives").names == ["embed.weight", "mix.weight", "mix.bias"]


def test_a_gradient_of_zeros_is_told_apart_from_none() -> None:
    model, optimizer = make()
    with torch.no_grad():
        model.mix.weight.zero_()
        model.mix.bias.zero_()
    model.cut = lambda x: x * 0
    found = named(ladder.overfit(model, optimizer, loss, batch()), "gradient_arrives")
    assert found.outcome == "fail"
    assert "had none but zeros" in found.text
    assert "no gradient at all" not in found.text


def test_targets_that_nothing_leads_to_are_not_learnt_and_the_rate_is_among_what_to_look_at() -> None:
    """Each input has two targets: the loss can go to ln 2 and no lower."""
    model, optimizer = make()
    ids = torch.arange(2 * VOCABULARY).reshape(2, -1) % VOCABULARY
    two = {"ids": ids, "labels": torch.stack([(ids[0] * 3 + 1) % VOCABULARY, (ids[1] * 5 + 2) % VOCABULARY])}
    found = named(ladder.overfit(model, optimizer, loss, two), "loss_falls")
    assert found.outcome == "fail"
    assert found.values["lowest"].plain() == pytest.approx(10 / 11 * 0.6931, rel=0.02)
    assert any("learning rate, which was 0.05" in text for text in found.look_at)


def test_a_loss_that_still_falls_is_no_verdict() -> None:
    model, optimizer = make(lr=0.002)
    found = named(ladder.overfit(model, optimizer, loss, batch(), steps=30), "loss_falls")
    assert found.outcome == "cannot_tell"
    assert "still falling after 30 updates" in found.text


def test_a_floor_of_soft_targets_is_counted_from() -> None:
    """With label smoothing the loss has an entropy below which it never goes."""

    def smoothed(model: Any, given: Any) -> Any:
        return torch.nn.functional.cross_entropy(
            model(given["ids"]).flatten(0, 1), given["labels"].flatten(), label_smoothing=0.4
        )

    model, optimizer = make()
    target = torch.full((VOCABULARY,), 0.4 / VOCABULARY)
    target[0] += 0.6
    entropy = float(-(target * target.log()).sum())
    assert named(ladder.overfit(model, optimizer, smoothed, batch()), "loss_falls").outcome == "fail"
    fits = ladder.overfit(model, optimizer, smoothed, batch(), floor=entropy)
    assert named(fits, "loss_falls").outcome == "pass"


def test_a_rate_of_zero_and_a_rounding_that_eats_the_update_leave_every_bit() -> None:
    model, optimizer = make(lr=0.0)
    found = named(ladder.overfit(model, optimizer, loss, batch(), steps=5), "weights_move")
    assert found.outcome == "fail"
    assert len(found.names) == 7
    model, _ = make()
    model = model.to(torch.bfloat16)
    small = torch.optim.SGD(model.parameters(), lr=1e-7)
    moved = named(ladder.overfit(model, small, loss, batch(), steps=5), "weights_move")
    assert "norm.weight" in moved.names
    assert any("rounding" in text for text in moved.look_at)


def test_a_loss_that_breaks_is_said_with_the_update() -> None:
    model, optimizer = make(lr=1e30)
    found = named(ladder.overfit(model, optimizer, lambda m, b: loss(m, b) * 1e30, batch()), "loss_is_finite")
    assert found.outcome == "fail"
    assert found.values["updates"].plain() >= 1


def test_dropout_is_among_what_to_look_at() -> None:
    model, optimizer = make(dropout=0.9)
    found = named(ladder.overfit(model, optimizer, loss, batch(), steps=60), "loss_falls")
    assert found.outcome == "fail"
    assert any("dropout is on in 1 modules, as drop" in text for text in found.look_at)


def test_it_is_on_record_in_the_runs_ledger_and_in_the_ladders_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rungs of one recipe have one digest; another config is another recipe."""
    import lineage

    monkeypatch.setenv("LINEAGE_DIR", str(tmp_path))
    model, optimizer = make()
    found = ladder.holds(model, optimizer, config={"lr": 0.05, "api_key": "sk-1234567890abcdef1234"})
    own = ladder.record(found)
    assert own == tmp_path / "ladder"
    assert ladder.record(ladder.holds(model, optimizer, config={"lr": 0.05})) == own
    with lineage.attach(None, run_id="mine", quiet=True, report=False) as rec:
        rec.begin()
    ladder.record(ladder.overfit(model, optimizer, loss, batch(), config={"lr": 0.05}), tmp_path / "mine")
    first, second = (r.payload for r in open_ledger(own).of("rung"))
    (third,) = (r.payload for r in open_ledger(tmp_path / "mine").of("rung"))
    assert first.recipe.digest != second.recipe.digest == third.recipe.digest
    assert "sk-1234567890abcdef1234" not in first.model_dump_json()
    assert open_ledger(own).damage == []
