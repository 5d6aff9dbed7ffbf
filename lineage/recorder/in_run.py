"""Drift while the run goes on: plain values that no schedule moves, and edits of the live objects."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .._rooms import schemas
from ..capture import edits, effective, state
from ..capture.position import Position
from ..capture.watched import Watched
from ..judge import scheduled
from . import boundary, edited
from .findings import say
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
        self._apart: list[scheduled.Apart] = []
        self._parameters = edits.Parameters(rec.watched)
        self._weights = edits.Weights(rec.watched, self._parameters)
        self._blind = False
        self._state = edits.State(rec.watched)
        self._position = Position(None)
        self._edits: list[tuple[int, edits.Found]] = []
        self._often: Counter[str] = Counter()

    def begin(self) -> None:
        """Take the values before the first update as the known ones."""
        self._known = self._last = self._facts()
        self.new_loader()

    def new_loader(self) -> None:
        """Follow the counter of the loader that is given now."""
        self._guarded(lambda: setattr(self, "_position", Position(self._rec.watched.loader)))

    def new_optimizer(self, old: Any, new: Any) -> None:
        """Another optimizer object is given while the run goes on: compare its state with the first one's."""
        if old is None or new is old or not self._known:
            return
        step = self._rec.steps.done + 1
        self._state = edits.State(self._rec.watched)
        sides = [self._digests(o) for o in (old, new)] if self._rec.settings.digests else []
        if not sides:
            text = f"another optimizer object was given before step {step:,}; whether with the same state is not shown"
            found = edits.Found("optimizer_state", text, certain=False, unseen=("optimizer_state",))
        elif sides[0] == sides[1]:
            return
        else:
            text = f"another optimizer object was given before step {step:,}, whose state is not that of the first one"
            found = edits.Found("optimizer_state", text, before="the first one's", after="another")
        self._edits.append((step, found))

    def _digests(self, optimizer: Any) -> list[str | None]:
        held = state.capture(
            Watched(self._rec.watched.model, optimizer), only=("optimizer_state", "optimizer_step")
        )
        return [c.digest for c in held]

    def before(self, step: int) -> None:
        """Before an update: what was done to the objects since the last one."""
        self._guarded(lambda: self._note(step, self._state.before_block(step)))
        self._guarded(lambda: self._weights.before_block(step))

    def _edited(self, step: int, batches: int) -> None:
        """After an update: what was done to the objects, and where their counters stand now."""
        self._guarded(lambda: self._note(step, [self._position.after_block(step, max(batches, 1))]))
        self._guarded(lambda: self._note(step, self._state.after_block(step)))
        self._guarded(lambda: self._note(step, self._weights.found()))
        self._guarded(self._weights.after_block)
        if self._weights.blind and not self._blind:
            self._blind = True
            self._rec.gaps.append(
                "the weights are updated between the step blocks, so an edit of them would not be seen"
            )

    def _note(self, step: int, found: Iterable[edits.Found | None]) -> None:
        for f in found:
            if f is None:
                continue
            if self._often[f.concept] < PATIENCE:
                self._edits.append((f.step or step, f))
            self._often[f.concept] += 1

    def _guarded(self, look: Callable[[], object]) -> None:
        """One kind of look may fail on an object of an unknown make; the others go on."""
        try:
            look()
        except Exception as e:
            self._rec.trouble("edits", e, "some edits of live objects between saves are not seen")

    def look(self, w: Writer, step: int, batches: int) -> None:
        """Compare the values after an update."""
        self._edited(step, batches)
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
        if settled or any(s < step for s, _ in self._edits):
            self._tell(w, facts)

    def rate(self, step: int) -> None:
        """Before an update: the rate in the param groups must be the one that the scheduler set last."""
        scheduler, w = self._rec.watched.scheduler, self._rec._writer
        said = getattr(scheduler, "_last_lr", None)
        if w is None or not said:
            return
        if self._moves_others(scheduler):
            self._others(w, float(said[0]), step)
            return
        if self._off >= PATIENCE:
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

    def _moves_others(self, scheduler: Any) -> bool:
        """Whether none of the scheduler's parameter groups is one of the optimizer's that steps."""
        if self._rec.watched.optimizer is None:
            return False
        mine = {id(g) for g in self._rec.watched.optimizer.param_groups}
        return not any(id(g) in mine for g in scheduler.optimizer.param_groups)

    def _others(self, w: Writer, said: float, step: int) -> None:
        """The scheduler moves another optimizer's groups: told once the rates have been apart for some updates."""
        held = float(self._rec.watched.optimizer.param_groups[0]["lr"])
        if math.isclose(said, held, rel_tol=1e-9, abs_tol=1e-15):
            self._apart = self._apart if len(self._apart) >= scheduled.LEAST else []
            return
        if len(self._apart) < scheduled.LEAST:
            self._apart.append(scheduled.Apart(step, said, held))
            if step == self._rec.steps.first:
                self._rec.now.off_schedule = ([said], [held])  # part of what the resume changed
            self._say_apart(w)

    def _say_apart(self, w: Writer, *, ended: bool = False) -> None:
        found = scheduled.finding(self._apart, ended=ended)
        if found is None or w.world.rank != 0:
            return
        first = self._apart[0]
        say(w, found, first.step)
        if first.step != self._rec.steps.first:
            w.tasks.put(lambda: boundary.off_schedule(w, [first.said], [first.held], first.step))

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
        told = [n for n in self._waiting if self._moves.get(n, 0) < PATIENCE]
        since = min([*(self._waiting[n] for n in told), *(s for s, _ in self._edits)])
        self._waiting = {n: s for n, s in self._waiting.items() if n not in told}
        self._known |= facts
        found, self._edits = [f for _, f in self._edits], []
        before = self._rec.now.effective
        after = effective.capture(self._rec.watched, self._rec.seen, "in_run", since)
        w.write(after)
        if before is not None and w.world.rank == 0:
            declared = list(self._rec._declared)
            w.tasks.put(lambda: boundary.judge_in_run(w, before, after, since, declared, found))
        elif positions := [f for f in found if f.concept in ("batch_skip", "loader_position")]:
            w.tasks.put(lambda: edited.of_rank(w, positions, since))
        self._rec.now.effective = after

    def close(self, w: Writer) -> None:
        """A change at the very last update has nothing more to stand for: tell it."""
        self._guarded(lambda: self._note(self._rec.steps.done, self._weights.found()))
        if len(self._apart) < scheduled.LEAST:
            self._say_apart(w, ended=True)
        if self._edits or any(self._moves.get(n, 0) < PATIENCE for n in self._waiting):
            self._tell(w, self._facts())
        for concept, count in self._often.items():
            if count > PATIENCE:
                title = schemas.catalogue().concept(concept).title
                self._rec.gaps.append(
                    f"{title}: edited beside the updates {count} times, of which the first {PATIENCE} are on record; "
                    "what belongs to each update is best done inside the step block"
                )

    def _facts(self) -> dict[str, Any]:
        """Name -> value, cheap enough for every update."""
        watched, seen = self._rec.watched, self._rec.seen
        out: dict[str, Any] = {
            "clip threshold": seen.clip_threshold,
            "clip value": seen.clip_value,
            "batch size": seen.samples_per_micro,
            "micro-batches": seen.micro_batches,
        }
        out |= {f"{concept} in the step": repr(value) for concept, (value, _) in seen.modes.items()}
        if watched.model is not None:
            out["frozen parameters"] = self._parameters.frozen()
        if watched.optimizer is not None:
            groups = [g["params"] for g in watched.optimizer.param_groups]
            out["optimizer"] = type(watched.optimizer).__qualname__
            out["parameter groups"] = tuple((len(g), id(g[0]) if g else 0) for g in groups)
            for i, group in enumerate(effective.hyperparameters(watched.optimizer, watched.scheduler)):
                out |= {f"group {i} {k}": v for k, v in group}
        if watched.scheduler is None and watched.optimizer is not None:
            out["learning rate"] = watched.optimizer.param_groups[0]["lr"]
        base = getattr(watched.scheduler, "base_lrs", None)
        if base:
            out["base learning rates"] = tuple(base)
        return out
