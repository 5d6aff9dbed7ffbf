"""Batch fingerprints: the content of what the model is fed, in whatever container and integer type."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import batch_facts as facts_
from . import batch_stats as stats
from .batch_containers import is_integer, is_tensor
from .batch_facts import BatchFacts, Part
from .batch_samples import Content
from .batch_sheet import Arriving, Sheet
from .batch_view import NOTHING, Field, Known, Unread, flat, view
from .later import Later


@dataclass
class Fingerprint:
    """What is known of one micro-batch. `facts()` and `digest()` may be asked when it is `ready()`.

    Once its facts were asked for it can be pickled.
    """

    samples: int
    tokens: int
    _arriving: Arriving | None = None
    _plan: facts_.Plan | None = None
    _facts: BatchFacts | None = None

    def ready(self) -> bool:
        """Whether all of it is on the host."""
        return self._arriving is None or self._arriving.ready()

    def facts(self) -> BatchFacts:
        """Digests and statistics. Call it only when `ready()`."""
        found = self._facts
        if found is None:
            assert self._plan is not None
            assert self._arriving is not None
            found = self._facts = facts_.read(self._plan, self._arriving)
        return found

    def digest(self) -> str:
        """The fingerprint in which the order of samples counts: 128 bits as hex. Call it only when `ready()`."""
        return self.facts().digest

    def __getstate__(self) -> dict[str, Any]:
        return {"samples": self.samples, "tokens": self.tokens, "_facts": self.facts()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._arriving = self._plan = None
        self.__dict__.update(state)


def fingerprint(batch: Any, known: Known = NOTHING, *, ids: Any = None, domains: Any = None) -> Fingerprint:
    """Fingerprint a batch. Nothing waits for the device, nothing is copied off it but the result.

    Integer tensors are taken as int64, so that a batch moved to another device or integer type stays the
    same one; floats by their raw bits and dtype. `samples` is the number of rows, `tokens` the number of token ids
    where the batch shows some, padding included. `ids` and `domains` name each sample, or each sequence of a packed
    batch; they stand for what the batch itself holds of them.
    """
    found = view(batch, known)
    for role, given in (("sample_ids", ids), ("domains", domains)):
        if given is not None:
            found.roles[role] = Field(
                role, given if is_tensor(given) or isinstance(given, str) else list(given)
            )
    sheet, content = Sheet(), Content(found)
    notes = [
        f"{f.path or 'batch'}: content of {f.value}" for f in found.fields if isinstance(f.value, Unread)
    ]
    notes += [f"digests of samples: {path} is not divided by sample" for path in content.undivided[:1]]
    parts = [_part(f, content, sheet, notes) for f in found.fields]
    count, cut = _try(lambda: content.put(sheet), "digests of samples", notes) or (0, None)
    _try(lambda: stats.measure(found, known, sheet, cut), "statistics", notes)
    named = {r: found.roles[r].value for r in ("sample_ids", "domains") if r in found.roles}
    for role, value in named.items():
        if is_tensor(value):
            sheet.put(role, value)
    plan = facts_.Plan(
        samples=found.samples,
        tokens=found.tokens,
        parts=parts,
        rows=count,
        packed=cut is not None,
        width=found.width,
        known=known,
        plain={r: v for r, v in named.items() if not is_tensor(v)},
        texts=[] if content.undivided else found.columns(),
        notes=notes,
    )
    return Fingerprint(found.samples, found.tokens, sheet.send(Later), plan)


def _try(action: Callable[[], Any], what: str, notes: list[str]) -> Any:
    """Let one part of a fingerprint fail without the others: an odd tensor, or a device without the operator."""
    try:
        return action()
    except Exception as e:
        notes.append(f"{what}: {type(e).__name__}")  # its words may hold content
        return None


def _part(f: Field, content: Content, sheet: Sheet, notes: list[str]) -> Part:
    """Take one field for the digest; what is no tensor is its own text."""
    value = flat(f.value)
    if not is_tensor(value):
        return Part(f.path, f.path, text=repr(value))
    kind = "int64" if is_integer(value) else str(value.dtype).removeprefix("torch.")
    head = f"{f.path} {kind}[{','.join(map(str, value.shape))}]"
    try:
        content.take(f, sheet)
    except Exception as e:
        notes.append(f"{f.path}: {type(e).__name__}"[:200])
        return Part(f.path, head, text="not read")
    return Part(f.path, head)


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
