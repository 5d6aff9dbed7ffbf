"""torch.distributed.checkpoint: asynchronous saves that the layer does not hold up.

    stager = Stager()
    with rec.saving(step, stager=stager) as save:
        future = dcp.async_save(states, checkpoint_id=path, async_stager=stager)
    future.add_done_callback(lambda f: f.exception() or save.commit(path))

The digests are then made of the copy that is staged, on a thread of their own, while training goes on.
"""

from __future__ import annotations

from typing import Any

from ..recorder.contain import log
from ..recorder.staged import PATIENCE, Staged


class Stager:
    """Goes around a stager of torch.distributed.checkpoint; without one, around what `async_save` uses by default.

    A stager of yours may fill the same buffers at each save: before it does, the digests of the last save are waited
    for, which by then are long made.
    """

    def __init__(self, stager: Any = None) -> None:
        self._stager = stager
        self._next: Staged | None = None
        self._last: Staged | None = None

    def expect(self, staged: Staged) -> None:
        """The next state that is staged belongs to this save. Called by `rec.saving(step, stager=stager)`."""
        self._next = staged

    def stage(self, state_dict: Any, **more: Any) -> Any:
        """Stage, as the inner one does."""
        if self._stager is not None and self._last is not None and not self._last.done.wait(PATIENCE):
            log.warning(
                "lineage: the digests of the last save are not made yet; its buffers may be written over"
            )
        inner = self._stager if self._stager is not None else _default()
        copy = inner.stage(state_dict, **more)
        staged, self._next = self._next, None
        if staged is not None:
            self._last = staged
            staged.take(state_dict, copy)
        return copy

    @property
    def should_synchronize_after_execute(self) -> bool:
        """Whether `async_save` waits for the staging after it began to write."""
        return bool(getattr(self._stager, "should_synchronize_after_execute", False))

    def synchronize_staging(self) -> None:
        """Wait for a staging that is under way."""
        wait = getattr(self._stager, "synchronize_staging", None)
        if wait is not None:
            wait()

    def close(self) -> None:
        """Free the inner one's buffers, once the digests of the last save are made."""
        if self._last is not None:
            self._last.done.wait(PATIENCE)
        close = getattr(self._stager, "close", None)
        if close is not None:
            close()


def _default() -> Any:
    """What `async_save` makes for one save, where it is given no stager."""
    from torch.distributed.checkpoint import staging

    if hasattr(staging, "DefaultStager"):
        return staging.DefaultStager(staging.StagingOptions(False, False, False, False))
    return staging.BlockingAsyncStager()
