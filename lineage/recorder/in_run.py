"""Drift while the run goes on: plain values that no schedule moves, compared after each update."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..capture import effective
from . import boundary
from .writer import Writer

if TYPE_CHECKING:
    from .recorder import Recorder

PATIENCE = 3
"""Changes in a row after which a value counts as moved by the training code at each step."""


class InRun:
    """Looks at the live values after each update.

    A change is told when it has stood for one more update: a value that moves at each of them is a schedule of
    the training code's own, which is said once as a gap, and is then left alone.
    """

    def __init__(self, rec: Recorder) -> None:
        self._rec = rec
        self._known: dict[str, Any] = {}
        self._waiting: dict[str, int] = {}
        self._moves: dict[str, int] = {}
        self._last: dict[str, Any] = {}
        self._off = 0

    def begin(self) -> None:
        """Take the values before the first update as the known ones."""
        self._known = self._last = self._facts()

    def look(self, w: Writer, step: int) -> None:
        """Compare the values after an update."""
        facts = self._facts()
        moved = {k for k in facts if facts[k] != self._last.get(k)}
        self._last = facts
        settled = False
        for name in facts:
            if name in moved:
                self._move(name, step)
            elif name in self._waiting and self._moves.get(name, 0) < PATIENCE:
                settled = True
            else:
                self._moves.pop(name, None)
        if settled:
            self._tell(w, facts)

    def rate(self, step: int) -> None:
        """Before an update: the rate in the param groups must be the one that the scheduler set last."""
        scheduler, w = self._rec.watched.scheduler, self._rec._writer
        said = getattr(scheduler, "_last_lr", None)
        if w is None or not said or self._off >= PATIENCE:
            return
        groups = [float(g["lr"]) for g in scheduler.optimizer.param_groups]
        if all(
            math.isclose(a, float(b), rel_tol=1e-9, abs_tol=1e-15) for a, b in zip(groups, said, strict=False)
        ):
            return
        if step == self._rec.steps.first:
            self._rec.now.off_schedule = ([float(b) for b in said], groups)  # part of what the resume changed
            return
        self._off += 1
        if self._off == PATIENCE:
            self._rec.gaps.append(
                "the learning rate is set beside its scheduler again and again; that is not judged"
            )
        if w.world.rank == 0:
            before, after = [float(b) for b in said], groups
            w.tasks.put(lambda: boundary.off_schedule(w, before, after, step))

    def _move(self, name: str, step: int) -> None:
        if self._known.get(name) is None:
            self._known[name] = self._last[name]  # seen for the first time: clipping, with the first update
            return
        self._waiting.setdefault(name, step)
        self._moves[name] = self._moves.get(name, 0) + 1
        if self._moves[name] == PATIENCE:
            self._rec.gaps.append(
                f"{name} is moved by the training code at each step; its drift is not judged"
            )

    def _tell(self, w: Writer, facts: dict[str, Any]) -> None:
        since = min(s for n, s in self._waiting.items() if self._moves.get(n, 0) < PATIENCE)
        self._waiting = {n: s for n, s in self._waiting.items() if self._moves.get(n, 0) >= PATIENCE}
        self._known = dict(facts)
        before = self._rec.now.effective
        after = effective.capture(self._rec.watched, self._rec.seen, "in_run", since)
        w.write(after)
        if before is not None and w.world.rank == 0:
            declared = list(self._rec._declared)
            w.tasks.put(lambda: boundary.judge_in_run(w, before, after, since, declared))
        self._rec.now.effective = after

    def close(self, w: Writer) -> None:
        """A change at the very last update has nothing more to stand for: tell it."""
        if any(self._moves.get(n, 0) < PATIENCE for n in self._waiting):
            self._tell(w, self._facts())

    def _facts(self) -> dict[str, Any]:
        """Name -> value, cheap enough for every update."""
        watched, seen = self._rec.watched, self._rec.seen
        out: dict[str, Any] = {
            "clip threshold": seen.clip_threshold,
            "batch size": seen.samples_per_micro,
            "micro-batches": seen.micro_batches,
        }
        if watched.optimizer is not None:
            for i, group in enumerate(effective.hyperparameters(watched.optimizer, watched.scheduler)):
                out |= {f"group {i} {k}": v for k, v in group}
        if watched.scheduler is None and watched.optimizer is not None:
            out["learning rate"] = watched.optimizer.param_groups[0]["lr"]
        base = getattr(watched.scheduler, "base_lrs", None)
        if base:
            out["base learning rates"] = tuple(base)
        return out
