"""A step from inside: what is read before it, what it leaves behind, and what the first one shows."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .._rooms import schemas
from ..capture import autocast, clip, code, effective, later, mode, modules, state
from ..judge import restore as restore_
from ..ledger import blobs
from . import boundary, incidents, quarantine, saving, streams, whole_restore
from .agreeing import RESUME, Agreeing
from .batching import Batching
from .contain import contained, log
from .findings import say
from .in_run import InRun
from .probing import Probing, columns
from .timing import Timing
from .writer import Writer

if TYPE_CHECKING:
    from ..probes.frame import Frame
    from .recorder import Recorder
    from .step import Step


ARRIVAL = 30.0
"""Seconds for which the judgement of the first step waits, on its own thread, for what is still on the device."""


class Stepping:
    """Follows a recorder's steps: counters, probes, detectors, and drift while the run goes on."""

    def __init__(self, rec: Recorder) -> None:
        self.rec = rec
        self.first: int | None = None
        self.done = 0
        self.samples = 0
        self.tokens = 0
        """consumed samples and tokens, global and cumulative"""
        self.back = False
        self.left_by: SystemExit | None = None
        """the exit with an error code that ended the last step"""
        self.norm: Any = None
        self.probing: Probing | None = None
        self.modes: mode.Modes | None = None
        self.streams = streams.Streams()
        self.drift = InRun(rec)
        self.batching = Batching(rec)
        self.agreeing = Agreeing(rec)
        self.timing = Timing()
        self.unwatch: Callable[[], None] = lambda: None
        self.loaded: list[schemas.ComponentDigest] = []
        self.count_from(rec.parent)

    def count_from(self, parent: boundary.Parent | None) -> None:
        """Go on counting samples and tokens where the parent checkpoint stood."""
        known = parent.checkpoint if parent else None
        self.samples, self.tokens = (known.samples or 0, known.tokens or 0) if known else (0, 0)

    def trouble(self, part: str, error: BaseException, consequence: str) -> None:
        """Hand a failure to the recorder."""
        self.rec.trouble(part, error, consequence)

    def unhook(self) -> None:
        """Stop watching."""
        self.unwatch()
        if self.probing is not None:
            self.probing.remove()

    @contained("attach", "some live values are not recorded")
    def hook(self) -> None:
        """Start watching: clipping, and local gradients before the reduction."""
        if self.rec.watched.optimizer is not None or self.rec.watched.model is not None:
            self.unwatch = clip.watch(self._clipped, self._clipped_by_value)
        if self.rec.watched.model is not None and self.rec.settings.probes:
            self.probing = Probing(self.rec.watched, self.rec.settings)
            self.rec.seen.activation_probes = self.probing.probes.activations is not None
        if self.rec.watched.model is not None:
            autocast.look_once(self.rec.watched.model, self.rec.seen)
            self.modes = mode.Modes(self.rec.watched.model)
        self.rec.watched.generators = state.generators()

    def _clipped(self, threshold: float, total_norm: Any) -> None:
        self.rec.seen.clip_threshold = threshold
        self.rec.seen.clip_calls += 1
        self.norm = total_norm

    def _clipped_by_value(self, largest: float) -> None:
        self.rec.seen.clip_value = largest
        self.rec.seen.clip_calls += 1

    @contained("resume", "loader and random-number state after the load are not shown")
    def read_loaded(self) -> None:
        """Read what moves before the first step, right after the load."""
        if self.rec.settings.digests:
            self.loaded = state.capture(self.rec.watched, state.LOADED)

    @contained("step", "what the first step shows is not recorded")
    def enter(self, step: Step) -> None:
        """Before an update: its learning rate, and at the first one what was restored."""
        if not self.rec.live or os.getpid() != self.rec._pid:
            return
        self.norm = None
        self.timing.enter()
        if self.probing is not None:
            self.probing.probes.thaw()
        if self.rec.watched.scheduler is not None:  # now: it may step inside the block
            step.lr = self._rate()
        if self.first is None:
            self.first = step.step
            self.done = step.step - 1
            self._start()
        else:
            if step.step <= self.done:
                self._went_back(step.step)
            self.drift.before(step.step)
        self.drift.rate(step.step)

    def _went_back(self, step: int) -> None:
        """The label of an update is not above the last one's: told once per segment."""
        w, last = self.rec._writer, self.done
        if w is not None and not self.back and self.rec.world.rank == 0:
            self.back = True
            w.tasks.put(lambda: boundary.went_back(w, last, step))

    def _start(self) -> None:
        """Before the first step: what was restored, and what holds after the load."""
        w = self.rec.begin()
        if w is None:
            return
        w.step = self.done
        self.rec.now.first_step = self.first or 1
        counters = state.step_counters(self.rec.watched)
        if counters is not None and counters[1] != self.done:
            self.rec.gaps.append(
                f"the first step is labelled {self.first}, and the optimizer had made {counters[1]} updates before it"
            )
        if self.first is not None and self.first < 1:
            self.rec.gaps.append("the loop counts from 0: pass step_base=0 to lineage.attach")
        started = self.done > 0 or self.rec.parent is not None or (counters is not None and counters[1] > 0)
        if started and self.rec.parent is None:
            self._parent_by_content(w)
        self.rec.now.after_load = effective.capture(
            self.rec.watched, self.rec.seen, "after_load" if started else "attach", self.done
        )
        w.write(self.rec.now.after_load)
        self.drift.begin()
        if (
            self.rec.parent is not None
            and self.rec.parent.checkpoint is not None
            and self.rec.settings.digests
        ):
            known = self.agreeing.at(w, self.done, RESUME)
            live = restore_.at_load(
                self.rec.parent.live(), self.loaded, state.capture(self.rec.watched, known=known)
            )
            self.rec.now.restore = restore_.compare(
                self.rec.parent.checkpoint.uid, self.rec.parent.live(), live, self.rec.world.rank
            )
            w.write(self.rec.now.restore)
        if (
            self.rec.parent is not None
            and self.rec.parent.checkpoint is not None
            and self.rec.world.rank == 0
        ):
            parent = self.rec.parent
            w.tasks.put(lambda: quarantine.warn(w, parent))

    def _parent_by_content(self, w: Writer) -> None:
        """No checkpoint was named: look for one whose recorded weights equal the live ones."""
        self.rec.parent = saving.find_by_content(w, self.rec.watched) if self.rec.settings.digests else None
        self.rec._write_segment("resume" if self.rec.parent else "unknown")
        if self.rec.parent is None:
            log.warning(
                "lineage: training continues at step %d, and no checkpoint was named (LIN-C007). Name it: "
                "lineage.attach(run, resumed_from=path)",
                self.first,
            )

    @contained("step", "values of some steps are not recorded")
    def exit(self, step: Step, error: BaseException | None) -> None:
        """After an update: its values, and what changed since the last one."""
        w = self.rec._writer
        if w is None or not self.rec.live or os.getpid() != self.rec._pid:
            return
        if self.rec.watched.scheduler is None:  # only now: the loop may set its rate inside the block
            step.lr = self._rate()
        if step.lr is not None:
            self.rec.seen.rate(step.lr)
        pending = self._pending(step)
        self.left_by = error if isinstance(error, SystemExit) and error.code else None
        if error is None:
            self.done = w.step = step.step
            if self.modes is not None:  # now: between the updates an evaluation may have it in eval mode
                self.rec.seen.modes = self.modes.read()
            self._consume(step)
            self.agreeing.after(w, step.step, step.step == self.first)
        self.streams.push(pending)
        self.drain(w)
        if error is not None:
            return
        if step.step == self.first:
            self._after_first(w, step)
        self.drift.look(w, step.step, len(step.batches))

    def _pending(self, step: Step) -> streams.Pending:
        loss, number = step.take_loss()
        pending = streams.Pending(step.step, at=schemas.now(), batches=step.batches, by_sample=step.by_sample)
        if loss is not None:
            pending.later["loss"] = loss
        elif number is not None:
            pending.plain["loss"] = number
        self.batching.losses(step, pending)
        if hasattr(self.norm, "detach") and not hasattr(self.norm, "to_local"):
            # a distributed tensor's full value would take a collective, and we issue none
            pending.later["grad_norm"] = later.Later(self.norm)
        pending.plain.update(self.timing.exit(self.probing.first_gradient() if self.probing else None))
        if self.probing is not None:
            sent = self.probing.send(step.step)
            pending.probed = (self.probing, sent) if sent is not None else None
        if step.lr is not None:
            pending.plain["lr"] = step.lr
        if self.rec.seen.clip_threshold is not None:
            pending.plain["clip_threshold"] = self.rec.seen.clip_threshold
        return pending

    def _consume(self, step: Step) -> None:
        self.rec.watched.batches_seen += len(step.batches)
        self.samples += sum(b.samples for b in step.batches) * self.rec.world.world_size
        self.tokens += sum(b.tokens for b in step.batches) * self.rec.world.world_size
        if step.batches:
            self.rec.seen.batch(step.batches[0].samples, len(step.batches), step.batches[0].tokens)

    def drain(self, w: Writer, *, wait: float = 0.0) -> None:
        """Take what has arrived: to the series, to the detectors, to the alarms. Waits at the end of a run only."""
        for values in self.streams.arrived(wait=wait):
            w.rows(
                probes=streams.rows(w.ids.segment, self.rec.world.rank, values),
                batches=self.batching.rows(w, values.step, values.at, values.batches, values.by_sample),
            )
            for signal, phase, finding in self.streams.judge(values):
                incidents.raise_alarm(self.rec, w, signal, phase, finding, values)
            if values.frame is not None:
                self._probed(w, values.frame)
            self.batching.judge(w, values.step, values.batches)
        self.agreeing.drain(w)

    def _probed(self, w: Writer, frame: Frame) -> None:
        """What probes read of one step: rows by tensor, and what the checks find."""
        found = columns(w.ids.segment, self.rec.world.rank, frame)
        if found is not None:
            w.columns("tensors", found)
        for finding in self.probing.findings(frame) if self.probing else []:
            say(w, finding, frame.step)

    def _after_first(self, w: Writer, step: Step) -> None:
        self.rec.now.effective = effective.capture(
            self.rec.watched, self.rec.seen, "after_first_step", step.step
        )
        w.write(self.rec.now.effective)
        self.rec.now.first_lr = step.lr
        if self.rec.world.rank == 0:
            declared, parent, first = list(self.rec._declared), self.rec.parent, replace(self.rec.now)

            def judge() -> None:
                # code and environment come from threads that may still run now; the live values must not move on
                first.code, first.environment = self._code_after_first(w), self.rec.now.environment
                first.batches = self._first_batches(step) if parent is not None else []
                first.epoch = self.rec.watched.epoch()
                if parent is not None and first.restore is not None:
                    first.restore = whole_restore.judge(w, parent, first.restore)
                boundary.judge(w, parent, first, declared)

            w.tasks.put(judge)

    def _code_after_first(self, w: Writer) -> schemas.CodeState | None:
        """On the worker thread: the code once more, where the first step imported files that the start had not.

        A file that is not listed as loaded would let an edit of it pass for one that no loaded file shows.
        """
        before = self.rec.now.code
        if (
            before is None
            or not before.loaded_whole
            or modules.of_the_user() <= self.rec.surroundings.loaded_files
        ):
            return before
        again = code.capture(blobs=lambda data: blobs.put(w.ledger, data))
        if again.loaded != before.loaded:
            self.rec.now.code = again
            w.write(again)
        return self.rec.now.code

    def _first_batches(self, step: Step) -> list[str]:
        """On the worker thread: the fingerprints of the first step's batches, once the device has given them."""
        if later.wait(lambda: all(b.ready() for b in step.batches), ARRIVAL):
            return [b.digest() for b in step.batches]
        self.rec.gaps.append(
            f"the fingerprint of the first batch had not come off the device after {ARRIVAL:g} s, so its place in "
            "the data was not judged"
        )
        return []

    def _rate(self) -> float | None:
        optimizer = self.rec.watched.optimizer
        return float(optimizer.param_groups[0]["lr"]) if optimizer is not None else None
