"""Samples that are read more than once: within one step, and again within the last ones. Memory is bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from .._rooms import schemas
from .probed import MOST, finding

KEPT = 1 << 16
"""Samples that are remembered: about 12 MB, twice that where they have ids. Two different ones pass for the same
with odds of at most KEPT x 2^-64 (3.6e-15) for each new sample; see the digest's own bound."""
SHORT = 8
"""Samples of fewer tokens are not compared: short ones are alike by chance."""
SURPLUS = 0.1
"""Share of a step's samples that stand twice, from which on it is more than what sampling with replacement does."""
REREAD = 0.5
"""Share of a step's samples that were read before, from which on it is more than a sample here and there."""
QUIET = 100
"""Steps without anything to tell, after which a finding may be told again."""


class Samples(Protocol):
    """The samples of a micro-batch; see `lineage.capture.batch_facts.Samples`."""

    @property
    def keys(self) -> list[int]:
        """Digests of the content."""

    @property
    def ids(self) -> list[str] | None:
        """Ids that the loop gave."""

    @property
    def tokens(self) -> list[int] | None:
        """Tokens of each."""

    def name(self, i: int) -> str:
        """Id or digest as text."""


@dataclass(frozen=True)
class When:
    """A step at which samples were read, and the number of the pass over the data that it belongs to.

    Several where it is one of them and which is not known; none where nothing is known.
    """

    step: int
    epochs: tuple[int, ...]


class Once:
    """Whether a finding is to be told: at its beginning, and again only after it was quiet for a while."""

    def __init__(self) -> None:
        self._last: int | None = None

    def new(self, step: int) -> bool:
        """Note that the thing was seen at a step; tells whether it had not been lately."""
        before, self._last = self._last, step
        return before is None or step - before > QUIET or step < before


class Repeats:
    """Compares the samples of each step with each other and with those of recent ones."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._ring: deque[tuple[tuple[Hashable, ...], When]] = deque()
        self._seen: dict[Hashable, When] = {}
        self._last = 0
        self._twice, self._again = Once(), Once()

    def look(
        self, step: int, batches: Sequence[Samples], epoch: int | tuple[int, ...] | None
    ) -> list[schemas.Finding]:
        """Take the micro-batches of a step.

        `epoch` numbers the passes over the data: None where it is not known, and where it is one of several (after a
        resume of a loader that tells no position) each of them, always in one order.
        """
        if step <= self._last:  # the loop went back: what it reads again, it reads on purpose
            self._ring.clear()
            self._seen.clear()
        self._last = step
        now = When(step, () if epoch is None else (epoch,) if isinstance(epoch, int) else epoch)
        twice: dict[str, int] = {}
        again: dict[str, When] = {}
        compared = 0
        for samples in batches:
            for i, key in enumerate(samples.keys):
                if samples.tokens is not None and samples.tokens[i] < SHORT:
                    continue
                compared += 1
                keys: tuple[Hashable, ...] = (key,) if samples.ids is None else (key, samples.ids[i])
                before = next((self._seen[k] for k in keys if k in self._seen), None)
                if before is now:
                    twice[samples.name(i)] = twice.get(samples.name(i), 1) + 1
                elif before is not None:
                    again[samples.name(i)] = before
                self._remember(keys, now)
        found = []
        if twice and self._twice.new(step):
            found.append(_twice(step, twice, compared))
        if again and self._again.new(step):
            found.append(_again(now, again, compared, self._kept))
        return found

    def _remember(self, keys: tuple[Hashable, ...], now: When) -> None:
        for k in keys:
            self._seen[k] = now
        self._ring.append((keys, now))
        if len(self._ring) > self._kept:
            old, when = self._ring.popleft()
            for k in old:
                if self._seen.get(k) is when:
                    del self._seen[k]


def _twice(step: int, names: dict[str, int], compared: int) -> schemas.Finding:
    extra = sum(names.values()) - len(names)
    found = finding(
        "LIN-B001",
        "duplicates/1",
        "warning" if extra >= SURPLUS * compared else "note",
        "batches",
        f"samples stand more than once in the batch of step {step:,}, of {compared:,} in all",
        list(names),
        "look at the sampler: with replacement, an index that wraps, or a data set that holds them twice",
    )
    shown = {"step": step, "samples": compared, "surplus": extra, "most_often": max(names.values())}
    return found.model_copy(update={"values": {k: schemas.Scalar.of(v) for k, v in shown.items()}})


def _again(now: When, names: dict[str, When], compared: int, kept: int) -> schemas.Finding:
    latest = max(names.values(), key=lambda w: w.step)
    # a pass that is known to have ended between explains it; one that is not known explains nothing
    counts = [
        [(w.epochs[i] if i < len(w.epochs) else epoch, epoch) for w in names.values()]
        for i, epoch in enumerate(now.epochs)
    ]
    passed = any(all(then < epoch for then, epoch in count) for count in counts)
    within = bool(counts) and not passed
    much = len(names) >= REREAD * compared
    text = f"of {compared:,} samples of step {now.step:,} were read before, the last at step {latest.step:,}"
    found = finding(
        "LIN-B002",
        "repeats/1",
        "warning" if not passed and (within or much) else "note",
        "batches",
        text + ("; a pass over the data ended between" if passed else ""),
        list(names)[:MOST],
        "a further pass over the data is meant to look like this; else see whether the loader began again, or whether "
        "a resume reads what was read",
    )
    shown = {
        "step": now.step,
        "last_step": latest.step,
        "first_step": min(w.step for w in names.values()),
        "samples": compared,
        "remembered": kept,
    }
    values = {k: schemas.Scalar.of(v) for k, v in shown.items()}
    return found.model_copy(update={"values": values, "count": len(names)})
