"""Four small real trainings beside a tracker: healthy, changed at a resume, spoiled, forked from the spoiled."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest
import torch

from tests.e2e.training import settle
from tests.recorder import loop as loops
from tests.recorder.loop import Counted, Loop

BASELINE, CHANGED, SPOILED, BAD = "baseline", "lower-rate", "spoiled", "from-a-bad-state"
RUNS = (BASELINE, CHANGED, SPOILED, BAD)
FIRST: dict[str, Any] = {"lr": 0.1, "clip": 1.0}
LATER: dict[str, Any] = {"lr": 0.03, "clip": 0.3}
CHANGED_AT, ENDS = 40, 80
"""The last step before the change, and the last step of all."""
FIRST_BAD, SAVED_BAD = 33, 40
"""The step whose loss is NaN, and the checkpoint that was saved after it."""


class Side(Protocol):
    """A script's own calls to its tracker."""

    def begin(self, name: str, config: Mapping[str, Any], notes: str) -> Any:
        """Begin the run of that name, or take it up again."""
        ...

    def log(self, losses: Mapping[int, float]) -> None:
        """Log some losses: step -> loss."""
        ...

    def end(self) -> None:
        """End the run."""
        ...


class Batches(Counted):
    """Batches of 32, so that the loss is a line and not a cloud."""

    def __next__(self) -> dict[str, torch.Tensor]:
        g = torch.Generator().manual_seed(self.seed * 1000 + self.position)
        self.position += 1
        return {"x": torch.randn(32, 3, generator=g), "ids": torch.randint(0, 9, (32, 5), generator=g)}


class Story:
    """The trainings, in a folder of their own; `ledgers` holds the ledger of each."""

    def __init__(self, folder: Path, side: Side) -> None:
        self.folder, self.side = folder, side

    def ledger(self, name: str) -> Path:
        """The folder of a run's ledger."""
        (found,) = (self.folder / name).glob("*/journal")
        return found.parent

    def tell(self, *names: str) -> Story:
        """Train all of them, or those named."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(away(self.folder))
            for name in names or RUNS:
                {
                    BASELINE: self._baseline,
                    CHANGED: self._changed,
                    SPOILED: self._spoiled,
                    BAD: self._bad,
                }[name]()
        return self

    def _baseline(self) -> None:
        self._segment(BASELINE, FIRST, ENDS, notes="The run that others are held against.")

    def _changed(self) -> None:
        notes = "Second try. Rate lowered after the plateau."
        self._segment(CHANGED, FIRST, CHANGED_AT, notes=notes)
        self._segment(CHANGED, LATER, ENDS, resumed=CHANGED_AT, notes=notes)

    def _spoiled(self) -> None:
        self._segment(SPOILED, FIRST, SAVED_BAD, spoil=FIRST_BAD, notes="Died on Sunday.")

    def _bad(self) -> None:
        """Somebody begins a run of their own with the last checkpoint that they find."""
        source = self._home(SPOILED) / f"step-{SAVED_BAD}"
        self._segment(BAD, FIRST, ENDS, fork_of=source, notes="Continues the run that died on Sunday.")

    def _home(self, name: str) -> Path:
        return self.folder / f"checkpoints-{name}"

    def _segment(
        self,
        name: str,
        config: dict[str, Any],
        until: int,
        *,
        notes: str,
        resumed: int | None = None,
        fork_of: Path | None = None,
        spoil: int = -1,
    ) -> None:
        """One process's worth of training."""
        home = self._home(name)
        loop = Loop(lr=config["lr"], clip=config["clip"], loader=Batches())
        source = fork_of if resumed is None else home / f"step-{resumed}"
        if source is not None:
            loop.load(source)
            loop.scheduler.base_lrs = [config["lr"]]
            for group in loop.optimizer.param_groups:
                group["lr"] = config["lr"]
        run = self.side.begin(name, config, notes)
        rec = loops.attach(
            loop,
            self.folder / name,
            run=run,
            config=config,
            resumed_from=source,
            fork=fork_of is not None,
            report=True,
            exit_timeout=120.0,
            name=name,
        )
        with rec:
            for stop in range(loop.done + 20, until + 1, 20):
                first = loop.done + 1
                losses = dict(enumerate(loop.run(rec, stop, spoil=spoil), first))
                settle(rec)  # as a real training, whose steps take longer than a request
                self.side.log(losses)
                if not (home / f"step-{stop}").exists():
                    rec.checkpoint(loop.save(home / f"step-{stop}"), step=stop)
        self.side.end()


@contextlib.contextmanager
def away(folder: Path) -> Iterator[None]:
    """Be in another folder, so that no git repository that is being worked on is captured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield
