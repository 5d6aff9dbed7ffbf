"""The header of a safetensors file: 8 bytes of length, then JSON (safetensors/README.md, "Format")."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from . import dtypes
from .contents import Piece, Tensor
from .errors import CutOff, Damaged
from .folder import Folder, parse_json, pointer

MOST_HEADER = 100_000_000
"""The limit that safetensors itself has (safetensors/src/tensor.rs, MAX_HEADER_SIZE)."""
_FIRST = 1 << 14
"""Bytes that are read at once: most headers are no longer."""
EXTENSION = ".safetensors"


@dataclass
class Header:
    """What a safetensors file says of itself."""

    tensors: list[Tensor]
    metadata: dict[str, str]
    problems: list[str]
    """what does not fit in it, without being cut off"""


def read(folder: Folder, name: str, component: str = "weights") -> Header:
    """Read a header and hold the sizes in it against the file's. Raises `CutOff`, `Damaged`, `Unreadable`."""
    with folder.open(name) as f:
        head = f.read(_FIRST)
        if pointer(head):
            parse_json(head[:40], name)
        if len(head) < 8:
            raise CutOff(f"{name} has {f.size} bytes, less than a safetensors header")
        length = int.from_bytes(head[:8], "little")
        if length > MOST_HEADER or (f.size >= 9 and length < 2):
            raise Damaged(f"{name} is no safetensors file: its header would have {length:,} bytes")
        raw = head[8 : 8 + length]
        if len(raw) < length:
            raw += f.read(length - len(raw))
        if len(raw) < length:
            raise CutOff(
                f"{name} is cut off in its header: {f.size:,} bytes, and the header alone has {length:,}"
            )
        return _parse(parse_json(raw, f"the header of {name}"), name, 8 + length, f.size, component)


def _parse(data: object, name: str, start: int, size: int, component: str) -> Header:
    if not isinstance(data, dict):
        raise Damaged(f"the header of {name} is no object")
    metadata = data.pop("__metadata__", None) or {}
    tensors, spans, problems = [], [], []
    for tensor, entry in data.items():
        try:
            dtype = dtypes.OF_SAFETENSORS.get(entry["dtype"], str(entry["dtype"]))
            shape = tuple(int(n) for n in entry["shape"])
            begin, end = (int(n) for n in entry["data_offsets"])
        except (KeyError, TypeError, ValueError):
            raise Damaged(f"the header of {name} says nothing usable of {tensor[:120]!r}") from None
        each = dtypes.SIZE.get(dtype)
        if begin < 0 or end < begin or any(n < 0 for n in shape):
            raise Damaged(f"the header of {name} gives {tensor[:120]!r} a place that cannot be")
        if each is not None and each * math.prod(shape) != end - begin:
            problems.append(f"{tensor} of shape {list(shape)} ({dtype}) has {end - begin:,} bytes in {name}")
        spans.append((begin, end, tensor))
        tensors.append(Tensor(tensor, dtype, shape, component, (Piece(name, start + begin, end - begin),)))
    last = max((end for _, end, _ in spans), default=0)
    if start + last > size:
        lost = [t for _, end, t in spans if start + end > size]
        raise CutOff(
            f"{name} is cut off: {size:,} bytes, and its header needs {start + last:,}; "
            f"{len(lost)} of {len(spans)} tensors are not whole, such as {lost[0]}"
        )
    if start + last < size:
        problems.append(f"{name} has {size - start - last:,} bytes more than its header tells of")
    spans.sort()
    for (_, end, a), (begin, _, b) in pairwise(spans):
        if begin < end:
            problems.append(f"{a} and {b} overlap in {name}")
    return Header(tensors, metadata if isinstance(metadata, dict) else {}, problems)
