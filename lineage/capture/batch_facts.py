"""What a batch was, once its numbers are on the host: digests, statistics, and its samples one by one."""

from __future__ import annotations

import array
import hashlib
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .batch_samples import TOKENS
from .batch_sheet import Arriving
from .batch_view import Known
from .secrets import mask

LENGTH = 32
"""Hex digits of a fingerprint: 128 bits of sha256, short enough for every tracker."""
_M64 = (1 << 64) - 1
_LONGEST_NAME = 120
_LONGEST_SHAPES = 1000


@dataclass
class Part:
    """One field in the digest of the whole: its header, and its text where it is no tensor."""

    path: str
    head: str
    text: str | None = None


@dataclass
class Plan:
    """What was sent, and how it is to be read."""

    samples: int
    tokens: int
    parts: list[Part]
    rows: int
    """samples whose digests were sent"""
    packed: bool
    """whether the samples are sequences of a packed batch; those of length 0 are none"""
    width: int | None
    known: Known
    plain: Mapping[str, Any]
    texts: list[list[Any]]
    notes: list[str]


@dataclass(frozen=True)
class Samples:
    """The samples of a micro-batch in their order; lists of one length, None where the batch does not show it."""

    keys: list[int]
    """128-bit digests of the content"""
    ids: list[str] | None
    tokens: list[int] | None
    domains: list[str] | None

    def __len__(self) -> int:
        return len(self.keys)

    def name(self, i: int) -> str:
        """The id that the loop gave to a sample, else its digest."""
        return self.ids[i] if self.ids is not None else hex_of(self.keys[i])


@dataclass(frozen=True)
class BatchFacts:
    """One micro-batch. None is what the batch does not show."""

    digest: str
    samples: int
    tokens: int
    order_free: str | None
    """sum of the samples' digests, lane by lane modulo 2^64: sums of shards add up to that of the whole"""
    rows: Samples
    documents: int | None = None
    """sequences of a packed batch"""
    target_tokens: int | None = None
    length_min: int | None = None
    length_mean: float | None = None
    length_max: int | None = None
    mask_density: float | None = None
    padding: float | None = None
    out_of_range: int | None = None
    bad_rows: list[int] = field(default_factory=list)
    """rows with ids out of range, where rows can be told"""
    lowest: int | None = None
    highest: int | None = None
    bos: int | None = None
    eos: int | None = None
    pad: int | None = None
    whole_domain: str | None = None
    """the domain of the whole micro-batch, where the batch names one and not one for each sample"""
    shapes: str | None = None
    """path, type and shape of each field that is a tensor, of many the first ones: `image float32[8,3,32,32]`"""
    notes: tuple[str, ...] = ()
    """what could not be read"""

    def domain_counts(self) -> Counter[str]:
        """Samples of each domain; the whole micro-batch counts as one draw where it is of one domain by name."""
        if self.whole_domain is not None:
            return Counter([self.whole_domain])
        return Counter(self.rows.domains or ())


def hex_of(key: int) -> str:
    """A sample's digest as text."""
    return f"{key:032x}"


def read(plan: Plan, arrived: Arriving) -> BatchFacts:
    """Make the facts of a batch of what has arrived."""
    rows = _rows(plan, arrived)
    lengths = _lengths(plan, arrived)
    bad = [arrived.get("bad_ids"), arrived.get("bad_labels")]
    on, positions = arrived.one("mask_on"), arrived.one("mask_all")
    density = on / positions if on is not None and positions else None
    pad = arrived.one("pad")
    domain = plan.plain.get("domains")
    return BatchFacts(
        digest=_digest(plan, arrived),
        samples=plan.samples,
        tokens=plan.tokens,
        order_free=_order_free(rows) if rows.keys else None,
        rows=rows,
        target_tokens=arrived.one("targets"),
        mask_density=density,
        padding=_padding(plan, arrived, pad),
        out_of_range=sum(sum(b) for b in bad if b) if bad[0] is not None else None,
        bad_rows=[i for i in range(plan.samples) if any(b and len(b) > i and b[i] for b in bad)]
        if any(b and len(b) == plan.samples for b in bad)
        else [],
        lowest=arrived.one("lowest"),
        highest=arrived.one("highest"),
        bos=arrived.one("bos"),
        eos=arrived.one("eos"),
        pad=pad,
        whole_domain=_name(domain) if isinstance(domain, str | int) else None,
        shapes=mask("; ".join(p.head.lstrip(". ") for p in plan.parts if p.text is None)[:_LONGEST_SHAPES])[0]
        or None,
        notes=tuple(plan.notes),
        **lengths,
    )


