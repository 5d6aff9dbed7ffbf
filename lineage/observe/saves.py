"""Checkpoints as the observer sees them: files that were saved, put together, digested, and followed afterwards."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from .._rooms import schemas
from ..ledger import files
from ..recorder.followed import Followed
from ..recorder.identity import checkpoint_uid
from ..recorder.worker import Worker
from ..recorder.written import GONE, stat_of
from .recording import Inline, ObservedRecorder
from .steps import whole

Stat: TypeAlias = tuple[int, int, int, int] | None
"""(device, inode, bytes, nanoseconds of the last change) right after the call"""
CALM = 1.0
"""Seconds without a further file or change after which a checkpoint counts as written."""
_WORDS = r"(?:checkpoint|ckpt|global_?step|steps?|iter(?:ation)?s?|it|update|batch|ba)[-_=]?0*(\d+)"
_FOLDER = re.compile(rf"(?:tmp[-_.])?{_WORDS}(?![a-z])", re.IGNORECASE)
_FILE = re.compile(rf"(?:^|[^a-z]){_WORDS}", re.IGNORECASE)
_STEP_KEYS = ("global_step", "step", "iteration", "iter", "num_updates", "iter_num")
_PARTS = {
    "weights": ("model", "state_dict", "model_state_dict", "module", "net", "network", "weights", "params"),
    "optimizer_state": ("optimizer", "optimizer_state_dict", "optim", "optimizer_states", "opt_state"),
    "lr_scheduler": (
        "scheduler",
        "lr_scheduler",
        "scheduler_state_dict",
        "lr_schedulers",
        "opt_param_scheduler",
    ),
    "grad_scaler": ("scaler", "grad_scaler", "scaler_state_dict"),
    "rng": ("rng", "rng_state", "rng_states", "random_rng_state", "torch_rng_state", "cpu_rng_state"),
    "loader_position": ("loader", "dataloader", "train_dataloader", "sampler", "position", "data_state"),
}
"""Component -> names at the top of a saved object, or of a file, under which it is usually found."""


def unit(path: str) -> str:
    """The checkpoint to which a saved file belongs: its folder where that bears a step and the file does not."""
    folder, name = os.path.split(path)
    if _FOLDER.match(os.path.basename(folder)) and not _FILE.search(name):
        return folder
    return path


def step_of(path: str, facts: dict[str, Any], last: int | None) -> tuple[int, str]:
    """The step of a checkpoint, and what says so: the saved object, else its name, else the last row."""
    for key in _STEP_KEYS:
        step = whole(facts.get(key))
        if step is not None:
            return step, f"the saved object's key {key!r}"
    name, folder = os.path.basename(path), os.path.basename(os.path.dirname(path))
    found = _FILE.search(name) or _FOLDER.match(folder)
    if found:
        return int(found[1]), f"the name {found.string!r}"
    if last is not None:
        return last, "the last logged row before it"
    return 0, "nothing: no row had been logged"


def components(facts: dict[str, Any], names: list[str]) -> list[schemas.ComponentDigest]:
    """What the top of the saved object holds, by its names: no digest, since the live state was not seen."""
    keys = {k.lower() for k in facts} | {Path(n).stem.lower() for n in names}
    found = [c for c, known in _PARTS.items() if keys & set(known)]
    tensors = sum(v == "tensor" for v in facts.values())
    if "weights" not in found and tensors > len(facts) // 2:
        found.insert(0, "weights")
    if "optimizer_state" not in found and "param_groups" in facts and "state" in facts:
        found.append("optimizer_state")
    note = "seen by name in what was saved; rec.checkpoint(path, step=step) would record its digest"
    return [schemas.ComponentDigest(component=c, note=note) for c in found]


@dataclass
class Save:
    """A checkpoint from its first file until it is digested."""

    path: str
    by: str
    record: schemas.Checkpoint
    last: float
    stats: dict[str, Stat] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    future: Any = None
    manifest: schemas.Manifest | None = None
    missing: list[str] | None = None
    """what its files lack; None until they are digested"""


class Saves:
    """The checkpoints of one observed run. All but the digesting is done on the observer's thread."""

    def __init__(self, rec: ObservedRecorder, *, inline: bool = False) -> None:
        self._rec = rec
        self._open: dict[str, Save] = {}
        """place -> a checkpoint that is being written"""
        self._digesting: list[Save] = []
        self._followed = Followed(rec.write, self._ledger)
        self._counts: dict[int, int] = {}
        self._parent = rec.parent.checkpoint.uid if rec.parent and rec.parent.checkpoint else None
        self.count = 0
        name = "lineage-checkpoints"
        self._worker: Worker = Inline(name, self._trouble) if inline else Worker(name, self._trouble)

    def _ledger(self) -> Path | None:
        w = self._rec.begin()
        return w.ledger if w is not None else None

    def _trouble(self, error: Exception) -> None:
        self._rec.trouble("checkpoint", error, "the files of a checkpoint are not recorded")

    def seen(
        self, by: str, path: str, stat: Stat, facts: dict[str, Any], future: Any, last: int | None
    ) -> None:
        """A file, or a folder, was saved; `last` is the step of the last logged row."""
        distributed = "distributed" in by
        parts = (p for p, s in self._open.items() if "distributed" in s.by)
        if not distributed and any(path.startswith(p + os.sep) for p in parts):
            return  # a part of a distributed checkpoint, written by a thread of its own
        if distributed and future is None and any(s.path == path and s.future for s in self._digesting):
            return  # the inner call of an asynchronous save that is over
        place = path if distributed else unit(path)
        if self._rec.world.rank != 0 and (distributed or place != path):
            return  # a folder that all ranks write to is rank 0's to record
        save = self._open.get(place)
        if save is None or (distributed and save.future is None):
            save = self._open[place] = self._begin(place, by, facts, last)
        save.last = time.monotonic()
        save.stats[path] = stat
        save.facts |= facts
        if future is not None:
            save.future = future

    def _begin(self, place: str, by: str, facts: dict[str, Any], last: int | None) -> Save:
        """Write the pending record of a new checkpoint."""
        self._followed.replaced(place, by)
        step, told = step_of(place, facts, last)
        nth = self._counts[step] = self._counts.get(step, 0) + 1
        w = self._rec.begin()
        segment = w.ids.segment if w else ""
        record = schemas.Checkpoint(
            uid=checkpoint_uid(segment, step, place, nth),
            step=step,
            path=place,
            parents=[self._parent] if self._parent else [],
            live=[
                schemas.ComponentDigest(
                    component="optimizer_step",
                    detail={"step": schemas.Scalar.of(step)},
                    note=f"told by {told}; the optimizer's own counter was not seen",
                )
            ],
        )
        self._parent = record.uid
        self.count += 1
        self._rec.write(record, step=step)
        return Save(place, by, record, time.monotonic())

    def idle(self) -> None:
        """Hand what is written to the thread that digests, record what is digested, notice what is gone."""
        now = time.monotonic()
        for save in list(self._open.values()):
            waits = save.future is not None and not save.future.done()
            if not waits and now - save.last >= CALM and self._still(save):
                self._hand(save)
        self._collect()
        self._followed.look()

    def _still(self, save: Save) -> bool:
        """Whether its files stay as they were at the last look; renamed ones are followed."""
        changed = False
        for path, stat in list(save.stats.items()):
            now = stat_of(path)
            if now is None and stat is not None:
                moved = _moved(path, stat)
                if moved is not None:
                    del save.stats[path]
                    save.stats[moved[1]] = stat_of(moved[1])
                    save.path = moved[0]
                    changed = True
            elif now != stat:
                save.stats[path] = now
                changed = True
        if changed:
            save.last = time.monotonic()
        return not changed

    def _hand(self, save: Save) -> None:
        self._open = {p: s for p, s in self._open.items() if s is not save}
        self._digesting.append(save)
        self._worker.put(lambda: _digest(save))

    def _collect(self) -> None:
        done = [s for s in self._digesting if s.missing is not None]
        self._digesting = [s for s in self._digesting if s.missing is None]
        for save in done:
            self._complete(save, save.missing or [])

    def _complete(self, save: Save, missing: list[str]) -> None:
        """Write the record of a checkpoint whose files are digested."""
        self._followed.replaced(save.path, save.by)
        record = save.record.model_copy(
            update={
                "status": "incomplete" if missing else "complete",
                "path": save.path,
                "manifest": save.manifest,
                "missing": missing,
                "live": [*save.record.live, *components(save.facts, list(save.stats))],
            }
        )
        self._rec.write(record, step=record.step)
        w = self._rec.begin()
        if w is not None:
            w.seal("checkpoint")
        if not missing:
            self._followed.add(record)

    def close(self, timeout: float) -> int:
        """Digest what is left within `timeout` seconds; return how many checkpoints stay pending."""
        for save in list(self._open.values()):
            if save.future is None or save.future.done():
                self._still(save)
                self._hand(save)
        self._worker.close(timeout)
        self._collect()
        self._followed.look()
        return len(self._open) + len(self._digesting)

    def pending(self) -> bool:
        """Whether a checkpoint is not recorded as a whole yet."""
        return bool(self._open or self._digesting)


