"""What was replayed of an incident so far, and which replay tells most next.

A change can take a symptom away only where it shows with nothing changed. So the step is made again as it was, on one
device and, where that is clean, at the run's own size; only then is one condition changed after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .._rooms import schemas
from .replay_ladder import ladder, sample

NOT_YOURS = "your_module:build"
"""Stands for the function of the training code, until a replay has named it."""
NOT_REPLAYED = "it was diagnosed without: nothing shows what made the symptom come or go"
NOTHING_TO_TAKE = "with nothing changed it does not show, so there is nothing that one change could take away"
SEVERAL = "replays with several changes at once are on record: nothing follows from them"


@dataclass(frozen=True)
class Course:
    """The replays of one incident."""

    replays: Sequence[schemas.Replay]
    world: int
    """ranks of the run"""
    step: int | None
    bundle: str | None
    """how a command names the first bad rank's bundle"""
    whole: str | None
    """how a command names the folder with a bundle of every rank; None where a rank has none, or there is one rank"""
    others: bool = True
    """whether another rank has a bundle of the step, whose batch could be taken"""

    @property
    def controls(self) -> list[schemas.Replay]:
        """Those with nothing changed."""
        return [p for p in self.replays if not p.changes]

    @property
    def single(self) -> list[schemas.Replay]:
        """Those with one condition changed."""
        return [p for p in self.replays if len(p.changes) == 1 and not p.confounded]

    @property
    def shows(self) -> bool:
        """Whether the symptom shows with nothing changed."""
        return any(p.result == "reproduced" for p in self.controls)

    @property
    def alone(self) -> bool:
        """Whether it shows on one device."""
        return any(p.result == "reproduced" and not self._at_size(p) for p in self.controls)

    @property
    def whole_is_due(self) -> bool:
        """Whether the run's own size is to be tried: one device does not show it, and every rank has a bundle."""
        tried = any(self._at_size(p) for p in self.controls)
        return bool(self.controls) and not self.shows and not tried and self.whole is not None

    def _at_size(self, p: schemas.Replay) -> bool:
        return self.world > 1 and p.world_size == self.world

    def command(self, change: str | None = None, *, whole: bool = False, repeat: int | None = None) -> str:
        """The command of a replay, with the function that the last one was made with."""
        where = f"lineage replay {self.bundle or 'BUNDLE'}"
        if whole and self.whole is not None:
            at = "" if self.step is None else f" --step {self.step}"
            where = f"torchrun --nproc-per-node {self.world} -m lineage replay {self.whole}{at}"
        more = f" --change {change}" if change else ""
        more += f" --repeat {repeat}" if repeat else ""
        return f"{where} --with {self._function()}{more}"

    def _function(self) -> str:
        named = [str(p.parameters["with"].plain()) for p in self.replays if "with" in p.parameters]
        return next((n for n in reversed(named) if n), NOT_YOURS)

    def left(self, bad: schemas.FirstBad | None) -> list[str]:
        """The conditions that were not tried, the one that tells most first.

        One device in place of the ranks is a change only beside a replay at the run's size that shows the symptom.
        """
        tried = {p.changes[0].name for p in self.single}
        cannot = (
            set()
            if any(p.result == "reproduced" and self._at_size(p) for p in self.controls)
            else {"single-device"}
        )
        cannot |= set() if self.others else {"other-rank-batch"}
        found = sample(bad)
        first = [] if found is None else [f"without-sample:{found}"]
        return [n for n in (*first, *ladder(bad)) if n.partition(":")[0] not in tried | cannot]

    def next_change(self, name: str) -> str:
        """The command that changes one condition, where the symptom shows without it."""
        return self.command(name, whole=self.shows and not self.alone and name != "single-device")

    def told(self) -> str:
        """What the replays with nothing changed gave, by the number of processes that made them."""
        out = []
        for at_size in (False, True):
            mine = [p for p in self.controls if self._at_size(p) == at_size]
            if not mine:
                continue
            where = f"at the run's size ({self.world} ranks)" if at_size else "on one device"
            counts = Counter(p.result.replace("_", " ") for p in mine)
            many = len(mine) > 1
            results = ", ".join(f"{result}{f' {n} times' if many else ''}" for result, n in counts.items())
            out.append(f"{where if self.world > 1 else 'made again'}: {results}")
        return "; ".join(out)


def flips(p: schemas.Replay) -> str:
    """What one change did, in words."""
    if p.flips is None:
        return "it cannot be told whether it flips"
    if p.flips:
        return "FLIPS the symptom"
    return (
        "does not flip it"
        if p.result == "reproduced"
        else "nothing to flip, it does not show without it either"
    )
