"""Digests of the tensors in a checkpoint's files: the same values that the live tensors have, whole or sharded.

The bytes of each tensor are read once, by ranges, wherever they lie: rows of a safetensors file, a storage in a zip of
torch.save with any strides, a tensor that DCP cut over the files of many ranks. Needs NumPy, and neither torch nor the
framework. `capture.digest` defines the digest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..digest_text import finish
from . import dtypes, torch_file
from .contents import Piece, Tensor
from .errors import CheckpointError, Damaged
from .folder import Folder
from .lanes import Lanes, add, part, word
from .pickle_values import TensorRef
from .sources import Bytes, Window

CHUNK = 16 << 20
"""Bytes that are read and digested at once, by each thread."""
MOST_STRIDED = 8 << 30
"""Bytes of one tensor that is put in order in memory before it is digested."""
EMBEDDED = ".distcp"
"""Files in which each piece is a file of torch.save of its own."""
Tell = Callable[[int], None]


@dataclass(frozen=True)
class Digested:
    """A tensor at rest."""

    tensor: Tensor
    digest: str | None
    why: str | None = None
    """why there is none, in words"""

    @property
    def head(self) -> str:
        """Type and shape, as digests have them."""
        return head(self.tensor)


class _Block(NamedTuple):
    """A part of a tensor as it lies in a file."""

    at: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    offset: int
    stride: tuple[int, ...] | None

    def extent(self, each: int) -> int:
        """Bytes from its first element to the end of its last."""
        if 0 in self.sizes:
            return 0
        if self.stride is None:
            return math.prod(self.sizes) * each
        return (1 + sum((n - 1) * s for n, s in zip(self.sizes, self.stride, strict=True))) * each


def head(tensor: Tensor) -> str:
    """Type and shape of a tensor, as `capture.digest.header` writes them."""
    return f"{tensor.dtype}[{','.join(map(str, tensor.shape))}]"


def size(tensors: Sequence[Tensor]) -> int:
    """Bytes of tensors."""
    return sum(math.prod(t.shape) * dtypes.SIZE.get(t.dtype, 0) for t in tensors)


def digests(
    folder: Folder, tensors: Sequence[Tensor], *, threads: int = 1, tell: Tell = lambda n: None
) -> list[Digested]:
    """Digest tensors, in their order. What is stored once and named twice is read once.

    Args:
        threads: tensors that are read at a time; each takes some 50 MB of memory.
        tell: called with the bytes of each portion.

    What cannot be read has no digest, and says why. Raises `ImportError` without NumPy.
    """
    import numpy  # noqa: F401 - missing, it is said before anything is read

    firsts: dict[Any, int] = {}
    for i, t in enumerate(tensors):
        firsts.setdefault((t.pieces, t.stride, t.dtype, t.shape), i)
    order = sorted(firsts.values(), key=lambda i: [(p.file, p.offset or 0) for p in tensors[i].pieces[:1]])
    with ThreadPoolExecutor(max(1, threads)) as pool:
        done = pool.map(lambda i: _digested(folder, tensors[i], tell), order)
        found = dict(zip(order, done, strict=True))
    out = []
    for t in tensors:
        first = found[firsts[t.pieces, t.stride, t.dtype, t.shape]]
        out.append(replace(first, tensor=t))
    return out


def _digested(folder: Folder, tensor: Tensor, tell: Tell) -> Digested:
    width, each = word(tensor.dtype), dtypes.SIZE.get(tensor.dtype)
    if width is None or each is None:
        return Digested(tensor, None, f"no digest is made of {tensor.dtype}")
    try:
        with ExitStack() as files:
            opened: dict[str, Bytes] = {}

            def of(name: str) -> Bytes:
                if name not in opened:
                    opened[name] = files.enter_context(folder.open(name))
                return opened[name]

            blocks = [_block(of, tensor, p) for p in tensor.pieces]
            _check(of, tensor, blocks, each)
            lanes = _lanes(of, tensor.shape, blocks, each, width, tell)
    except CheckpointError as e:
        return Digested(tensor, None, str(e))
    except MemoryError:
        return Digested(tensor, None, "there is not enough memory to put it in order")
    return Digested(tensor, finish(head(tensor), lanes))


def _block(of: Callable[[str], Bytes], tensor: Tensor, piece: Piece) -> _Block:
    """Where a piece's elements begin in its file. Raises `Damaged`, and what reading raises."""
    if piece.offset is None:
        raise Damaged(f"{piece.file} does not say where it lies")
    if not piece.file.endswith(EMBEDDED):
        return _Block((0,) * len(tensor.shape), tensor.shape, piece.file, piece.offset, tensor.stride)
    window = Window(of(piece.file), piece.offset, piece.length or 0)
    made = torch_file.read_from(window, piece.file)
    ref = made.value
    place = made.piece(ref).offset if isinstance(ref, TensorRef) else None
    if place is None:
        raise Damaged(f"the entry at byte {piece.offset:,} of {piece.file} is no plain tensor")
    if ref.dtype != tensor.dtype or len(ref.shape) != len(tensor.shape):
        raise Damaged(
            f"the entry at byte {piece.offset:,} of {piece.file} is {ref.dtype}{list(ref.shape)}, and the "
            f"metadata says {head(tensor)}"
        )
    at = piece.at or (0,) * len(ref.shape)
    return _Block(at, ref.shape, piece.file, piece.offset + place, None if ref.by_rows else ref.stride)


def _check(of: Callable[[str], Bytes], tensor: Tensor, blocks: Sequence[_Block], each: int) -> None:
    """Blocks lie in the tensor and in their files, and have as many elements as it: before memory is asked for."""
    held = sum(math.prod(b.sizes) for b in blocks)
    if held != math.prod(tensor.shape):
        raise Damaged(f"{held:,} of its {math.prod(tensor.shape):,} elements are in the files")
    for b in blocks:
        if any(a < 0 or a + n > s for a, n, s in zip(b.at, b.sizes, tensor.shape, strict=True)):
            raise Damaged(f"a part of it in {b.file} lies outside of it")
        if b.offset < 0 or b.offset + b.extent(each) > of(b.file).size:
            raise Damaged(f"it lies beyond the end of {b.file}")
        if b.stride is not None and math.prod(b.sizes) * each > min(
            MOST_STRIDED, 64 * b.extent(each) + CHUNK
        ):
            raise Damaged("its elements do not lie row by row, and it is too big to be put in order")


def _lanes(
    of: Callable[[str], Bytes],
    shape: tuple[int, ...],
    blocks: Sequence[_Block],
    each: int,
    width: int,
    tell: Tell,
) -> Lanes:
    """The lanes of a tensor from its blocks."""
    row = math.prod(shape[1:]) * each
    total = (0, 0)
    if 0 in shape:
        return total
    if all(
        b.sizes[1:] == shape[1:] for b in blocks
    ):  # cut by rows, if at all: each block is one run of words
        for b in blocks:
            first = (b.at[0] if b.at else 0) * row
            total = add(total, _run(of(b.file), b, first, each, width, tell))
        return total
    rows = max(1, CHUNK // row)
    for top in range(0, shape[0], rows):
        band = _band(of, shape, blocks, range(top, min(top + rows, shape[0])), each, tell)
        total = add(total, part(band.view(f"<u{width}").reshape(-1), top * row // width))
    return total


def _run(f: Bytes, b: _Block, first: int, each: int, width: int, tell: Tell) -> Lanes:
    """The lanes of a block whose elements are one run of the tensor, from its byte `first` on."""
    import numpy as np

    if b.stride is not None:
        data = _in_order(f, b, each)
        tell(data.nbytes)
        return part(data.view(f"<u{width}"), first // width)
    total, at, end = (0, 0), b.offset, b.offset + b.extent(each)
    while at < end:
        # After the first portion each begins where a block of words does.
        portion = min(CHUNK - first % (4096 * width), end - at)
        f.seek(at)
        data = f.read(portion)
        if len(data) < portion:
            raise Damaged("its file ends before it does")
        total = add(total, part(np.frombuffer(data, f"<u{width}"), first // width))
        tell(portion)
        at, first = at + portion, first + portion
    return total


def _band(
    of: Callable[[str], Bytes],
    shape: tuple[int, ...],
    blocks: Sequence[_Block],
    rows: range,
    each: int,
    tell: Tell,
) -> Any:
    """Some rows of a tensor, put together from blocks that hold parts of rows: uint8[rows, ..., bytes]."""
    import numpy as np

    out: Any = np.zeros((len(rows), *shape[1:], each), np.uint8)
    for b in blocks:
        low, high = max(rows.start, b.at[0]), min(rows.stop, b.at[0] + b.sizes[0])
        if low >= high or 0 in b.sizes:
            continue
        f = of(b.file)
        if b.stride is None:
            one = math.prod(b.sizes[1:]) * each
            f.seek(b.offset + (low - b.at[0]) * one)
            raw = f.read((high - low) * one)
            if len(raw) < (high - low) * one:
                raise Damaged(f"{b.file} ends before a part of it does")
            data = np.frombuffer(raw, np.uint8)
        else:
            whole = _in_order(f, b, each).reshape(b.sizes[0], -1)
            data = whole[low - b.at[0] : high - b.at[0]]
        inside = tuple(slice(a, a + n) for a, n in zip(b.at[1:], b.sizes[1:], strict=True))
        out[(slice(low - rows.start, high - rows.start), *inside)] = data.reshape(
            high - low, *b.sizes[1:], each
        )
        tell(data.nbytes)
    return out


def _in_order(f: Bytes, b: _Block, each: int) -> Any:
    """A block with strides, its elements put row by row: uint8[bytes]. Reads from its first element to its last."""
    import numpy as np

    f.seek(b.offset)
    data = f.read(b.extent(each))
    if len(data) < b.extent(each):
        raise Damaged(f"{b.file} ends before it does")
    kind = {1: "u1", 2: "<u2", 4: "<u4", 8: "<u8", 16: "<c16"}[each]
    elements = np.frombuffer(data, kind)
    strides = tuple(s * each for s in b.stride or ())
    view = np.lib.stride_tricks.as_strided(elements, b.sizes, strides, writeable=False)
    return np.ascontiguousarray(view).reshape(-1).view(np.uint8)
