"""One observed run: what its tracker calls and its files show, on the way into a ledger."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from .._rooms import schemas
from ..capture import config as config_
from ..capture import secrets
from ..judge import drift as drift_
from ..ledger import health as health_
from ..recorder import boundary, health, incidents
from ..recorder.contain import describe, log
from ..recorder.identity import Ids, TakenOver, world
from ..recorder.settings import Settings
from . import compare, coverage, origin, process, ranks
from ._light import light
from .recording import ObservedRecorder
from .rows import Rows
from .saves import Saves

Key: TypeAlias = tuple[str, ...]
"""(tracker, id) of a W&B run, (tracker, store, id) of an MLflow run"""
LAST_CALL = 1.5
"""Seconds that a further rank's exit waits for rank 0 to say which run it is."""


@dataclass
class Start:
    """What was seen of the start of a tracker's run."""

    alias: schemas.TrackerAlias
    name: str | None = None
    asked: dict[str, Any] = field(default_factory=dict)
    """resume, fork and rewind requests, and whether the tracker says that it was resumed"""
    parent: str | None = None
    """the tracker's run in which it is nested"""
    held: Mapping[str, Any] | None = None
    """the config that the tracker held for this run before this process"""
    unhandled: int = 0
    """identity of the exception that had been printed last when it began"""


@dataclass
class Shared:
    """What the observed runs of one process have in common."""

    settings: Settings
    capture: bool = True
    """whether code and environment are captured"""
    inline: bool = False
    """whether everything is done on the observer's one thread"""
    code: schemas.CodeState | None = None
    environment: schemas.Environment | None = None
    captured: bool = False
    begun: int = 0
    loads: list[origin.Loaded] = field(default_factory=list)
    """checkpoints that were read since the last run began"""


