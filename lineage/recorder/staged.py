"""Digests of an asynchronous save, made of the copy that is staged for it, on a thread of their own.

Staging copies the state to the host anyway; training then goes on and changes the original. The digests of that copy
are those of the state that is saved, and neither another copy nor a wait is needed for them. That the copy is one of
the state as it is now is looked at in some places of each tensor: a stager that hands out what it staged before
would else be believed. Where it is not, the live state is digested, and the files of the save tell.

What is not in the staged state (buffers that no state_dict holds) is digested before training goes on, and what lies
on a device is digested there, where it costs less than on the host; nothing waits for the values.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .._rooms import schemas
from ..capture import digest, digest_many, later, placement, state
from ..capture.later import Later
from ..capture.placement import Placed
from . import agreeing
from .contain import log
from .writer import Writer

if TYPE_CHECKING:
    from .recorder import Recorder

APART = tuple(c for c in schemas.COMPONENTS if c not in state.TENSORS)
"""Components of a few bytes: they are read when the save begins."""
PLACES = 64
"""Elements that are compared, at each of three places of a tensor, with the copy of it."""
PATIENCE = 600.0
"""Seconds that the files of a save wait for its digests, on the layer's own thread."""
Told = Callable[[list[schemas.ComponentDigest]], None]


class Stager(Protocol):
    """What `rec.saving(step, stager=...)` takes: something that stages, and hands both sides over."""

    def expect(self, staged: Staged) -> None:
        """The next state that is staged belongs to this save."""


@dataclass
class _Item:
    """One tensor to digest: this rank's part as it is now, and where it lies in the whole."""

    local: Any
    place: digest_many.Place | None
    leaf: int | None = None
    """its number among the tensors of the state dict"""


@dataclass
class _Named:
    """A component of tensors, whose digest is not made yet."""

    component: str
    scope: str
    named: dict[str, Any] | None
    """None where nothing of it can be read; `note` says why"""
    detail: dict[str, Any]
    note: str | None


class _Names(state.Lanes):
    """Takes note of the tensors of a component, and reads none."""

    def __init__(self) -> None:
        super().__init__()
        self.named: dict[str, Any] = {}

    def digests(self, named: Mapping[str, Any]) -> dict[str, str]:
        self.named = dict(named)
        return {}


