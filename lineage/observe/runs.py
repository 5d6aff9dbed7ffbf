"""Which observed run each copied call belongs to."""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..recorder.contain import describe, log
from ..recorder.identity import TakenOver, world
from . import starts
from ._light import light
from .observation import Key, Observation, Shared, Start
from .origin import Loaded, look_up
from .passing import Passing
from .steps import WandbSteps

MOST_RUNS = 64
"""Runs of one process that are observed; a search over thousands of small runs is told, not recorded."""
MOST_EARLY = 100
"""Saves that wait for a run to begin."""


class Runs:
    """The observed runs of one process. Only one thread at a time calls it."""

    def __init__(self, shared: Shared, timeout: float) -> None:
        self.shared, self.timeout = shared, timeout
        self.of: dict[Key, Observation] = {}
        self.stack: list[Observation] = []
        """observed runs that have not been closed, oldest first; files belong to the newest active one"""
        self.handed: set[Key] = set()
        self.passing: dict[Key, Passing] = {}
        """runs that were handed over, whose logged values go to a recorder"""
        self.foreign: frozenset[Key] = frozenset()
        """runs of the process from which this one was forked"""
        self.unobserved = 0
        self.lines: list[str] = []
        """what the run that was closed last has to say to a person"""
        self._handles: dict[Key, Any] = {}
        self._configs: dict[int, tuple[Any, Key]] = {}
        self._steps: dict[Key, WandbSteps] = {}
        self._recorders: list[weakref.ref[Any]] = []
        self._early: list[tuple[str, str, Any, dict[str, Any], Any]] = []
        self._ending = False

    def take(self, event: tuple[Any, ...]) -> None:
        """Handle one copied call: the first word names it."""
        getattr(self, "_" + event[0].replace(" ", "_"))(*event[1:])

    def further_rank(self) -> None:
        """This process is a further rank of a launch: it has a part in rank 0's run, with a tracker's or without."""
        self.stack.append(Observation(self.shared))

    def due(self) -> None:
        """Do what is due though nothing was called."""
        self._replay()
        for o in list(self.stack):
            contained(o.flush)
        for passing in set(self.passing.values()):
            contained(passing.flush)

    def pending(self) -> bool:
        """Whether a checkpoint is not recorded as a whole yet."""
        return any(o.saves is not None and o.saves.pending() for o in self.stack)

    def finish(self) -> None:
        """The process ends, and every run with it."""
        self._ending = True
        self._replay()
        for o in list(self.stack):
            self._end(o)
        if self.unobserved:
            self.lines.append(
                f"lineage: {self.unobserved} further runs of this process are not recorded: {MOST_RUNS} is the most"
            )

    # -- W&B

    def _wandb_started(self, at: float, run: Any, config: Any, asked: dict[str, Any]) -> None:
        key = ("wandb", str(run.id))
        known = self.of.get(key)
        if known is not None and self._handles.get(key) is run:
            return  # `init` gave back the run that was there
        o = self._begin(key, starts.wandb_run(run, asked))
        self._handles[key] = run
        self._configs[id(config)] = (config, key)
        self._steps[key] = WandbSteps(int(asked.get("starting_step") or 0))
        if o is not None:
            o.asks("wandb.config", starts.wandb_config(config), whole=True)

    def _wandb(self, run: Any) -> tuple[Key, Observation | None]:
        """The observation of a W&B run; one that began before the observer is taken up here."""
        key = ("wandb", str(run.id))
        if key not in self._handles and key not in self.foreign:
            self._wandb_started(time.time(), run, run.config, {})
        return key, self.of.get(key)

    def _wandb_logged(self, at: float, run: Any, row: dict[str, Any], step: Any, commit: Any) -> None:
        key, o = self._wandb(run)
        steps = self._steps.get(key)
        if steps is None:
            return
        was = steps.dropped
        number, axis = steps.of(row, step, commit)
        if o is None:
            self._pass_on(key, at, number, axis, row)
            return
        if steps.dropped == 1 and was == 0:
            o.gaps.append(
                f"W&B dropped rows logged with step= below the newest one (LIN-T001), first at step {number}; "
                "they are recorded here"
            )
        o.logged("wandb", at, number, axis, row)

    def _wandb_defined(self, at: float, run: Any, name: Any, axis: Any) -> None:
        key, _ = self._wandb(run)
        if key in self._steps:
            self._steps[key].define(name, axis)

    def _wandb_configured(self, at: float, config: Any) -> None:
        light.wandb_copies.read(config)
        _, key = self._configs.get(id(config), (None, None))
        o = self.of.get(key) if key else None
        if o is not None:
            o.asks("wandb.config", starts.wandb_config(config), whole=True)

    def _wandb_finished(self, at: float, run: Any, code: Any) -> None:
        key = ("wandb", str(run.id))
        o = self.of.pop(key, None)
        self._handles.pop(key, None)
        self._configs = {k: v for k, v in self._configs.items() if v[1] != key}
        if o is not None:
            o.ended(key, code if isinstance(code, int) else None)

    # -- MLflow

    def _mlflow_started(
        self,
        at: float,
        uri: str,
        run_id: str,
        experiment: Any,
        name: Any,
        parent: Any,
        params: Any,
        new: bool,
        unhandled: int,
    ) -> None:
        key = ("mlflow", str(uri), str(run_id))
        if key in self.of or key in self.foreign:
            return
        start = starts.mlflow_run(uri, run_id, experiment, name, parent, params, new=new)
        start.unhandled = unhandled
        self._begin(key, start)

    def _mlflow(self, uri: str, run_id: str) -> Observation | None:
        key = ("mlflow", str(uri), str(run_id))
        if key not in self.of and key not in self.foreign and key not in self.handed:
            self._begin(key, starts.mlflow_run(uri, run_id, None, None, None, None, new=False))
        return self.of.get(key)

    def _mlflow_logged(self, at: float, uri: str, run_id: str, rows: Any) -> None:
        o = self._mlflow(uri, run_id)
        by_step: dict[int, dict[str, Any]] = {}
        for key, value, step in rows:
            by_step.setdefault(int(step or 0), {})[key] = value
        for step, row in by_step.items():
            if o is not None:
                o.logged("mlflow", at, step, "step=", row)
            else:
                self._pass_on(("mlflow", str(uri), str(run_id)), at, step, "step=", row)

    def _mlflow_params(self, at: float, uri: str, run_id: str, values: Any, refused: str | None) -> None:
        o = self._mlflow(uri, run_id)
        if o is not None:
            o.asks("mlflow params", values, whole=False)
            if refused is not None:
                o.refused("mlflow", values, refused)

    def _mlflow_tags(self, at: float, uri: str, run_id: str, values: Any) -> None:
        o = self._mlflow(uri, run_id)
        if o is not None:
            o.tagged("mlflow", values)

    def _mlflow_ended(self, at: float, uri: str, run_id: str, status: str) -> None:
        key = ("mlflow", str(uri), str(run_id))
        o = self.of.pop(key, None)
        if o is not None:
            o.ended(key, 0 if status in ("FINISHED", "SCHEDULED", "RUNNING") else 1)

    # -- files

    def _saved(self, at: float, by: str, path: str, stat: Any, facts: dict[str, Any], future: Any) -> None:
        o = self._newest() or self._without_tracker()
        if o is not None and o.begin() and o.saves is not None:
            o.saves.seen(by, path, stat, facts, future, o.rows.last)
        elif len(self._early) < MOST_EARLY:
            self._early.append((by, path, stat, facts, future))

    def _replay(self) -> None:
        """Files that were saved before a run began belong to the first one that does."""
        o = self._newest() or (self._without_tracker() if self._early else None)
        if not self._early or o is None or (o.rec is None and not self._ending) or not o.begin():
            return
        early, self._early = self._early, []
        for by, path, stat, facts, future in early:
            if o.saves is not None:
                o.saves.seen(by, path, stat, facts, future, None)

    def _loaded(self, at: float, by: str, path: str, stat: Any, facts: dict[str, Any], future: Any) -> None:
        load = look_up(
            Loaded(path, by, at, facts, stat if "distributed" not in by else None),
            Path(str(self.shared.settings.dir)),
            world().rank,
        )
        o = self._newest()
        if o is not None and o.rec is not None:
            o.loaded(load)
        elif len(self.shared.loads) < 1000:
            self.shared.loads.append(load)

    # -- which observation

    def _begin(self, key: Key, start: Start) -> Observation | None:
        """A tracker's run starts: it joins the training that another tracker shows, or is one of its own."""
        if key in self.handed and self.attached():
            return None
        top = self._newest()
        joined = top is not None and top.active and key[0] not in top.trackers() and start.parent is None
        if top is not None and (joined or not top.starts):
            o = top
        else:
            for finished in [x for x in self.stack if not x.active]:
                self._end(finished)
            if self.shared.begun >= MOST_RUNS:
                self.unobserved += 1
                return None
            o = Observation(self.shared)
            self.stack.append(o)
        self.of[key] = o
        o.joins(key, start)
        return o

    def _newest(self) -> Observation | None:
        """The newest run that has not ended, else the newest one."""
        active = [o for o in self.stack if o.active]
        return active[-1] if active else self.stack[-1] if self.stack else None

    def _without_tracker(self) -> Observation | None:
        """A checkpoint was saved and no tracker has a run. Where none is imported, none is waited for."""
        if any(name in sys.modules for name in light.targets.TRACKERS) and not self._ending:
            return None
        o = Observation(self.shared)
        self.stack.append(o)
        return o

    def _end(self, o: Observation) -> None:
        self.stack.remove(o)
        self.of = {k: v for k, v in self.of.items() if v is not o}
        self.lines = contained(lambda: o.close(self.timeout)) or self.lines

    # -- lineage.attach

    def _pass_on(self, key: Key, at: float, step: int, axis: str, row: dict[str, Any]) -> None:
        """A row of a run that was handed over goes to its recorder."""
        passing = self.passing.get(key)
        if passing is not None:
            passing.logged(key[0], at, step, axis, row)

    def hand_over(self, run: Any, recorder: Any) -> TakenOver | None:
        """Leave a run, and this process's files, to a recorder that is attached to it; what is logged is passed on."""
        self._recorders = [r for r in self._recorders if r() is not None]
        self._recorders.append(weakref.ref(recorder))
        key = starts.key_of(run)
        o = self.of.get(key) if key else self._newest()
        passing = Passing(recorder)
        if key is not None:
            self.handed.add(key)
            self.passing[key] = passing
        if o is None:
            return None
        self.passing |= {k: passing for k, v in self.of.items() if v is o}
        self.handed |= {k for k, v in self.of.items() if v is o}
        self.of = {k: v for k, v in self.of.items() if v is not o}
        self.stack.remove(o)
        begun = o.taken_over()
        same = os.path.abspath(str(recorder.settings.dir)) == str(self.shared.settings.dir)
        return begun if same else None

    def attached(self) -> bool:
        """Whether a recorder of `lineage.attach` is live: it records files itself, with what only it sees."""
        return any((rec := r()) is not None and rec.live for r in self._recorders)


def contained(act: Callable[[], Any]) -> Any:
    """Run a part of the observer; what fails is counted, and said once in the log of those who ask for it."""
    try:
        return act()
    except Exception as error:
        light.events.failed(error)
        log.info("lineage: the observer failed on a call (%s). Training goes on.", describe(error))
        return None
