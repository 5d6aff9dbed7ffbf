"""Small models and loops for the probes' tests."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.inner, self.outer = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(3 * width, width),
        )

    def forward(self, x: Any) -> Any:
        return x + self.outer(F.gelu(self.inner(self.norm(x))))


class Net(nn.Module):
    """Embedding, blocks, head. Widths are odd, so that shards are uneven."""

    def __init__(self, width: int = 13, blocks: int = 2, vocabulary: int = 31, tied: bool = False) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids: Any) -> Any:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def net(seed: int = 1, **options: Any) -> Net:
    torch.manual_seed(seed)
    return Net(**options)


def batch(step: int, rank: int = 0, vocabulary: int = 31, length: int = 8) -> Any:
    g = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randint(vocabulary, (4, length + 1), generator=g)


def loss_of(model: Any, ids: Any) -> Any:
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