def _digest(plan: Plan, arrived: Arriving) -> str:
    sha = hashlib.sha256(b"lineage-batch-v1\n")
    for part in plan.parts:
        content = part.text
        if content is None:
            content = _lanes(arrived, part.path) + _lanes(arrived, f"{part.path} cut")
        sha.update(f"{part.head} {content}\n".encode())
    sha.update(_lanes(arrived, TOKENS).encode())
    return sha.hexdigest()[:LENGTH]


def _lanes(arrived: Arriving, name: str) -> str:
    """The lanes under a name, of a tensor or of its rows in their order: in hex, each in eight bytes, low one first."""
    found = array.array("q", arrived.get(name) or [])
    if sys.byteorder == "big":
        found.byteswap()
    return found.tobytes().hex()


def _rows(plan: Plan, arrived: Arriving) -> Samples:
    lanes = arrived.get("samples")
    keys = []
    if lanes is not None:
        keys = [((a & _M64) << 64) | (b & _M64) for a, b in zip(lanes[::2], lanes[1::2], strict=True)]
        if plan.texts and len(plan.texts[0]) == len(keys):
            keys = [_of_texts(row) for row in zip(keys, *plan.texts, strict=True)]
    elif plan.texts:
        keys = [_of_texts(row) for row in zip(*plan.texts, strict=True)]
    ids = _column(plan, arrived, "sample_ids", len(keys))
    domains = _column(plan, arrived, "domains", len(keys))
    tokens = arrived.get("lengths")
    if tokens is None or len(tokens) != len(keys):
        tokens = [plan.width] * len(keys) if plan.width is not None else None
    if plan.packed and tokens is not None:
        there = [i for i, n in enumerate(tokens) if n > 0]
        # ids of the sequences may leave the empty ones at the end of a padded list of offsets out
        ids = ids or _column(plan, arrived, "sample_ids", len(there), len(keys))
        domains = domains or _column(plan, arrived, "domains", len(there), len(keys))
        keys, tokens = [keys[i] for i in there], [tokens[i] for i in there]
        ids = [ids[i] for i in there] if ids is not None else None
        domains = [domains[i] for i in there] if domains is not None else None
    for role, found in (("sample_ids", ids), ("domains", domains)):
        given = plan.plain.get(role)
        if found is None and isinstance(given, list) and keys:
            plan.notes.append(f"{role}: {len(given)} of them for {len(keys)} samples")
    return Samples(keys, ids, tokens, domains)


def _of_texts(row: tuple[Any, ...]) -> int:
    return int.from_bytes(hashlib.sha256(repr(row).encode()).digest()[:16], "big")


def _column(plan: Plan, arrived: Arriving, role: str, count: int, padded: int = 0) -> list[str] | None:
    """The ids or domains, one for each sample; None where there are not as many."""
    found = arrived.get(role)
    if found is None:
        found = plan.plain.get(role)
    if not isinstance(found, list) or len(found) != count or not count:
        return None
    return [_name(v) for v in found] + [""] * max(0, padded - count)


def _name(value: Any) -> str:
    return mask(str(value)[:_LONGEST_NAME])[0] if isinstance(value, str) else str(value)


def _order_free(rows: Samples) -> str:
    return hex_of(total(rows.keys))


def total(keys: list[int]) -> int:
    """The order-free digest of samples: each lane's sum modulo 2^64."""
    high = sum(k >> 64 for k in keys) & _M64
    low = sum(k & _M64 for k in keys) & _M64
    return (high << 64) | low


def _lengths(plan: Plan, arrived: Arriving) -> dict[str, Any]:
    lengths = arrived.get("lengths")
    if lengths is not None:
        found = [n for n in lengths if n > 0] if plan.packed else lengths
        if not found:
            return {}
        documents = {"documents": len(found)} if plan.packed else {}
        return {
            "length_min": min(found),
            "length_mean": sum(found) / len(found),
            "length_max": max(found),
            **documents,
        }
    count = arrived.one("documents")
    if not count or arrived.one("starts") != count:
        return {}
    inside = arrived.one("in_documents") or 0
    return {
        "length_min": arrived.one("shortest"),
        "length_mean": inside / count,
        "length_max": arrived.one("longest"),
        "documents": count,
    }


def _padding(plan: Plan, arrived: Arriving, pad: int | None) -> float | None:
    """Share of token positions that are padding: by lengths or the mask, else by a pad id that is no other token's."""
    if not plan.tokens:
        return None
    lengths = arrived.get("lengths")
    if lengths is not None and all(n >= 0 for n in lengths) and sum(lengths) <= plan.tokens:
        return 1.0 - sum(lengths) / plan.tokens
    known = plan.known
    if pad is not None and known.pad_id not in (*known.eos_ids, *known.bos_ids):
        return pad / plan.tokens
    return None
