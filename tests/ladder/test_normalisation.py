"""Each token counts the same, or it is said which counts how many times as much: real accumulation, real ranks."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import schemas
from lineage import ladder
from lineage.ladder.normalisation import NotComparable
from tests.probes import ranks

from .test_overfit import VOCABULARY, Tiny

LENGTHS = (10, 2, 5)


def batches(lengths: Sequence[int] = LENGTHS, seed: int = 0) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        {
            "ids": torch.randint(VOCABULARY, (1, n), generator=generator),
            "labels": torch.randint(VOCABULARY, (1, n), generator=generator),
        }
        for n in lengths
    ]


def each(model: Any, batch: Any) -> Any:
    logits = model(batch["ids"]).flatten(0, 1)
    return torch.nn.functional.cross_entropy(logits, batch["labels"].flatten(), reduction="none")


def model(**more: Any) -> Any:
    torch.manual_seed(1)
    return Tiny(**more)


def tokens(net: Any, given: Sequence[Any]) -> Any:
    """The mean over all tokens of the update."""
    n = sum(b["ids"].numel() for b in given)
    total = 0.0
    for b in given:
        part = each(net, b).sum() / n
        part.backward()
        total = total + part.detach()
    return total


def means(net: Any, given: Sequence[Any]) -> Any:
    """The mean of each micro-batch, divided by their number: the fault of many trainers."""
    total = 0.0
    for b in given:
        part = each(net, b).mean() / len(given)
        part.backward()
        total = total + part.detach()
    return total


def undivided(net: Any, given: Sequence[Any]) -> None:
    for b in given:
        each(net, b).mean().backward()


def summed(net: Any, given: Sequence[Any]) -> None:
    for b in given:
        each(net, b).sum().backward()


def ask(
    step: Callable[..., Any], net: Any = None, lengths: Sequence[int] = LENGTHS, **more: Any
) -> dict[str, schemas.Answer]:
    net = net or model()
    found = ladder.loss_normalisation(
        net, batches(lengths), functools.partial(step, net), losses=each, **more
    )
    return {a.question: a for a in found.answers}


def test_the_mean_over_tokens_passes() -> None:
    found = ask(tokens)
    assert {a.outcome for a in found.values()} == {"pass"}
    assert found["token_weights_equal"].values["residual"].plain() < 1e-5


def test_a_mean_of_means_is_named_with_how_much_more_a_token_counts() -> None:
    found = ask(means)["token_weights_equal"]
    assert found.outcome == "fail"
    assert found.text == (
        "a token of micro-batch 2 (2 tokens) counts 5 times as much as one of micro-batch 1 (10 tokens): this is the "
        "mean over micro-batches of each one's own mean"
    )
    weights = found.values["weight_times_tokens"].plain()
    assert weights == pytest.approx([17 / 30, 17 / 6, 17 / 15], rel=1e-3)
    assert ask(means)["logged_loss_is_the_mean"].outcome == "fail"


def test_means_that_are_added_and_not_divided_are_named() -> None:
    found = ask(undivided)
    assert "not divided by their number" in found["token_weights_equal"].text
    assert found["gradient_is_of_the_mean"].outcome == "fail"


def test_a_sum_treats_tokens_alike_and_is_no_mean() -> None:
    found = ask(summed)
    assert found["token_weights_equal"].outcome == "pass"
    assert found["gradient_is_of_the_mean"].text == (
        "the weights of all tokens add up to 17, not to 1: this is the sum over all tokens"
    )


def test_equal_lengths_cannot_tell_means_of_means_from_the_mean() -> None:
    found = ask(means, lengths=(4, 4, 4))["token_weights_equal"]
    assert found.outcome == "cannot_tell"
    assert "all micro-batches have 4 tokens" in found.text


def test_another_term_of_the_loss_is_no_verdict_on_tokens() -> None:
    def regularised(net: Any, given: Sequence[Any]) -> None:
        tokens(net, given)
        sum(p.square().sum() for p in net.parameters()).backward()

    found = ask(regularised)
    assert {a.outcome for a in found.values()} == {"cannot_tell"}
    assert "the loop's loss has other terms" in found["token_weights_equal"].text


def test_what_is_divided_twice_is_named_with_the_factor() -> None:
    def twice(net: Any, given: Sequence[Any]) -> None:
        for b in given:
            (each(net, b).mean() / len(given) / 4).backward()

    found = ask(twice)
    assert found["token_weights_equal"].text.endswith("each one's own mean, times 0.25")
    assert found["gradient_is_of_the_mean"].outcome == "fail"


def test_one_batch_twice_does_not_determine_the_weights() -> None:
    net, (one,) = model(), batches((6,))
    found = ladder.loss_normalisation(net, [one, one], functools.partial(means, net), losses=each)
    assert found.outcome == "cannot_tell"
    assert "do not determine" in found.text


def test_dropout_drops_the_same_in_both_passes() -> None:
    assert ask(tokens, model(dropout=0.3))["token_weights_equal"].outcome == "pass"


def test_the_model_is_left_as_it_was() -> None:
    net = model()
    before, rng = {n: t.clone() for n, t in net.state_dict().items()}, torch.get_rng_state()
    ask(means, net)
    assert all(torch.equal(before[n], t) for n, t in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    assert torch.equal(torch.get_rng_state(), rng)


@pytest.mark.parametrize(
    ("step", "losses", "said"),
    [
        (lambda net, given: None, each, "left no gradient"),
        (tokens, lambda net, b: each(net, b).mean(), "gave one number"),
        (tokens, None, "the batch has no `labels`|no `labels`"),
        (lambda net, given: (each(net, given[0]).sum() * float("nan")).backward(), each, "not finite"),
    ],
)
def test_what_cannot_be_compared_says_why_and_what_to_give(step: Any, losses: Any, said: str) -> None:
    net = model()
    given = batches()
    if losses is None:
        given = [{"ids": b["ids"]} for b in given]
        step = lambda net, given: net(given[0]["ids"]).sum().backward()  # noqa: E731
    with pytest.raises(NotComparable, match=said):
        ladder.loss_normalisation(net, given, functools.partial(step, net), losses=losses)


def under_ddp(rank: int, world: int, how: str) -> dict[str, Any]:
    net = torch.nn.parallel.DistributedDataParallel(model())
    mine = batches((10, 2) if rank == 0 else (3, 4), seed=rank)
    count = torch.tensor(sum(b["ids"].numel() for b in mine))
    torch.distributed.all_reduce(count)

    def step(given: Sequence[Any]) -> None:
        own = sum(b["ids"].numel() for b in given)
        for i, b in enumerate(given):
            with net.no_sync() if i < len(given) - 1 else contextlib.nullcontext():
                losses = each(net, b).sum()
                (losses * world / count if how == "global" else losses / own).backward()

    found = ladder.loss_normalisation(net, mine, step, losses=each)
    return {a.question: [a.outcome, a.text] for a in found.answers}


@pytest.mark.parametrize("how", ["global", "own"])
def test_two_ranks_with_unequal_tokens_each_dividing_by_its_own_are_found(tmp_path: Path, how: str) -> None:
    for found in ranks.run(functools.partial(under_ddp, how=how), 2, tmp_path):
        outcome, text = found["token_weights_equal"]
        if how == "global":
            assert (outcome, found["gradient_is_of_the_mean"][0]) == ("pass", "pass")
        else:
            assert outcome == "fail"
            assert "of rank 1 (" in text
            assert text.endswith("this is the mean over ranks of each one's own mean over tokens")


@pytest.mark.parametrize("takes_count", [True, False])
def test_transformers_trainer_with_accumulation(tmp_path: Path, takes_count: bool) -> None:
    """Its own loss divides by the tokens of the whole update; one that takes no count makes a mean of means."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=32,
    )
    torch.manual_seed(0)
    net = transformers.LlamaForCausalLM(config)

    class Own(transformers.Trainer):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any) -> Any:
            return model(**inputs).loss  # the mean of this micro-batch, whatever num_items_in_batch is

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), gradient_accumulation_steps=3, report_to=[], use_cpu=True
    )
    trainer = (transformers.Trainer if takes_count else Own)(model=net, args=arguments)
    trainer.current_gradient_accumulation_steps = 3
    given = [{"input_ids": b["ids"], "labels": b["labels"]} for b in batches((11, 4, 7))]
    labels = [b["labels"] for b in given]
    counted = sum(int((one[:, 1:] != -100).sum()) for one in labels)

    def step(micro: Sequence[Any]) -> Any:
        return sum(
            trainer.training_step(
                net, dict(b), num_items_in_batch=torch.tensor(counted) if takes_count else None
            )
            for b in micro
        )

    found = {a.question: a for a in ladder.loss_normalisation(net, given, step).answers}
    if takes_count:
        assert {a.outcome for a in found.values()} == {"pass"}, found
    else:
        assert found["token_weights_equal"].outcome == "fail"
        assert "each one's own mean" in found["token_weights_equal"].text