class Observation:
    """A run under observation. Only the observer's thread calls it."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.active: set[Key] = set()
        self.starts: dict[Key, Start] = {}
        self.asked: dict[str, dict[str, Any]] = {}
        """source -> what was asked for through it"""
        self.rec: ObservedRecorder | None = None
        self.saves: Saves | None = None
        self.config: schemas.Config | None = None
        self.rows = Rows()
        self.gaps: list[str] = []
        self.loads = 0
        self.closed = False
        self._unhandled = light.events.unhandled()
        self._exit: int | None = None
        self._world = world()

    # -- the beginning

    def joins(self, key: Key, start: Start) -> None:
        """Another tracker's run, or the first one, stands for this training."""
        if not self.starts:
            self._unhandled = start.unhandled
        self.active.add(key)
        self.starts[key] = start
        if self.rec is not None:
            self.rec.write(schemas.Run(uid=self.rec.begin().ids.run, name=start.name, aliases=[start.alias]))  # type: ignore[union-attr]

    def trackers(self) -> set[str]:
        """The kinds of trackers whose runs stand for this training now."""
        return {key[0] for key in self.active}

    def begin(self, *, last_call: bool = False) -> bool:
        """Open the ledger where that is due and possible. Returns whether it is open.

        A further rank waits until rank 0 has said which run it is; `last_call` ends the waiting.
        """
        if self.rec is not None or self.closed:
            return self.rec is not None
        self._world = world()
        if self._further():
            ids = ranks.told(self.shared.begun + 1, patience=LAST_CALL if last_call else 0.0)
            if ids is None and not (last_call and self.active):
                return False
            self._open(ids)
        else:
            self._open(None)
        return self.rec is not None

    def _further(self) -> bool:
        """Whether this is a further rank of a launch, whose run rank 0 names."""
        return self._world.world_size > 1 and self._world.rank != 0 and ranks.meeting() is not None

    def _open(self, told: Ids | None) -> None:
        shared, settings = self.shared, self.shared.settings
        shared.begun += 1
        root = Path(str(settings.dir))
        aliases = [s.alias for s in self.starts.values()]
        asked: dict[str, Any] = {}
        for s in self.starts.values():
            asked |= s.asked
        came = origin.decide(settings, aliases, asked, shared.loads, root)
        ids = told or ranks.ids(came.run, came.source, self._world)
        ranks.announce(shared.begun, ids, self._world)
        self.gaps += came.gaps
        self.config = self._requested()
        self._capture()
        rec = ObservedRecorder(
            settings,
            self._world,
            ids,
            aliases=aliases,
            start=came.start,
            parent=came.parent,
            name=next((s.name for s in self.starts.values() if s.name), None),
        )
        rec.now.config, rec.now.code, rec.now.environment = self.config, shared.code, shared.environment
        w = rec.begin()
        if w is None:
            self.closed = True
            return
        self.rec = rec
        if self._world.rank == 0:
            for found in (shared.code, shared.environment):
                if found is not None:
                    w.write(found)
        self._held(came)
        self._facts(came)
        self.saves = Saves(rec, inline=shared.inline)
        loads, shared.loads = shared.loads, []
        for load in loads:
            self.loaded(load)

    def _facts(self, came: origin.Origin) -> None:
        """What holds now, as far as a process shows it without its objects; and what that changes."""
        rec = self.rec
        assert rec is not None
        w = rec.begin()
        assert w is not None
        start = (came.parent.checkpoint.step if came.parent and came.parent.checkpoint else None) or 0
        moment: schemas.Moment = "attach" if came.start == "fresh" else "after_load"
        held = process.held(moment, start)
        w.write(held)
        rec.now.effective = held
        before = came.parent.side() if came.parent and came.parent.checkpoint else came.before
        if self._world.rank != 0 or before is None:
            return
        after = drift_.Side(self.config, held, self.shared.code, self.shared.environment)
        parent = came.parent.checkpoint.uid if came.parent and came.parent.checkpoint else None
        compare.at_boundary(w, before, after, (self.rows.first or start + 1), parent)

    def _held(self, came: origin.Origin) -> None:
        """Where no ledger knows an older side, what the tracker itself still held of it stands in."""
        if came.parent is not None or came.before is not None:
            return
        held = next((s.held for s in self.starts.values() if s.held), None)
        if held is not None and came.start != "fresh":
            told = config_.capture(
                dict(held), name=f"{next(iter(self.trackers()), 'tracker')} before this segment"
            )
            came.before = drift_.Side(config=told)

    def _capture(self) -> None:
        """Read code and environment, once for all runs of this process."""
        shared = self.shared
        if shared.captured or not shared.capture or self._world.rank != 0:
            return
        shared.captured = True
        from ..capture import code, environment

        for name, read in (
            ("code", code.capture),
            ("environment", lambda: environment.capture(world_size=self._world.world_size)),
        ):
            try:
                setattr(shared, name, read())
            except Exception as e:
                log.warning("lineage: the %s is not recorded (%s)", name, type(e).__name__)

    # -- what is asked for

    def _requested(self) -> schemas.Config | None:
        """The config that was asked for so far, of all trackers together; the first one's word counts."""
        if not self.asked:
            return None
        merged: dict[str, Any] = {}
        for values in reversed(list(self.asked.values())):
            merged |= values
        return config_.capture(merged, argv=list(sys.argv), name=" and ".join(self.asked))

    def asks(self, source: str, values: Mapping[str, Any], *, whole: bool) -> None:
        """A config as it stands now (`whole`), or further values of it."""
        kept = {k: v for k, v in values.items() if not str(k).startswith("lineage/")}
        self.asked[source] = kept if whole else {**self.asked.get(source, {}), **kept}
        if self.rec is None:
            return
        before, self.config = self.config, self._requested()
        w = self.rec.begin()
        if w is None or self.config is None or (before is not None and before.digest == self.config.digest):
            return
        w.write(self.config)
        self.rec.now.config = self.config
        if before is not None and self._world.rank == 0:
            compare.in_run(w, before, self.config, (self.rows.last or 0) + 1)

    def refused(self, kind: str, values: Mapping[str, Any], error: str) -> None:
        """The tracker refused values that were asked for."""
        if self.begin() and self.rec is not None:
            w = self.rec.begin()
            if w is not None and self._world.rank == 0:
                compare.refused(w, kind, dict(values), error)

    def tagged(self, kind: str, tags: Mapping[str, str]) -> None:
        """Tags were set: kept as what they are, words beside a run."""
        own = {k: v for k, v in tags.items() if not k.startswith(("mlflow.", "lineage"))}
        if not own or not self.begin() or self.rec is None:
            return
        shown = {k: schemas.Scalar.of(secrets.mask_value(k, v)[0]) for k, v in own.items()}
        text = f"tags set in {kind}: " + ", ".join(f"{k}={v.text()}" for k, v in list(shown.items())[:8])
        self.rec.write(schemas.TrackerNote(code="LIN-O002", tracker=kind, text=text[:1000], values=shown))

    # -- rows

    def logged(self, tracker: str, at: float, step: int, axis: str, row: Mapping[Any, Any]) -> None:
        """A row of values was logged."""
        self.rows.logged(tracker, at, step, axis, row)
        self.begin()

    def flush(self) -> None:
        """Write what is due. Called a few times a second."""
        self.rows.arrived()
        if self.saves is not None:
            self.saves.idle()
        if self.rows.waits() and self.begin() and self.rec is not None:
            self.rows.write(self.rec)

    # -- files

    def loaded(self, load: origin.Loaded) -> None:
        """A checkpoint was read while the ledger was open, or before: a record, whatever becomes of it."""
        assert self.rec is not None
        self.loads += 1
        self.rec.write(load.record())

    # -- the end

    def ended(self, key: Key, code: int | None) -> None:
        """A tracker's run ended. Files may still be saved; the segment ends with the process, or the next run.

        Without a code the training code ended it, and said nothing of a failure.
        """
        self.active.discard(key)
        self._exit = code if code is not None else self._exit or 0

    def close(self, timeout: float) -> list[str]:
        """End the segment within about `timeout` seconds. Returns the lines for a person."""
        if self.closed:
            return []
        self.begin(last_call=True)
        self.rows.arrived(patience=1.0)
        self.flush()
        self.closed = True
        rec = self.rec
        w = rec.begin() if rec is not None else None
        if rec is None or w is None:
            return []
        left = self.saves.close(timeout) if self.saves else 0
        if left:
            self.gaps.append(
                f"{left} checkpoints were not digested before the process ended; they stay pending"
            )
        error = incidents.last_unhandled()
        error = error if error is not None and id(error) != self._unhandled else None
        failed = error is not None or bool(self._exit)
        w.write(
            schemas.SegmentEnd(
                reason="exception" if failed else "finished" if self._exit == 0 else "exited",
                error=describe(error) if error else f"exit code {self._exit}" if failed else None,
                last_step=self.rows.last,
            )
        )
        w.write(health_.covered(coverage.of(self), health.at_end(w)))
        if self._world.rank == 0:
            incidents.name_first_bad(w)
            boundary.write_verdict(w)
        w.close()
        rec.live = False
        return coverage.lines(self, w.ledger) if self._world.rank == 0 else []

    def taken_over(self) -> TakenOver | None:
        """`lineage.attach` goes on from here: write what is known, leave the segment open for it."""
        if self.closed:
            return None
        if self.rec is None and self._further():
            self.closed = True
            ids = ranks.told(self.shared.begun + 1)
            return TakenOver(ids, None) if ids is not None else None
        if self.rec is not None:
            self.flush()
        rec, self.closed = self.rec, True
        w = rec.begin() if rec is not None else None
        if rec is None or w is None:
            return None
        if self.saves is not None:
            self.saves.close(0.2)
        w.journal.close()
        w._lines.close(1.0, lambda name, e: None)
        rec.live = False
        return TakenOver(w.ids, rec.segment_record())
