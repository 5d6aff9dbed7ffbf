"""The recorder: the verbs that a training loop calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from uuid6 import uuid7

from .._rooms import schemas, trackers
from ..capture import clip, effective, state
from ..capture.later import Later
from ..capture.watched import LINES, Watched
from ..judge import restore as restore_
from ..judge.drift import Declared
from ..ledger import blobs
from . import boundary, incidents, saving, streams
from .captured import Recent
from .contain import contained, log
from .gradients import GradientProbe
from .identity import World, agree
from .settings import Settings
from .step import Step
from .writer import Writer


class Recorder:
    """Records one process's part of a run. Made by `lineage.attach`.

    Every method is contained: it never raises, and when the layer fails it degrades, says so once, and
    training goes on. `should_stop` is set by an alarm where `on_alarm="request_stop"` was asked for.
    """

    def __init__(
        self,
        settings: Settings,
        world: World,
        watched: Watched,
        *,
        tracker: trackers.Tracker | None = None,
        parent: boundary.Parent | None = None,
        fork: bool = False,
        name: str | None = None,
        on_alarm: Callable[[schemas.Alarm], None] | str | None = None,
    ) -> None:
        self.settings, self.world, self.watched = settings, world, watched
        self.tracker, self.parent, self.fork, self.name = tracker, parent, fork, name
        self.should_stop = False
        self.live = True
        self.now = boundary.Now()
        self.seen = effective.Seen(world_size=world.world_size)
        self.gaps: list[str] = []
        self._on_alarm = on_alarm or settings.on_alarm
        self._writer: Writer | None = None
        self._pid = os.getpid()
        self._declared: list[Declared] = []
        self._first: int | None = None
        self._done = 0
        self._samples = parent.checkpoint.samples or 0 if parent and parent.checkpoint else 0
        self._tokens = parent.checkpoint.tokens or 0 if parent and parent.checkpoint else 0
        self._norm: Any = None
        self._probe: GradientProbe | None = None
        self._streams = streams.Streams(lambda: self._probe.names if self._probe else [])
        self._hyper: Any = None
        self._background: list[Any] = []
        self._unwatch: Callable[[], None] = lambda: None
        self._segment_record: str | None = None
        self._segment: schemas.Segment | None = None
        self._saves: dict[tuple[int, str], int] = {}
        self.last_checkpoint: str | None = None
        self.blobs: list[bytes] = []
        self.recent = Recent()
        self.unhandled_before = incidents.last_unhandled()
        self._loaded: list[schemas.ComponentDigest] = []

    # -- containment

    def trouble(self, part: str, error: BaseException, consequence: str) -> None:
        """Say a failure once in the log and in the ledger."""
        if self._writer is not None:
            self._writer.trouble(part, error, consequence)
        else:
            log.warning(
                "lineage: %s failed (%s: %s); %s. Training goes on.",
                part,
                type(error).__name__,
                error,
                consequence,
            )

    # -- the beginning

    @contained("attach", "some live values are not recorded")
    def _hook(self) -> None:
        """Start watching: clipping, and local gradients before the reduction."""
        if self.watched.optimizer is not None or self.watched.model is not None:
            self._unwatch = clip.watch(self._clipped)
        if self.watched.model is not None and self.settings.probes:
            self._probe = GradientProbe(self.watched)
        self.watched.generators = state.generators()
        if self.watched.optimizer is not None:
            self._hyper = effective.hyperparameters(self.watched.optimizer)

    def _clipped(self, threshold: float, total_norm: Any) -> None:
        self.seen.clip_threshold = threshold
        self.seen.clip_calls += 1
        self._norm = total_norm

    @contained("resume", "loader and random-number state after the load are not shown")
    def _read_loaded(self) -> None:
        """Read what moves before the first step, right after the load."""
        if self.settings.digests:
            self._loaded = state.capture(self.watched, state.LOADED)

    def begin(self) -> Writer | None:
        """Open the ledger, once: at the first verb, when it is known what was resumed from."""
        if self._writer is None and self.live:
            try:
                self._begin()
            except Exception as e:
                self.live = False
                self.trouble("ledger", e, "nothing is recorded for this process")
        return self._writer

    def _begin(self) -> None:
        run, source = self.settings.run_id, "argument"
        if run is not None and self.settings.sources.get("run_id") == "LINEAGE_RUN_ID":
            source = "environment"
        if run is None and self.parent is not None and self.parent.run and not self.fork:
            run, source = self.parent.run, "sidecar"
        if run is None:
            source = "new"
        ids = agree(run, source, self.world)  # type: ignore[arg-type]
        w = self._writer = Writer(self.settings, self.world, ids, self.tracker)
        w.step = self.parent.checkpoint.step if self.parent and self.parent.checkpoint else 0
        if self.world.rank == 0:
            alias = [self.tracker.alias()] if self.tracker else []
            fork_of = self.parent.run if self.fork and self.parent else None
            w.write(
                schemas.Run(uid=ids.run, name=self.name, aliases=alias, fork_of=fork_of, source=ids.source)
            )
        self._write_segment()
        if self.now.config is not None and self.world.rank == 0:
            w.write(self.now.config)
        if self.parent is not None and self.parent.problem:
            w.write(schemas.TrackerNote(code="LIN-C001", tracker="ledger", text=self.parent.problem))
            log.warning("lineage: %s", self.parent.problem)
        w.tasks.put(self._write_background)
        incidents.follow(self, w)

    def _write_segment(self, start: str | None = None) -> None:
        w, p = self._writer, self.parent
        assert w is not None
        known = p.checkpoint if p else None
        if start is None:
            start = "fork" if self.fork else "resume" if p else "fresh"
        segment = schemas.Segment(
            uid=w.ids.segment,
            start=start,
            parent_checkpoint=known.uid if known else None,
            parent_evidence=p.evidence if p else "none",
            parent_step=known.step if known else None,
            world_size=self.world.world_size,
            place=w.place,
            identity=w.ids.identity,
            step_base=self.settings.step_base,
            settings={k: schemas.Scalar.of(v) for k, v in self.settings.values.items() if k != "dir"},
        )
        self._segment = segment
        record = w.write(segment, supersedes=self._segment_record)
        self._segment_record = record.id

    def _write_background(self) -> None:
        """Write code and environment, which were captured away from the training thread."""
        w = self._writer
        assert w is not None
        for field, thread in self._background:
            thread.join(timeout=10.0)
            found = getattr(self.now, field)
            while self.blobs:
                blobs.put(w.ledger, self.blobs.pop())
            if found is not None:
                w.write(found)

    def segment(self) -> schemas.Segment | None:
        """This process's segment, as it was recorded."""
        return self._segment

    def regime_id(self) -> str | None:
        """The id of the regime in effect, once the first step has shown it."""
        return self._writer.regime if self._writer is not None else None

    # -- verbs

    @contained("attach", "late objects are not watched")
    def watch(self, /, **objects: Any) -> None:
        """Give objects that came late: model, optimizer, scheduler, scaler, loader."""
        for name, value in objects.items():
            if name not in LINES or name == "config":
                raise ValueError(
                    f"watch() knows {', '.join(k for k in LINES if k != 'config')}; not {name!r}"
                )
            setattr(self.watched, name, value)
            if self._first is not None:
                self.gaps.append(f"{name} was given after step {self._first}")
        self._unwatch()
        if self._probe is not None:
            self._probe.remove()
        self._hook()

    @contained("resume", "the parent checkpoint is not recorded")
    def resumed_from(self, path: str | Path, *, fork: bool = False) -> None:
        """Name the checkpoint that this process loaded. Call it after loading, before the first step."""
        self.parent = boundary.read_parent(path, self.world.rank)
        self.fork = fork
        self._read_loaded()
        if self.parent.checkpoint:
            self._samples, self._tokens = (
                self.parent.checkpoint.samples or 0,
                self.parent.checkpoint.tokens or 0,
            )
        if self._writer is None:
            self.begin()
        else:
            if self.parent.run and self.parent.run != self._writer.ids.run and not fork:
                self.gaps.append(
                    f"the checkpoint belongs to run {self.parent.run}, and this run's ledger was already open; "
                    "name it in lineage.attach(run, resumed_from=path)"
                )
            self._write_segment()

    @contained("mitigation", "a declared mitigation is not recorded")
    def mitigate(
        self,
        concept: str,
        *,
        why: str,
        before: Any = None,
        after: Any = None,
        hypothesis: str | None = None,
        who: str | None = None,
        smallest_justified: str | None = None,
    ) -> str | None:
        """Declare an intervention: which concept, from what to what, why. Returns its uid.

        It is in effect only with evidence, which the layer looks for at the next boundary or step.
        """
        w = self.begin()
        known = schemas.catalogue().concepts
        resolved = concept if concept in known else None
        if resolved is None:
            by_key = schemas.catalogue().of_key(concept)
            resolved = by_key.id if by_key else concept
        mitigation = schemas.Mitigation(
            uid=str(uuid7()),
            concept=resolved,
            before=schemas.Scalar.of(before) if before is not None else None,
            after=schemas.Scalar.of(after) if after is not None else None,
            why=why,
            hypothesis=hypothesis,
            who=who,
            smallest_justified=smallest_justified,
        )
        if w is None or self.world.rank != 0:
            return mitigation.uid
        record = w.write(mitigation)
        self._declared.append(Declared(record.id, mitigation))
        return mitigation.uid

    def step(self, step: int, batch: Any = None) -> Step:
        """Open a step: `with rec.step(step, batch) as st:`. `step` counts updates, the first is 1."""
        return Step(self, step + 1 - self.settings.step_base, batch)

    @contained("checkpoint", "a checkpoint is not recorded")
    def checkpoint(self, path: str | Path, *, step: int | None = None) -> str | None:
        """Record a checkpoint that was just saved at `path` (a folder or a file). Returns its uid.

        The exact digests of the live state are taken here; files are digested away from this thread.
        """
        return saving.checkpoint(self, Path(path), step)

    def saving(self, step: int | None = None) -> saving.Saving:
        """For asynchronous saves: `with rec.saving(step) as save: ...; save.commit(path)`.

        The live digests are taken when the block is entered, that is when staging starts.
        """
        return saving.Saving(self, step)

    @contained("evaluation", "an evaluation is not recorded")
    def evaluation(
        self,
        checkpoint: str,
        results: Mapping[str, float],
        *,
        evaluator: str,
        evaluator_version: str,
        data: str | None = None,
    ) -> None:
        """Record an evaluation of a checkpoint (its uid): evaluator and version, data digest, results."""
        w = self.begin()
        if w is not None:
            w.write(
                schemas.Evaluation(
                    checkpoint=checkpoint,
                    evaluator=evaluator,
                    evaluator_version=evaluator_version,
                    data=data,
                    results=dict(results),
                )
            )

    # -- a step from inside

    @contained("step", "what the first step shows is not recorded")
    def _enter(self, step: Step) -> None:
        if not self.live or os.getpid() != self._pid:
            return
        self._norm = None
        if self.watched.optimizer is not None:  # now: a scheduler may step inside the block
            step.lr = float(self.watched.optimizer.param_groups[0]["lr"])
        if self._first is None:
            self._first = step.step
            self._done = step.step - 1
            self._start()

    def _start(self) -> None:
        """Before the first step: what was restored, and what holds after the load."""
        w = self.begin()
        if w is None:
            return
        w.step = self._done
        self.now.first_step = self._first or 1
        counters = state.step_counters(self.watched)
        started = self._done > 0 or self.parent is not None or (counters is not None and counters[1] > 0)
        if started and self.parent is None:
            self._parent_by_content(w)
        self.now.after_load = effective.capture(
            self.watched, self.seen, "after_load" if started else "attach", self._done
        )
        w.write(self.now.after_load)
        if self.parent is not None and self.parent.checkpoint is not None and self.settings.digests:
            live = restore_.at_load(self.parent.live(), self._loaded, state.capture(self.watched))
            self.now.restore = restore_.compare(self.parent.checkpoint.uid, self.parent.live(), live)
            w.write(self.now.restore)
        if self.parent is not None and self.parent.checkpoint is not None and self.world.rank == 0:
            parent = self.parent
            w.tasks.put(lambda: incidents.warn_if_quarantined(w, parent))

    def _parent_by_content(self, w: Writer) -> None:
        """No checkpoint was named: look for one whose recorded weights equal the live ones."""
        self.parent = saving.find_by_content(w, self.watched) if self.settings.digests else None
        self._write_segment("resume" if self.parent else "unknown")
        if self.parent is None:
            log.warning(
                "lineage: training continues at step %d, and no checkpoint was named (LIN-C007). Name it: "
                "lineage.attach(run, resumed_from=path)",
                self._first,
            )

    @contained("step", "values of some steps are not recorded")
    def _exit(self, step: Step, error: BaseException | None) -> None:
        w = self._writer
        if w is None or not self.live or os.getpid() != self._pid:
            return
        pending = self._pending(step)
        if error is None:
            self._done = w.step = step.step
            self._consume(step)
        self._streams.push(pending)
        self._drain(w)
        if error is not None:
            return
        if step.step == self._first:
            self._after_first(w, step)
        else:
            self._in_run(w, step.step)

    def _pending(self, step: Step) -> streams.Pending:
        later, number = step.take_loss()
        pending = streams.Pending(step.step, at=schemas.now(), batches=step.batches)
        if later is not None:
            pending.later["loss"] = later
        elif number is not None:
            pending.plain["loss"] = number
        if hasattr(self._norm, "detach") and not hasattr(self._norm, "to_local"):
            # a distributed tensor's full value would take a collective, and we issue none
            pending.later["grad_norm"] = Later(self._norm)
        if self._probe is not None:
            pending.gradients = self._probe.take()
        if step.lr is not None:
            pending.plain["lr"] = step.lr
        if self.seen.clip_threshold is not None:
            pending.plain["clip_threshold"] = self.seen.clip_threshold
        return pending

    def _consume(self, step: Step) -> None:
        self.watched.batches_seen += len(step.batches)
        self._samples += sum(b.samples for b in step.batches) * self.world.world_size
        self._tokens += sum(b.tokens for b in step.batches) * self.world.world_size
        if step.batches and self.seen.samples_per_micro is None:
            self.seen.samples_per_micro = step.batches[0].samples
            self.seen.tokens_per_micro = step.batches[0].tokens
            self.seen.micro_batches = len(step.batches)

    def _drain(self, w: Writer, *, wait: bool = False) -> None:
        """Take what has arrived: to the series, to the detectors, to the alarms."""
        for values in self._streams.arrived(wait=wait):
            w.rows("probes", streams.rows(w.ids.segment, self.world.rank, values))
            w.rows("batches", streams.batch_rows(w.ids.segment, self.world.rank, values))
            if values.step == self._first:
                self.now.batches = [digest for digest, _, _ in values.batches]
            for signal, phase, finding in self._streams.judge(values):
                incidents.raise_alarm(self, w, signal, phase, finding, values)

    def _after_first(self, w: Writer, step: Step) -> None:
        self.now.effective = effective.capture(self.watched, self.seen, "after_first_step", step.step)
        w.write(self.now.effective)
        self._hyper = self._facts()
        if self.world.rank == 0:
            declared, parent, first = list(self._declared), self.parent, replace(self.now)

            def judge() -> None:
                # code and environment come from threads that may still run now; the live values must not move on
                first.code, first.environment = self.now.code, self.now.environment
                boundary.judge(w, parent, first, declared)

            w.tasks.put(judge)

    def _facts(self) -> Any:
        held = (
            effective.hyperparameters(self.watched.optimizer) if self.watched.optimizer is not None else None
        )
        base = getattr(self.watched.scheduler, "base_lrs", None)
        return held, tuple(base) if base else None, self.seen.clip_threshold

    def _in_run(self, w: Writer, step: int) -> None:
        """Undeclared run-time drift: plain values that no schedule moves, compared each step."""
        facts = self._facts()
        if facts == self._hyper:
            return
        self._hyper = facts
        before = self.now.effective
        after = effective.capture(self.watched, self.seen, "in_run", step)
        w.write(after)
        if before is not None and self.world.rank == 0:
            declared = list(self._declared)
            w.tasks.put(lambda: boundary.judge_in_run(w, before, after, step, declared))
        self.now.effective = after

    # -- the end

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(error)

    @contained("close", "the end of the segment is not recorded")
    def close(self, error: BaseException | None = None) -> None:
        """End the segment: coverage, seal, report lines. Called at exit where it was not called before."""
        w = self._writer
        self._unwatch()
        if self._probe is not None:
            self._probe.remove()
        if w is None or not self.live or os.getpid() != self._pid:
            self.live = False
            return
        self._drain(w, wait=True)
        self.live = False
        incidents.close(self, w, error)
        left = w.close()
        if not self.settings.quiet and self.world.rank == 0:
            for line in incidents.exit_lines(self, w, left):
                log.warning("%s", line)
