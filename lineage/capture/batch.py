"""Batch fingerprints: the content of what the model is fed, in whatever container and integer type."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import digest as d
from .later import Later

LENGTH = 32
"""Hex digits of a fingerprint: 128 bits of sha256, short enough for every tracker."""


@dataclass(frozen=True)
class Fingerprint:
    """What is known of one micro-batch. `digest()` may be asked when `later` has arrived."""

    samples: int
    tokens: int
    later: Later | None
    """int64[tensors, 2] lanes on their way to the host; None where the batch holds no tensor"""
    _parts: tuple[tuple[str, str | None], ...]

    def ready(self) -> bool:
        """Whether `digest()` may be asked."""
        return self.later is None or self.later.ready()

    def digest(self) -> str:
        """The fingerprint: 128 bits as hex. Call it only when `ready()`."""
        lanes = self.later.values() if self.later else []
        sha = hashlib.sha256(b"lineage-batch-v1\n")
        at = 0
        for path, text in self._parts:
            content = d.finish("", lanes[at : at + 2]) if text is None else text
            at += 2 * (text is None)
            sha.update(f"{path} {content}\n".encode())
        return sha.hexdigest()[:LENGTH]


def fingerprint(batch: Any) -> Fingerprint:
    """Fingerprint a batch. Nothing waits for the device: see `Fingerprint.later`.

    Integer tensors are taken as int64, so that a batch moved to another device or integer type stays the
    same one; floats by their raw bits and dtype. `samples` is the length of the first dimension of the first
    tensor, `tokens` the number of elements of the first integer tensor of two or more dimensions.
    """
    parts: list[tuple[str, str | None]] = []
    lanes = []
    samples = tokens = 0
    for path, leaf in leaves("", batch):
        if not hasattr(leaf, "element_size"):
            parts.append((path, repr(leaf)))
            continue
        integer = not leaf.is_floating_point() and not leaf.is_complex()
        canonical = leaf.long() if integer else leaf
        parts += [(f"{path} {d.header(canonical)}", None)]
        lanes.append(d.lanes(canonical))
        samples = samples or (int(leaf.shape[0]) if leaf.dim() else 1)
        if integer and leaf.dim() >= 2:
            tokens = tokens or int(leaf.numel())
    return Fingerprint(samples, tokens, _later(lanes), tuple(parts))


def _later(lanes: list[Any]) -> Later | None:
    if not lanes:
        return None
    import torch

    return Later(torch.stack([t.to(lanes[0].device) for t in lanes]))


def leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Walk a batch of any container: (dotted path, tensor or plain value), in a fixed order."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from leaves(f"{path}.{key}", value[key])
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from leaves(f"{path}.{i}", item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for f in dataclasses.fields(value):
            yield from leaves(f"{path}.{f.name}", getattr(value, f.name))
    elif hasattr(value, "data") and isinstance(value.data, Mapping):  # BatchEncoding and its like
        yield from leaves(path, value.data)
    elif hasattr(value, "element_size") or isinstance(value, int | float | str | bool | bytes | None):
        yield path, value
    elif hasattr(value, "__array__"):
        import torch

        yield path, torch.as_tensor(value)
    else:
        yield path, type(value).__qualname__
