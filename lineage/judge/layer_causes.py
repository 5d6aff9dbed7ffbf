"""What commonly makes a layer of one kind differ from the same layer of another implementation, to be looked at."""

from __future__ import annotations

import re

_KINDS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "rotary embedding",
        r"rotary|rope",
        (
            "the base (theta), and its scaling for long contexts",
            "halves that are rotated against each other, or neighbouring pairs",
            "positions that begin at 0 or 1, or do not begin again in packed rows",
        ),
    ),
    (
        "attention",
        r"attn|attention",
        (
            "rotary embedding: its base, halves against each other or neighbouring pairs, applied to q and k alike",
            "the mask: True keeps or True drops, causal or not, and the value that stands for minus infinity",
            "the scale, 1 / sqrt(head dimension), applied once",
            "heads: how q, k and v are cut and laid out, and how few key heads serve many query heads",
            "biases of q, k, v and o; norms of q and k; a cap on the scores",
        ),
    ),
    (
        "norm",
        r"norm|ln_|layernorm|rms",
        (
            "the epsilon, and whether it stands within the root",
            "a mean that is taken off (layer norm) or not (RMS norm)",
            "a weight that is added to 1",
            "the type in which it is computed, and where the result is cast back",
        ),
    ),
    (
        "feed-forward",
        r"mlp|ffn|feed_forward|feedforward|experts|moe",
        (
            "the activation: SiLU, GELU by the error function or by tanh",
            "which of two projections is the gate",
            "biases; of experts the routing, its normalisation and what exceeds the capacity",
        ),
    ),
    (
        "embedding",
        r"embed|wte|wpe|emb\b",
        (
            "a scale by the square root of the width",
            "positions: learnt ones, and where they begin",
            "rows of padding, and the row that padding has",
        ),
    ),
    (
        "head",
        r"lm_head|head|output|unembed",
        ("tied to the embedding or not", "a bias, a scale or a cap on the logits", "a norm before it"),
    ),
    (
        "activation",
        r"silu|gelu|swish|act",
        ("GELU by the error function or by tanh", "SiLU, which is swish with beta 1"),
    ),
    (
        "linear layer",
        r"linear|proj|conv1d|dense|fc|qkv",
        ("its weight transposed (Conv1D of GPT-2)", "a bias", "the order in which fused projections lie"),
    ),
)


def kind(name: str, cls: str) -> tuple[str, tuple[str, ...]]:
    """The kind of a layer by its own name, then by its class, and what to look at; ("layer", ()) if neither tells."""
    for text in (name.rpartition(".")[2].lower(), cls.lower()):
        for what, pattern, causes in _KINDS:
            if re.search(pattern, text):
                return what, causes
    return "layer", ()
