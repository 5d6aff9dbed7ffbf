"""Fingerprints that are made where the batch is made: in a worker process of a loader."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any
from weakref import ref

from .batch import Fingerprint, fingerprint, leaves
from .batch_containers import is_tensor
from .batch_view import NOTHING, Known

KEPT = 256
"""Batches whose fingerprints are remembered; the batches themselves are not kept alive."""


class Fingerprinted:
    """A loader whose batches come with fingerprints, made by its worker processes; see `fingerprinted`."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self.known = NOTHING
        """what the recorder knows of token ids, if it was given this loader before the first batch"""
        if callable(getattr(loader, "collate_fn", None)):
            self._loader = copy.copy(loader)  # the loop's own loader stays as it is
            self._loader.__dict__["collate_fn"] = Collate(loader.collate_fn)

    def __iter__(self) -> Iterator[Any]:
        collate = getattr(self._loader, "collate_fn", None)
        if isinstance(collate, Collate):
            collate.known = self.known
        for item in self._loader:
            if isinstance(item, Carried):
                if item.fingerprint is not None:
                    remember(item.batch, item.fingerprint)
                yield item.batch
            else:
                yield item

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)


def fingerprinted(loader: Any) -> Any:
    """Let a `DataLoader` fingerprint its batches in its worker processes; iterate over what is returned.

    The batches are bit for bit those of the loader, without any key more: the fingerprint travels beside them and
    `rec.step(step, batch)` finds it as long as it is given the same tensors, unchanged. For a batch that was copied or
    changed since (another device, another shape) a new one is made. The loader that was given stays as it is, and
    shares its data set and sampler with what is returned. A loader without a `collate_fn` is passed through.

        loader = lineage.fingerprinted(DataLoader(data, num_workers=4, pin_memory=True))
        rec = lineage.attach(run, model=model, loader=loader)
    """
    return Fingerprinted(loader)


class Collate:
    """A collate function, and the fingerprint of what it gives. It can be pickled if the function can."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate
        self.known: Known = NOTHING

    def __call__(self, samples: Any) -> Carried:
        """Put a batch together, with its fingerprint beside it."""
        batch = self._collate(samples)
        made = None
        try:
            made = fingerprint(batch, self.known)
            if made.ready():
                made.facts()
        except Exception:  # the step makes one, and says what fails
            made = None
        return Carried(batch, made)


class Carried:
    """A batch and its fingerprint on the way from the worker."""

    def __init__(self, batch: Any, made: Fingerprint | None) -> None:
        self.batch, self.fingerprint = batch, made

    def pin_memory(self, *device: Any) -> Carried:
        """What the loader's pinning thread asks of a batch of a type of its own."""
        from torch.utils.data._utils.pin_memory import pin_memory

        self.batch = pin_memory(self.batch, *device)
        return self


_made: deque[tuple[int, list[tuple[ref[Any], int]], Fingerprint]] = deque(maxlen=KEPT)
"""(id of the batch, its tensors with their versions, its fingerprint)"""


def _tensors(batch: Any) -> list[Any]:
    return [leaf for _, leaf in leaves("", batch) if is_tensor(leaf)]


def remember(batch: Any, made: Fingerprint) -> None:
    """Keep the fingerprint of a batch as long as its tensors live."""
    tensors = _tensors(batch)
    if tensors:
        _made.append((id(batch), [(ref(t), t._version) for t in tensors], made))


def found(batch: Any) -> Fingerprint | None:
    """The fingerprint that was made of this very batch, if it still holds the same tensors, unchanged."""
    if not _made:
        return None
    same = [entry for entry in _made if entry[0] == id(batch)]
    for _, refs, made in reversed(same):
        tensors = _tensors(batch)
        if len(tensors) == len(refs) and all(
            r() is t and t._version == version for (r, version), t in zip(refs, tensors, strict=True)
        ):
            known: Fingerprint = made
            return known
    return None
