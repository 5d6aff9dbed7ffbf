"""A hand-written Llama beside that of transformers, with random weights: each injected discrepancy is found."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import schemas
from lineage import ladder
from lineage.ladder.reference import Layer, NotComparable

WIDTH, HEADS, KEYS, INNER, VOCABULARY, LAYERS = 32, 4, 2, 48, 23, 3
THETA, EPSILON = 10_000.0, 1e-5


class Norm(torch.nn.Module):
    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.weight, self.epsilon = torch.nn.Parameter(torch.ones(WIDTH)), epsilon

    def forward(self, x: Any) -> Any:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon))


class Attention(torch.nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.head = WIDTH // HEADS
        self.q_proj = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.k_proj = torch.nn.Linear(WIDTH, KEYS * self.head, bias=False)
        self.v_proj = torch.nn.Linear(WIDTH, KEYS * self.head, bias=False)
        self.o_proj = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.fault = fault

    def forward(self, x: Any) -> Any:
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, HEADS, self.head).transpose(1, 2)
        k = self.k_proj(x).view(b, t, KEYS, self.head).transpose(1, 2)
        v = self.v_proj(x).view(b, t, KEYS, self.head).transpose(1, 2)
        theta = 500_000.0 if self.fault == "rotary base" else THETA
        frequency = theta ** (-torch.arange(0, self.head, 2).float() / self.head)
        angle = torch.arange(t).float()[:, None] * frequency
        angle = torch.cat([angle, angle], -1)

        def turned(y: Any) -> Any:
            a, c = y.chunk(2, -1)
            return y * angle.cos() + torch.cat([-c, a], -1) * angle.sin()

        q, k = turned(q), turned(k)
        k, v = (y.repeat_interleave(HEADS // KEYS, 1) for y in (k, v))
        scores = q @ k.transpose(-1, -2) * (1.0 if self.fault == "scale" else self.head**-0.5)
        later = torch.ones(t, t, dtype=torch.bool).triu(1)
        if self.fault == "mask":
            later = torch.zeros_like(later)
        p = scores.masked_fill(later, -torch.inf).softmax(-1)
        return self.o_proj((p @ v).transpose(1, 2).reshape(b, t, WIDTH))


class MLP(torch.nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.gate_proj = torch.nn.Linear(WIDTH, INNER, bias=False)
        self.up_proj = torch.nn.Linear(WIDTH, INNER, bias=False)
        self.down_proj = torch.nn.Linear(INNER, WIDTH, bias=False)
        self.fault = fault

    def forward(self, x: Any) -> Any:
        f = torch.nn.functional.gelu if self.fault == "activation" else torch.nn.functional.silu
        return self.down_proj(f(self.gate_proj(x)) * self.up_proj(x))


class Block(torch.nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.input_layernorm = Norm(1e-2 if fault == "norm epsilon" else EPSILON)
        self.self_attn = Attention(fault)
        self.post_attention_layernorm = Norm(EPSILON)
        self.mlp = MLP(fault)

    def forward(self, x: Any) -> Any:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Own(torch.nn.Module):
    """Llama as a team writes it. The fault is in the second block alone, except for what the embedding has."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = torch.nn.ModuleList(Block(fault if i == 1 else "") for i in range(LAYERS))
        self.norm = Norm(EPSILON)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.scale = WIDTH**0.5 if fault == "embedding scale" else 1.0

    def forward(self, input_ids: Any) -> Any:
        x = self.tokens(input_ids) * self.scale
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


NAMES = {"tokens": "model.embed_tokens", "blocks": "model.layers", "norm": "model.norm", "head": "lm_head"}
IDS = {"input_ids": torch.arange(20).reshape(2, 10) % VOCABULARY}


@pytest.fixture(scope="module")
def reference() -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            intermediate_size=INNER,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=KEYS,
            rms_norm_eps=EPSILON,
            initializer_range=0.3,
            attn_implementation="eager",
        )
    )


