"""TensorBoard event files, through the reader of the `tensorboard` package (no TensorFlow)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from .rows import ImportTrouble, Note, Row, Told

INSTALL = 'pip install "runlineage[tensorboard]"'


def is_events(start: bytes) -> bool:
    """Whether a file begins with the record of an event file: a length, its checksum, and the version."""
    return len(start) >= 24 and start[4:8] == b"\0\0\0\0" and b"brain.Event:" in start[:64]


class TensorBoard:
    """Scalars by tag, in the old form (`simple_value`) and as tensors of one element."""

    name: ClassVar[str] = "tensorboard"
    place: ClassVar[str] = "event"
    axis: ClassVar[str] = "step of the event"
    signals: ClassVar[dict[str, str]] = {}
    averaged: ClassVar[frozenset[str]] = frozenset()
    about: ClassVar[tuple[str, ...]] = (
        "tags of one file may count different things (batches, epochs): each stands at the step of its own event",
    )

    def read(self, path: Path, told: Told) -> Iterator[Row | Note]:
        """Give all scalar events. Raises `ImportTrouble` without the package, saying how to install it."""
        try:
            from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
            from tensorboard.util import tensor_util
        except ImportError:
            raise ImportTrouble(
                f"{path} is a TensorBoard event file; to read it: {INSTALL} (it needs no TensorFlow)"
            ) from None
        others: dict[str, int] = {}
        n = 0
        try:
            for n, event in enumerate(EventFileLoader(str(path)).Load(), 1):
                if event.WhichOneof("what") != "summary":
                    continue
                at = datetime.fromtimestamp(event.wall_time, UTC)
                values: dict[str, float] = {}
                for v in event.summary.value:
                    scalar = _scalar(v, tensor_util)
                    if scalar is None:
                        others[v.tag] = others.get(v.tag, 0) + 1
                    else:
                        values[v.tag] = scalar
                if values:
                    told.recognised += 1
                    yield Row(int(event.step), values, n, _kind(values), None, False, None, at)
        except Exception as e:  # its readers raise errors of their own for a damaged record
            if n == 0:
                raise ImportTrouble(
                    f"{path} cannot be read as an event file: {type(e).__name__}: {e}"
                ) from None
            told.torn = True
            told.say(
                f"the event file is damaged after event {n:,} ({type(e).__name__}): what comes after was lost"
            )
        told.lines = n
        if (left := _left(path)) and not told.torn:
            told.torn = True
            told.say(
                f"the last {left:,} bytes are no whole record: the file is cut off, or still being written"
            )
        if others:
            names = ", ".join(sorted(others)[:5])
            told.say(f"{len(others):,} tags hold no scalars and were not read: {names}")


def _left(path: Path) -> int:
    """Bytes after the last whole record; a record is a length, its checksum, the data and theirs."""
    size, at = path.stat().st_size, 0
    with path.open("rb") as f:
        while at + 16 <= size:
            f.seek(at)
            end = at + 16 + int.from_bytes(f.read(8), "little")
            if end > size:
                break
            at = end
    return size - at


def _kind(values: dict[str, float]) -> Any:
    from ...judge import series_names
    from .tables import HELD_OUT

    return "eval" if all(set(series_names.words(k)) & HELD_OUT for k in values) else "train"


def _scalar(v: Any, tensor_util: Any) -> float | None:
    kind = v.WhichOneof("value")
    if kind == "simple_value":
        return float(v.simple_value)
    if kind == "tensor" and v.metadata.plugin_data.plugin_name in ("", "scalars"):
        array = tensor_util.make_ndarray(v.tensor)
        if array.size == 1 and array.dtype.kind in "fiu":
            return float(array.reshape(()))
    return None


__all__ = ["INSTALL", "TensorBoard", "is_events"]
