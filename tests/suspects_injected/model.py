"""A small language model, its data, and what of it faults reach: a block in float16, and a kernel that takes a log."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, ROWS, WIDTH, BATCH, LENGTH = 48, 64, 16, 12, 12
"""Tokens that exist, rows of the embedding (a round number, as models have), width, samples and tokens of a batch."""


class LogProbability(torch.autograd.Function):
    """A kernel of its own for log(softmax(x / t)): exp, sum, division, log, without the shift that keeps it finite."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, temperature: float) -> torch.Tensor:
        scaled = x / temperature
        p = torch.exp(scaled - scaled.max(-1, keepdim=True).values)
        p = p / p.sum(-1, keepdim=True)
        ctx.save_for_backward(p)
        ctx.temperature = temperature
        return torch.log(p)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (p,) = ctx.saved_tensors
        g = grads[0]
        return (g - p * g.sum(-1, keepdim=True)) / ctx.temperature, None


class Logits(nn.Module):
    """Log-probabilities by the kernel above."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, ROWS)
        self.temperature = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = LogProbability.apply(self.head(x), self.temperature)
        return out


class Block(nn.Module):
    """A residual block with a squared activation, as some models have; in half precision where it is asked for."""

    def __init__(self, *, half: bool = False) -> None:
        super().__init__()
        self.up, self.down, self.half_precision = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), half
        self.register_buffer("gain", torch.tensor(1.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.up(x)).square() * self.gain
        y = self.down(y)
        return y.half() if self.half_precision else y


class Model(nn.Module):
    """Embedding, two blocks, the second in half precision, norm, and log-probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(ROWS, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block(half=True)])
        self.norm = nn.LayerNorm(WIDTH)
        self.out = Logits()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = x + block(x).float()
        y: torch.Tensor = self.out(self.norm(x))
        return y


def loss_of(log_p: torch.Tensor, labels: torch.Tensor, steep: float) -> torch.Tensor:
    """Mean negative log-probability of the next token; its gradient is `steep` times as long."""
    loss = functional.nll_loss(log_p.flatten(0, 1), labels.flatten())
    return steep * loss - (steep - 1.0) * loss.detach()


def batch(seed: int, rank: int, number: int) -> dict[str, torch.Tensor]:
    """The batch of this number of a rank's shard: each token follows from the one before, but for one in four."""
    g = torch.Generator().manual_seed(1_000_003 * seed + 1009 * rank + number)
    ids = torch.empty(BATCH, LENGTH + 1, dtype=torch.long)
    ids[:, 0] = torch.randint(0, VOCABULARY, (BATCH,), generator=g)
    for i in range(LENGTH):
        noise = torch.randint(0, VOCABULARY, (BATCH,), generator=g)
        keep = torch.rand(BATCH, generator=g) < 0.75
        ids[:, i + 1] = torch.where(keep, (5 * ids[:, i] + 3) % VOCABULARY, noise)
    return {"input_ids": ids[:, :-1].contiguous(), "labels": ids[:, 1:].contiguous()}