def own(reference: Any, fault: str = "") -> Own:
    made = Own(fault)
    theirs = reference.state_dict()
    state = {}
    for name in made.state_dict():
        prefix = max((p for p in NAMES if name.startswith(f"{p}.")), key=len)
        state[name] = theirs[NAMES[prefix] + name[len(prefix) :]]
    made.load_state_dict(state)
    return made


def ask(model: Any, reference: Any, **more: Any) -> tuple[dict[str, schemas.Answer], list[Layer]]:
    more.setdefault("names", NAMES)
    found, layers = ladder.compare_models(
        model, reference, IDS, call_reference=lambda m, b: m(**b, use_cache=False).logits, **more
    )
    return {a.question: a for a in found.answers}, layers


def test_the_same_model_written_twice_is_alike_in_every_layer(reference: Any) -> None:
    before = {n: t.clone() for n, t in reference.state_dict().items()}
    found, layers = ask(own(reference), reference)
    assert {q: a.outcome for q, a in found.items()} == dict.fromkeys(found, "pass")
    assert len(layers) == 3 + LAYERS * 12
    assert max(layer.made for layer in layers if layer.made is not None) < 1e-5
    assert all(torch.equal(before[n], t) for n, t in reference.state_dict().items())


@pytest.mark.parametrize(
    ("fault", "layer", "look"),
    [
        ("rotary base", "blocks.1.self_attn.o_proj", None),
        ("mask", "blocks.1.self_attn.o_proj", None),
        ("scale", "blocks.1.self_attn.o_proj", None),
        ("norm epsilon", "blocks.1.input_layernorm", "epsilon"),
        ("activation", "blocks.1.mlp.down_proj", None),
        ("embedding scale", "blocks.0.post_attention_layernorm", None),
    ],
)
def test_an_injected_discrepancy_is_found_in_its_layer(
    reference: Any, fault: str, layer: str, look: str | None
) -> None:
    found, layers = ask(own(reference, fault), reference)
    assert found["weights_are_equal"].outcome == "pass"
    assert found["output_is_alike"].outcome == "fail"
    told = found["layers_are_alike"]
    assert told.outcome == "fail"
    assert told.names[0] == layer
    apart = {x.ours: x for x in layers}
    if look is not None:
        assert f"makes a difference is {layer} (" in told.text
        assert any(look in text for text in told.look_at)
    elif fault in ("rotary base", "mask", "scale"):
        assert "the first attention that makes a difference is blocks.1.self_attn (" in told.text
        assert apart["blocks.1.self_attn"].given is not None
        assert any(
            {"rotary base": "base", "mask": "the mask", "scale": "the scale"}[fault] in t
            for t in told.look_at
        )
    elif fault == "activation":
        assert "the first feed-forward that makes a difference is blocks.1.mlp (" in told.text
        assert any("GELU" in text for text in told.look_at)
    elif fault == "embedding scale":
        assert "what goes into blocks.0 (model.layers.0) differs by 4.7" in told.text
        assert "what came out of tokens before it is alike" in told.text
    assert all(x.made is None or x.made < 1e-4 for x in layers[: [x.ours for x in layers].index(layer)])


def test_weights_that_differ_are_named_before_any_layer_is_judged(reference: Any) -> None:
    made = own(reference)
    with torch.no_grad():
        made.blocks[2].mlp.up_proj.weight[0, 0] += 1e-3
    found, _ = ask(made, reference)
    assert found["weights_are_equal"].names == ["blocks.2.mlp.up_proj.weight"]


def test_a_name_that_is_not_there_is_said_with_those_that_are(reference: Any) -> None:
    with pytest.raises(NotComparable, match=r"the reference has no module 'model.lairs'"):
        ask(own(reference), reference, names={"blocks": "model.lairs"})


def test_models_without_a_layer_in_common_cannot_be_judged(reference: Any) -> None:
    found, layers = ask(own(reference), reference, names={"head": "model.layers.0.mlp.gate_proj"})
    assert found["layers_are_alike"].outcome == "cannot_tell"
    assert layers[0].made is None
