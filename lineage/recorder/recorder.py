"""The recorder: the verbs that a training loop calls."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from .._rooms import schemas, trackers
from ..capture import effective
from ..capture.watched import LINES, Watched, readable
from ..judge.drift import Declared
from . import boundary, by_hand, incidents, mitigations, on_page, quarantine, saving, summary
from .captured import Recent
from .contain import contained, describe, log
from .followed import Followed
from .hardware import watcher
from .identity import Ids, TakenOver, World, agree
from .settings import Settings
from .staged import Stager
from .step import Step
from .stepping import Stepping
from .surroundings import Surroundings
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
        self.tracker, self.parent, self.fork, self.name = tracker, parent, fork, mitigations.text(name)
        self.should_stop = False
        self.live, self.at_exit, self.now = True, False, boundary.Now()
        self.seen = effective.Seen(world_size=world.world_size)
        self.gaps: list[str] = []
        self._on_alarm = incidents.asked(on_alarm) or settings.on_alarm
        self._writer: Writer | None = None
        self._early: list[tuple[str, str, str]] = []  # failures before the ledger was open
        self._telling, self._pid = threading.Lock(), os.getpid()
        self._declared: list[Declared] = []
        self.surroundings = Surroundings(self)
        self._segment_record: str | None = None
        self._segment: schemas.Segment | None = None
        self._saves: dict[tuple[int, str], int] = {}
        self.absent: set[str] = set()
        """uids of saves whose path was not there"""
        self.unread: dict[str, str] = {}
        """objects that were given and cannot be read -> the exception"""
        self.followed = Followed(self._mark, lambda: self._writer.ledger if self._writer else None)
        self.last_checkpoint: str | None = None
        self.taken_over: TakenOver | None = None
        self.recent = Recent()
        self.hardware: watcher.Watcher | None = None
        self.unhandled_before = incidents.last_unhandled()
        self.steps = Stepping(self)

    # -- containment

    def trouble(self, part: str, error: BaseException, consequence: str) -> None:
        """Say a failure once in the log and in the ledger, where it waits for the ledger to be opened."""
        text = describe(error)
        with self._telling:
            w = self._writer
            if w is None:
                self._early.append((part, text, consequence))
        if w is not None:
            w.trouble(part, error, consequence)
        else:
            log.warning("lineage: %s failed (%s); %s. Training goes on.", part, text, consequence)

    def _tell_early(self, w: Writer) -> None:
        """Write what failed before the ledger was open: a capture, a hook, an object that could not be read."""
        with self._telling:
            early, self._early = self._early, []
        for part, text, consequence in dict.fromkeys(early):
            w.degraded(part, text, consequence)

    # -- the beginning

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
        ids = self._ids()
        w = self._writer = self._open(ids)
        w.step = self.parent.checkpoint.step if self.parent and self.parent.checkpoint else 0
        self._write_run(w)
        if self.parent is not None:
            self.parent.ask(w.ledger, self.world.rank)
            w.step = self.parent.checkpoint.step if self.parent.checkpoint else 0
        self._write_segment()
        self._tell_early(w)
        if self.tracker is not None and self.world.rank == 0:
            on_page.tell_version(w, self.tracker.kind)
        if self.now.config is not None and self.world.rank == 0:
            w.write(self.now.config)
        if self.parent is not None:
            quarantine.say_parent(w, self.parent)
        w.tasks.put(lambda: self.surroundings.write(w))
        if self.world.rank == 0 and self.parent is not None:
            w.tasks.put(lambda: incidents.warn_if_damaged(w))
        incidents.follow(self, w)
        self.hardware = watcher.start(w)

    def _write_run(self, w: Writer) -> None:
        """Rank 0 writes the run down, with the one that it was forked from as far as that is known."""
        if self.world.rank != 0:
            return
        fork_of = self.parent.run if self.fork and self.parent else None
        w.write(
            schemas.Run(
                uid=w.ids.run, name=self.name, aliases=self._aliases(), fork_of=fork_of, source=w.ids.source
            )
        )

    def _ids(self) -> Ids:
        """Say which run and segment this is."""
        run, source = self.settings.run_id, "argument"
        if run is not None and self.settings.sources.get("run_id") == "LINEAGE_RUN_ID":
            source = "environment"
        if run is None and self.parent is not None and self.parent.run and not self.fork:
            run, source = self.parent.run, "loaded" if self.parent.found_in else "sidecar"
        if run is None:
            source = "new"
        if self.taken_over is not None and run in (None, self.taken_over.ids.run) and not self.fork:
            self._segment_record = self.taken_over.segment
            return self.taken_over.ids
        return agree(run, source, self.world)  # type: ignore[arg-type]

    def _open(self, ids: Ids) -> Writer:
        """Open the ledger of the run."""
        return Writer(self.settings, self.world, ids, self.tracker)

    def _aliases(self) -> list[schemas.TrackerAlias]:
        """What trackers call this run."""
        return [self.tracker.alias()] if self.tracker else []

    def _start(self) -> str:
        """How this segment began."""
        return "fork" if self.fork else "resume" if self.parent else "fresh"

    def _write_segment(self, start: str | None = None) -> None:
        w, p = self._writer, self.parent
        assert w is not None
        known = p.checkpoint if p else None
        segment = schemas.Segment(
            uid=w.ids.segment,
            start=start or self._start(),
            parent_checkpoint=known.uid if known else None,
            parent_evidence=p.evidence if p else "none",
            parent_step=known.step if known else None,
            world_size=self.world.world_size,
            place=w.place,
            identity=w.ids.identity,
            step_base=self.settings.step_base,
            settings={k: schemas.Scalar.of(v) for k, v in self.settings.recorded().items()},
        )
        self._segment = segment
        record = w.write(segment, supersedes=self._segment_record)
        self._segment_record = record.id

    def _mark(self, mark: schemas.CheckpointMark) -> None:
        if self._writer is not None:
            self._writer.write(mark)

    def segment(self) -> schemas.Segment | None:
        """This process's segment, as it was recorded."""
        return self._segment

    def regime_id(self) -> str | None:
        """The id of the regime in effect, once the first step has shown it."""
        return self._writer.regime if self._writer is not None else None

    def _leave_unreadable(self, *names: str) -> None:
        """Leave watched objects out of which nothing could be recorded, so that the rest still is."""
        for name in names:
            try:
                readable(name, getattr(self.watched, name))
            except Exception as e:
                setattr(self.watched, name, None)
                self.unread[name] = type(e).__name__
                self.trouble(name, e, f"the {name} cannot be read, so nothing of it is recorded")

    # -- verbs

    @contained("attach", "late objects are not watched")
    def watch(self, /, **objects: Any) -> None:
        """Give objects that came late: model, optimizer, scheduler, scaler, loader, ema."""
        for name, value in objects.items():
            if name not in LINES or name == "config":
                raise ValueError(
                    f"watch() knows {', '.join(k for k in LINES if k != 'config')}; not {name!r}"
                )
            old = getattr(self.watched, name)
            setattr(self.watched, name, value)
            self._leave_unreadable(name)
            if name == "optimizer":
                self.steps.drift.new_optimizer(old, self.watched.optimizer)
            elif name == "loader":
                self.steps.drift.new_loader()
            if self.steps.first is not None:
                self.gaps.append(f"{name} was given after step {self.steps.first}")
        self.steps.unhook()
        self.steps.hook()

    @contained("resume", "the parent checkpoint is not recorded")
    def resumed_from(self, path: str | Path, *, fork: bool = False) -> None:
        """Name the checkpoint that this process loaded. Call it after loading, before the first step."""
        self.parent = boundary.read_parent(path, self.world.rank)
        if self._writer is not None:
            self.parent.ask(self._writer.ledger, self.world.rank)
        elif self.settings.run_id is None:
            self.parent.look_in(Path(self.settings.dir), self.world.rank)
        self.fork = fork
        self.steps.read_loaded()
        self.steps.count_from(self.parent)
        if self._writer is None:
            self.begin()
        else:
            if self.parent.run and self.parent.run != self._writer.ids.run and not fork:
                self.gaps.append(
                    f"the checkpoint belongs to run {self.parent.run}, and this run's ledger was already open; "
                    "name it in lineage.attach(run, resumed_from=path)"
                )
            if fork:  # the run was written down before its parent was named
                self._write_run(self._writer)
            quarantine.say_parent(self._writer, self.parent)
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
        mitigation = mitigations.declare(
            concept,
            before=before,
            after=after,
            why=why or "not stated",
            hypothesis=hypothesis,
            who=who,
            smallest_justified=smallest_justified,
        )
        if w is None or self.world.rank != 0:
            return mitigation.uid
        record = w.write(mitigation)
        self._declared.append(Declared(record.id, mitigation))
        return mitigation.uid

    @contained("incident", "an incident is not recorded")
    def incident(
        self,
        message: str,
        *,
        owner: str | None = None,
        concept: str | None = None,
        step: int | None = None,
        rank: int | None = None,
    ) -> str | None:
        """Open an incident by hand: something is wrong, whatever the detectors say. Returns its uid.

        Args:
            message: what is wrong, in words.
            owner: who looks after it.
            concept: the training condition that it is about, by its name in the catalogue or its config key.
            step: the first update that is thought to be bad, counted as in `rec.step`.
            rank: the rank on which it began, if it is known.
        """
        w = self.begin()
        first = None if step is None else self._number(step)
        return by_hand.open_incident(w, message, owner, concept, first, rank) if w is not None else None

    @contained("incident", "the end of an incident is not recorded")
    def close_incident(self, uid: str, *, why: str, owner: str | None = None) -> None:
        """Close an incident, with the reason. That training goes on is no reason: it does not tell the cause."""
        w = self.begin()
        if w is not None:
            by_hand.close_incident(w, uid, why, owner)

    def _number(self, step: int) -> int:
        """A step as the training loop counts it -> the number of the update, from 1."""
        return int(step) + 1 - int(self.settings.step_base)

    def step(self, step: int, batch: Any = None) -> Step:
        """Open a step: `with rec.step(step, batch) as st:`. `step` counts updates, the first is 1."""
        try:
            number = self._number(step)
        except (TypeError, ValueError) as e:
            self.trouble("step", e, "steps without a number are counted on from the last one")
            number = self.steps.done + 1
        return Step(self, number, batch)

    @contained("checkpoint", "a checkpoint is not recorded")
    def checkpoint(self, path: str | Path, *, step: int | None = None) -> str | None:
        """Record a checkpoint that was just saved at `path` (a folder or a file). Returns its uid.

        The exact digests of the live state are taken here; files are digested away from this thread.
        """
        return saving.checkpoint(self, Path(path), step)

    def saving(self, step: int | None = None, *, stager: Stager | None = None) -> saving.Saving:
        """For asynchronous saves: `with rec.saving(step) as save: ...; save.commit(path)`.

        Live digests are taken when the block is entered; with a stager (`lineage.integrations.dcp.Stager`) those of
        tensors are made of what it stages, on a thread of their own.
        """
        return saving.Saving(self, step, stager)

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
            by_hand.evaluation(w, checkpoint, dict(results), evaluator, evaluator_version, data)

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
        w = self.begin() if self._pid == os.getpid() else None
        self.steps.unhook()
        if w is None or not self.live or os.getpid() != self._pid:
            self.live = False
            return
        self.steps.drain(w, wait=self.settings.exit_timeout)
        if self.steps.streams.on_their_way:
            self.gaps.append(
                f"values of {self.steps.streams.on_their_way} steps had not come off the device when the run ended"
            )
        self.steps.agreeing.close()
        self.steps.drift.close(w)
        if self.hardware is not None:
            self.hardware.close()
        self.live = False
        incidents.close(self, w, error)
        left = w.close()
        if not self.settings.quiet and self.world.rank == 0:
            for line in summary.exit_lines(self, w, left):
                log.warning("%s", line)