def _digest(save: Save) -> None:
    """On the thread that digests: the files, and what is wrong with them."""
    missing = []
    try:
        save.manifest = files.manifest(Path(save.path))
        missing = [] if save.manifest.files else ["no file at all"]
    except OSError as e:
        missing = [f"cannot be read: {type(e).__name__}: {e.strerror}"]
    if any(stat_of(path) != stat for path, stat in save.stats.items()):
        save.manifest, missing = None, [GONE]
    if save.future is not None and save.future.done() and save.future.exception() is not None:
        missing.append("the asynchronous save ended with an exception")
    save.missing = missing


def _moved(path: str, stat: Stat) -> tuple[str, str] | None:
    """Where a file is now that was renamed, or whose folder was: (checkpoint, file). Names only, few folders.

    Many save to a temporary name first, and rename when all is written.
    """
    assert stat is not None
    folder, name = os.path.split(path)
    looks: list[tuple[str, Callable[[os.DirEntry[str]], str]]] = [
        (folder, lambda e: e.path),
        (os.path.dirname(folder), lambda e: os.path.join(e.path, name)),
    ]
    for where, inside in looks:
        try:
            entries = list(os.scandir(where))
        except OSError:
            continue
        for entry in entries:
            there = inside(entry)
            now = stat_of(there)
            if now is not None and now[:2] == stat[:2]:
                return (unit(there) if where == folder else entry.path), there
    return None
