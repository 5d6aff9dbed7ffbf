"""The recorder that records nothing: what `attach` returns where it failed. Training code finds all verbs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from . import saving
from .recorder import Recorder
from .step import Step


class Off(Recorder):
    """A recorder on which every verb does nothing. Making one and calling it needs no part of the layer."""

    def __init__(self) -> None:
        # Nothing of the real recorder is made: that is what may have failed.
        self.should_stop = False
        self.live = False
        self.last_checkpoint = None
        self.gaps = []
        self.at_exit = False

    def trouble(self, part: str, error: BaseException, consequence: str) -> None:
        """Nothing is left that could fail."""

    def begin(self) -> None:
        """There is no ledger."""
        return

    def segment(self) -> None:
        """There is no segment."""
        return

    def regime_id(self) -> None:
        """There is no regime."""
        return

    def watch(self, /, **objects: Any) -> None:
        """Do nothing."""

    def resumed_from(self, path: str | Path, *, fork: bool = False) -> None:
        """Do nothing."""

    def mitigate(self, concept: str, **said: Any) -> None:
        """Do nothing."""

    def incident(self, message: str, **said: Any) -> None:
        """Do nothing."""

    def close_incident(self, uid: str, **said: Any) -> None:
        """Do nothing."""

    def step(self, step: int, batch: Any = None) -> Step:
        """A block that does nothing."""
        return OffStep()

    def checkpoint(self, path: str | Path, *, step: int | None = None) -> None:
        """Do nothing."""

    def saving(self, step: int | None = None, *, stager: Any = None) -> saving.Saving:
        """A block that does nothing."""
        return OffSaving()

    def evaluation(self, checkpoint: str, results: Mapping[str, float], **said: Any) -> None:
        """Do nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Exceptions of the training code pass through."""

    def close(self, error: BaseException | None = None) -> None:
        """Do nothing."""


class OffStep(Step):
    """The step block of a recorder that is off."""

    def __init__(self) -> None:
        pass

    def __enter__(self) -> Step:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Exceptions of the training code pass through."""

    def batch(self, batch: Any, **said: Any) -> None:
        """Do nothing."""

    def loss(self, loss: Any) -> None:
        """Do nothing."""

    def domain_loss(self, losses: Mapping[Any, Any]) -> None:
        """Do nothing."""

    def sample_losses(self, losses: Any) -> None:
        """Do nothing."""


class OffSaving(saving.Saving):
    """The save block of a recorder that is off."""

    def __init__(self) -> None:
        self.uid = None

    def __enter__(self) -> saving.Saving:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Exceptions of the training code pass through."""

    def commit(self, path: str | Path) -> None:
        """Do nothing."""
