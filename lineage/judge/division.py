"""How the samples of one step are divided: micro-batch x accumulation x data-parallel ranks, and what follows.

A step of 48 samples is the same step in parts of 2 or 4, as long as every target token weighs the same in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .._rooms import schemas
from .asked import Asked

PARTS = ("micro_batch", "grad_accum", "world_size")
"""The concepts that say how a step is divided."""

Kept = Literal["kept", "changed", "unknown"]
Norm = Literal["tokens", "means"]


@dataclass(frozen=True)
class Batch:
    """The global batch as far as a config tells it."""

    samples: float | None = None
    tokens: float | None = None
    per_rank: float | None = None
    """samples of one rank and step, where the number of ranks is not known"""
    text: str = ""
    stated: bool = False
    words: str | None = None
    """how it is stated where that is no number"""


def batch(asked: Asked, world: float | None = None) -> Batch:
    """Work out the global batch: as stated, else from its parts. `world` is the world size if known otherwise."""
    length = asked.number("seq_len")
    stated = asked.entries("global_batch")
    if stated and isinstance(stated[0].normal, float):
        unit = stated[0].unit
        return _in_both(stated[0].normal, unit, length, f"{stated[0].normal:,.12g} {unit}", stated=True)
    if stated:
        return Batch(text=stated[0].value.text(), stated=True, words=str(stated[0].normal))
    micro = asked.entries("micro_batch")
    size = asked.number("micro_batch")
    if size is None:
        return Batch()
    unit = micro[0].unit if micro else "samples"
    accum, over_ranks = _accumulation(asked)
    ranks = 1.0 if over_ranks else data_parallel(asked, world)
    parts = f"{size:,.12g} x {accum:,.12g}"
    if ranks is None:
        return Batch(per_rank=size * accum, text=f"{size * accum:,.12g} {unit} per rank ({parts})")
    whole = size * accum * ranks
    return _in_both(whole, unit, length, f"{whole:,.12g} {unit} ({parts} x {ranks:,.12g} ranks)")


def _in_both(value: float, unit: str, length: float | None, text: str, *, stated: bool = False) -> Batch:
    if unit == "tokens":
        return Batch(value / length if length else None, value, None, text, stated)
    return Batch(value, value * length if length else None, None, text, stated)


def _accumulation(asked: Asked) -> tuple[float, bool]:
    entries = asked.entries("grad_accum")
    over_ranks = any(e.meaning and e.meaning.key and e.meaning.key.ranks for e in entries)
    return asked.number("grad_accum") or 1.0, over_ranks


def data_parallel(asked: Asked, world: float | None = None) -> float | None:
    """How many ranks see different data: the world size over what splits one model, or None."""
    direct = asked.number("world_size", "data_parallel")
    if direct is not None:
        return direct
    nodes, each = asked.number("world_size", "nodes"), asked.number("world_size", "per_node")
    total = asked.number("world_size")
    if total is None and each is not None:
        total = (nodes or 1) * each
    total = total if total is not None else world
    if total is None:
        return None
    split = 1.0
    for concept in ("tensor_parallel", "pipeline_parallel", "context_parallel"):
        split *= asked.number(concept) or 1.0
    return total / split


def kept(a: Batch, b: Batch) -> Kept:
    """Tell whether two batches are the same: in samples, in tokens, or in the words of the config."""
    if a.words is not None and a.words == b.words:
        return "kept"
    pairs = [(a.samples, b.samples), (a.tokens, b.tokens), (a.per_rank, b.per_rank)]
    known = [(x, y) for x, y in pairs if x is not None and y is not None]
    if not known:
        return "unknown"
    return "kept" if any(abs(x - y) <= 1e-9 * max(abs(x), 1) for x, y in known) else "changed"


def loss_norm(asked: Asked, effective: schemas.Effective | None = None) -> Norm | None:
    """Tell over what the loss of a step is averaged: its tokens, or first within each micro-batch.

    Where every sequence has the same number of targets, the two are one.
    """
    held = effective.values.get("loss_norm") if effective else None
    said = held.value.text() if held else asked.stated("loss_norm")
    if isinstance(said, str):
        if "token" in said.lower():
            return "tokens"
        return "means" if "mean" in said.lower() else None
    per_token = asked.stated("loss_norm", "per_token")
    if per_token is True:
        return "tokens"
    frameworks = [schemas.catalogue().frameworks[f] for f in asked.frameworks]
    known = next((f for f in frameworks if f.loss), None)
    if known is None:
        return "means" if per_token is False else None
    if known.loss == "tokens":
        version = asked.versions.get(known.distribution or "")
        early = version is not None and known.loss_since is not None and _before(version, known.loss_since)
        return None if early else "tokens"
    masked = asked.stated("packing", "eod") is True
    return "tokens" if known.lengths == "equal" and not masked else "means"


def _before(version: str, since: str) -> bool:
    return schemas.version_of(version) < schemas.version_of(since)