class Staged:
    """The digests of one save. `take` is called on the training thread, once what was staged is there or under way."""

    def __init__(self, rec: Recorder, w: Writer, step: int, told: Told) -> None:
        self._rec, self._w, self._step, self._told = rec, w, step, told
        self.begun = False
        self.done = threading.Event()
        self._leaving, self._left = threading.Lock(), False
        self._taken: list[Any] = []
        """what was staged, until training goes on"""
        self._placed: list[Placed] = []
        self._components: list[_Named] = []
        self._items: dict[tuple[int, bool], _Item] = {}
        """(id of a tensor, whether it counts as a part of the whole) -> what is digested of it"""
        self._now: list[tuple[list[tuple[int, bool]], Later]] = []

    def take(self, live: Any, copy: Any) -> None:
        """Look at the state that was given to the stager, and at what it made of it.

        Without a copy (None), or where it is still made (a future), all is digested now.
        """
        self.begun = True
        try:
            self._collect()
            self._match(list(leaves(live)), copy)
            self._digest_now()
            with self._leaving:
                self._taken.append(copy)
                left = self._left
            if left:
                self._start()
        except Exception as e:
            self._failed(e)

    def leave(self) -> None:
        """The call that saves has returned: digesting begins now, so that it takes no core from that call."""
        with self._leaving:
            self._left = True
        self._start()

    def _start(self) -> None:
        with self._leaving:
            taken, self._taken = self._taken, []
        for copy in taken:
            threading.Thread(target=self._work, args=(copy,), name="lineage-staged", daemon=True).start()

    def _failed(self, error: Exception) -> None:
        self._rec.trouble("checkpoint", error, "a save is recorded without the digests of its tensors")
        self.done.set()

    def _collect(self) -> None:
        """All tensors of the state, each once, with its place in the whole."""
        watched = self._rec.watched
        for component in state.TENSORS:
            names = _Names()
            found, scope = state.read(watched, component, names)
            if found is None:
                continue
            named = names.named if found[0] is not None else None
            self._components.append(_Named(component, scope, named, found[1], found[2]))
            for t in names.named.values():
                self._items[id(t), True] = _Item(state.local(t), state.place(t)[1])
        for p in placement.look(watched, self._rec.steps.agreeing._replicas).placed:
            key = (p.source, True) if p.whole else (id(p.tensor), False)
            if not digest.has_digest(p.tensor) or (p.whole and key not in self._items):
                continue
            self._items.setdefault(key, _Item(p.tensor, None))
            self._placed.append(p)

    def _match(self, given: Sequence[Any], copy: Any) -> None:
        """Find each tensor among those of the state dict, by where it lies in memory."""
        at = {_where(t): n for n, t in enumerate(given) if t.numel() and t.device.type == "cpu"}
        ready = copy is not None and not hasattr(copy, "add_done_callback")
        copies = list(leaves(copy)) if ready else []
        if not ready and copy is not None:
            at = {}  # under way: it cannot be told yet whether it is a copy of this state
        for item in self._items.values():
            leaf = at.get(_where(item.local)) if item.local.device.type == "cpu" else None
            if leaf is not None and _alike(copies, leaf, item.local):
                item.leaf = leaf
        stale = [i for i in self._items.values() if i.leaf is not None and _other(copies[i.leaf], i.local)]
        if stale:
            log.warning(
                "lineage: step %d: %d of %d tensors that were staged for the save are not as they are now; the digests "
                "are of the live state",
                self._step,
                len(stale),
                len(self._items),
            )
            for item in self._items.values():
                item.leaf = None

    def _digest_now(self) -> None:
        by_device: dict[Any, list[tuple[int, bool]]] = {}
        for key, item in self._items.items():
            if item.leaf is None:
                by_device.setdefault(item.local.device, []).append(key)
        for keys in by_device.values():
            self._now.append((keys, Later(_lanes([self._items[k] for k in keys]))))
            for k in keys:
                self._items[k].local = None  # nothing is held back that training may let go

    def _work(self, copy: Any) -> None:
        try:
            found = self._of_copies(list(leaves(copy)))
            for keys, values in self._now:
                if not later.wait(values.ready, PATIENCE):
                    raise TimeoutError("digests did not come off the device")
                flat = values.values()
                found |= {k: (flat[2 * n], flat[2 * n + 1]) for n, k in enumerate(keys)}
            self._rows(found)
            self._told(self._digests(found))
        except Exception as e:
            self._failed(e)
        finally:
            self._items, self._components, self._placed = {}, [], []
            self.done.set()

    def _of_copies(self, copies: list[Any]) -> dict[tuple[int, bool], tuple[int, int]]:
        keys = [k for k, item in self._items.items() if item.leaf is not None]
        if not keys:
            return {}
        staged = [_Item(copies[self._items[k].leaf or 0], self._items[k].place) for k in keys]
        flat = _lanes(staged).reshape(-1).tolist()
        return {k: (flat[2 * n], flat[2 * n + 1]) for n, k in enumerate(keys)}

    def _rows(self, found: Mapping[tuple[int, bool], tuple[int, int]]) -> None:
        """The rows by tensor, that a resume on any number of ranks is held against."""
        if not self._placed:
            return
        w = self._w
        lanes = [found[(p.source, True) if p.whole else (id(p.tensor), False)] for p in self._placed]
        rows = agreeing.columns(w.ids.segment, w.world.rank, self._step, self._placed, lanes, agreeing.SAVE)
        w.columns("states", rows)

    def _digests(self, found: Mapping[tuple[int, bool], tuple[int, int]]) -> list[schemas.ComponentDigest]:
        lanes = state.Lanes({source: pair for (source, whole), pair in found.items() if whole})
        return [state.component(c.component, c.scope, self._found(c, lanes)) for c in self._components]

    def _found(self, c: _Named, lanes: state.Lanes) -> state.Found:
        if c.named is None:
            return None, c.detail, c.note
        digests = lanes.digests(c.named)
        of_kinds = (
            state.kinds_of_buffers(self._rec.watched.model, digests) if c.component == "buffers" else {}
        )
        return digest.root(digests), c.detail | of_kinds, c.note


def leaves(tree: Any) -> Iterator[Any]:
    """The tensors of nested dicts and lists, this rank's part of each, in order."""
    if isinstance(tree, Mapping):
        for value in tree.values():
            yield from leaves(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from leaves(value)
    elif hasattr(tree, "element_size") and hasattr(tree, "data_ptr"):
        yield state.local(tree.detach())


def _where(t: Any) -> tuple[int, Any, tuple[int, ...]]:
    """Where a tensor lies, and as what."""
    return int(t.data_ptr()), t.dtype, tuple(t.shape)


def _alike(copies: Sequence[Any], leaf: int, t: Any) -> bool:
    if leaf >= len(copies):
        return False
    return copies[leaf].dtype == t.dtype and tuple(copies[leaf].shape) == tuple(t.shape)


def _other(copy: Any, t: Any) -> bool:
    """Whether a copy holds other bits than a tensor: at its beginning, in its middle and at its end."""
    if not (t.is_contiguous() and copy.is_contiguous()):
        return True
    import torch

    a, b = (x.detach().view(-1) for x in (t, copy))
    for at in {0, max(0, a.numel() // 2 - PLACES), max(0, a.numel() - PLACES)}:
        one, two = (x[at : at + PLACES].view(torch.uint8) for x in (a, b))
        if not torch.equal(one, two):
            return True
    return False


def _lanes(items: Sequence[_Item]) -> Any:
    import torch

    with torch.no_grad():
        return digest_many.lanes([i.local for i in items], [i.place for i in items])
