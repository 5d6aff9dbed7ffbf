"""What is done to weights and optimizer between two updates, found without reading their content.

Torch counts the in-place writes to a tensor (`Tensor._version`), on the host, so asking waits for no device.
The optimizer writes inside the step block; a write between two blocks is somebody else's. The counter does not
see writes through `.data`, nor those of fused kernels, and it does not tell whether the values are others
afterwards: an averaged copy that is swapped in for an evaluation and out again leaves them as they were. So a
few elements of one parameter are kept from the end of each block, and compared when such a write was seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from .later import Later
from .watched import Watched

SAMPLE = 64
"""Elements of one parameter that are kept from one block to the next."""
QUIET = 2
"""Updates in a row without a write outside the block, before one counts as unusual."""

_versions = attrgetter("_version")
_trainable = attrgetter("requires_grad")


@dataclass(frozen=True)
class Found:
    """Something that was done beside the updates."""

    concept: str
    """what was changed, where that is certain; else what may have been"""
    text: str
    certain: bool = True
    before: str | None = None
    after: str | None = None
    unseen: tuple[str, ...] = ()
    """what is not shown any more from here on"""
    step: int | None = None
    """the first update made with it, where that is another one than the one in which it was found"""


class Parameters:
    """The parameters of the model, listed anew now and then: walking the modules takes longer than all else here."""

    EVERY = 64
    """updates between two listings"""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._model: Any = None
        self._held: list[Any] = []
        self._age = 0

    def all(self) -> list[Any]:
        """Every parameter once; one that was added since the last listing is not among them yet."""
        model = self._watched.model
        self._age += 1
        if model is not self._model or self._age > self.EVERY:
            self._model, self._age = model, 0
            self._held = list(model.parameters()) if model is not None else []
        return self._held

    def frozen(self) -> int | None:
        """A value that changes when parameters are frozen or set free; None without a model."""
        found = self.all()
        return hash(tuple(map(_trainable, found))) if found else None


class Weights:
    """Writes to the parameters between two step blocks."""

    def __init__(self, watched: Watched, parameters: Parameters) -> None:
        self._watched, self._listed = watched, parameters
        self._parameters: list[Any] = []
        self._before: list[int] = []
        self._sample: tuple[Any, Later] | None = None
        self._waiting: tuple[str, int, Later, Later] | None = None
        self._undecided: tuple[str, int] | None = None
        self._quiet = 0
        self._loud = 0
        self.blind = False
        """the training code updates the weights between the blocks, so nothing can be told"""

    def after_block(self) -> None:
        """At the end of a step block: note where the counters stand."""
        if self.blind:
            return
        self._parameters = self._listed.all()
        self._before = list(map(_versions, self._parameters))
        self._sample = self._take()

    def before_block(self, step: int) -> None:
        """At the beginning of the next one: look whether they still stand there."""
        if not self._before:
            return
        (counts, self._before), now = (self._before, []), list(map(_versions, self._parameters))
        if now == counts:
            self._quiet, self._loud = self._quiet + 1, 0
            return
        self._loud += 1
        if self._quiet < QUIET:
            self.blind = self._loud > QUIET
            return
        self._quiet = 0
        written = [i for i, (a, b) in enumerate(zip(counts, now, strict=True)) if a != b]
        names = [n for n, _ in self._watched.parameters()]
        first = names[written[0]] if written[0] < len(names) else "?"
        text = (
            f"the weights were written to between two updates, before step {step:,}, outside of the optimizer: "
            f"{len(written)} of {len(now)} tensors, the first {first}"
        )
        taken = self._take()
        sampled = self._sample is not None and any(self._parameters[i] is self._sample[0] for i in written)
        if self._sample is None or taken is None or not sampled:
            self._undecided = text, step
        else:
            self._waiting = text, step, self._sample[1], taken[1]

    def found(self) -> Iterator[Found]:
        """What is known by now of a write: it changed the values, or nothing shows whether it did."""
        if self._undecided is not None:
            (text, step), self._undecided = self._undecided, None
            text += "; nothing shows whether they hold the same values again"
            yield Found("weights", text, certain=False, unseen=("weights",), step=step)
        if self._waiting is not None and self._waiting[2].ready() and self._waiting[3].ready():
            (text, step, before, after), self._waiting = self._waiting, None
            if before.values() != after.values():
                yield Found(
                    "state_edit", text, before="as the last update left them", after="others", step=step
                )

    def _take(self) -> tuple[Any, Later] | None:
        """The bits of some elements of the first parameter that is trained: one small copy, no wait."""
        for p in self._parameters:
            import torch  # here: a process without a model may have none

            if not p.requires_grad:
                continue
            part = p.detach()
            part = part.to_local() if hasattr(part, "to_local") else part
            if part.numel() == 0:
                continue
            while part.dim() > 1:  # by views alone: flattening could copy all of it
                part = part[0]
            return p, Later(part.reshape(-1)[:SAMPLE].clone().view(torch.uint8))
        return None


class State:
    """The optimizer's state: dropped, made anew, or left behind by another optimizer object."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._entries = 0
        self._mark: _Mark | None = None
        self._advanced = False
        self._idle = 0

    def before_block(self, step: int) -> Iterator[Found]:
        """State that was there after the last update must still be there."""
        optimizer = self._watched.optimizer
        if optimizer is None:
            return
        now = len(optimizer.state)
        if now < self._entries:
            before, self._entries = self._entries, now
            self._mark = None
            text = f"optimizer state dropped before step {step:,}: of {before} parameters with state {now} are left"
            yield Found("optimizer_state", text, before=f"{before} parameters", after=f"{now} parameters")

    def after_block(self, step: int) -> Iterator[Found]:
        """The counters of one parameter's state go up with each update, or stay where one is skipped."""
        optimizer = self._watched.optimizer
        if optimizer is None:
            return
        self._entries = len(optimizer.state)
        last, self._mark = self._mark, _mark(optimizer, self._mark)
        now = self._mark
        if last is None or now is None or last.parameter is not now.parameter:
            return
        if last.count is not None and now.count is not None and now.count < last.count:
            counts = f"its step counter went from {last.count:,} to {now.count:,}"
            text = f"optimizer state made anew in step {step:,}: {counts}"
            yield Found("optimizer_state", text, before=f"step {last.count}", after=f"step {now.count}")
        moved = (now.writes, now.count) != (last.writes, last.count)
        self._advanced = self._advanced or moved
        self._idle = self._idle + 1 if self._advanced and not moved and now.weight != last.weight else 0
        if self._idle == QUIET:
            yield Found(
                "optimizer",
                f"from step {step - QUIET + 1:,} on the weights are updated, and not by the optimizer that the layer "
                "was given: another one took its place; give it with rec.watch(optimizer=optimizer)",
                certain=False,
                unseen=("optimizer", "learning_rate", "weight_decay", "optimizer_state"),
                step=step - QUIET + 1,
            )


@dataclass(frozen=True)
class _Mark:
    """How far one parameter and its state have come, by counters on the host."""

    parameter: Any
    weight: int
    writes: int
    count: int | None


def _mark(optimizer: Any, last: _Mark | None) -> _Mark | None:
    """Read the counters of the parameter that was read last, else of the first one that has state."""
    p: Any = last.parameter if last is not None else next(iter(optimizer.state), None)
    state = optimizer.state.get(p) if hasattr(p, "_version") else None
    if not state:
        return None
    tensors = [v for v in state.values() if hasattr(v, "_version")]
    return _Mark(p, p._version, sum(v._version for v in tensors), _count(state.get("step")))


def _count(step: Any) -> int | None:
    """The step counter where it is on the host; None where reading it would wait for a device."""
    if hasattr(step, "device"):
        return int(step.item()) if step.device.type == "cpu" else None
    return int(step) if isinstance(step, int | float) else None
