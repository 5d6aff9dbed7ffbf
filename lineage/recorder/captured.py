"""What is kept of the last steps so that a bad one can be looked at and made again, and what an alarm takes of it.

At each step: references to its batches, the random-number states, the settings of the optimizer and the scaler. At
an alarm the bundle is written from it (`lineage.bundle`), on the worker thread. It stays on this machine.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .._rooms import schemas
from ..bundle import FOLDER, absent
from ..bundle import held as held_
from ..bundle.containers import inside
from ..bundle.held import Held, KeptState, KeptStep
from ..bundle.rng import Taking
from ..capture.names import clean
from ..capture.reason import reason
from ..ledger import layout

if TYPE_CHECKING:
    from .recorder import Recorder
    from .streams import Values
    from .writer import Writer

KEPT = 3
"""Steps that are kept at least: alarms arrive up to two steps late."""
MEMORY = 64 << 20
"""Bytes of batches up to which more steps are kept: they lie where the loop put them, perhaps on a device."""
MOST = 8
"""Bundles of one kind of alarm (not finite, out of range) that one process writes."""
NO_BATCH = "none was given: `with rec.step(step, batch):`"


class Recent:
    """The last steps of one process."""

    def __init__(self) -> None:
        self._steps: deque[KeptStep] = deque()
        self._most = KEPT
        self._bytes = 0
        self._taking = Taking()
        self._bundled: set[int] = set()
        self._count: Counter[str] = Counter()
        self._alarms: dict[str, str] = {}
        """signal -> kind of its alarm that goes on"""
        self._through_weights: int | None = None
        """a step with a bundle whose values that are not finite went into the weights, while such alarms go on"""
        self.not_written: Counter[str] = Counter()
        """kind of alarm -> onsets without a bundle, since there were enough"""

    def begin(self, rec: Recorder, step: int, *, batch_follows: bool) -> None:
        """A step begins. `batch_follows`: its first batch comes at once, and the random states are taken then."""
        self._most = max(KEPT, int(rec.settings.bundle_steps))
        kept = KeptStep(step, facts=held_.facts_at_start(rec.watched))
        if not batch_follows:
            kept.start = self._taking.take()
        self._append(kept)

    def _append(self, kept: KeptStep) -> None:
        self._steps.append(kept)
        while len(self._steps) > KEPT and (len(self._steps) > self._most or self._bytes > MEMORY):
            self._bytes -= self._steps.popleft().bytes

    def add(self, step: int, batch: Any) -> None:
        """Keep one more micro-batch of a step."""
        if not self._steps or self._steps[-1].step != step:
            self._append(KeptStep(step))
        kept = self._steps[-1]
        kept.rng.append(self._taking.take())
        kept.batches.append(batch)
        size = size_of(batch)
        kept.bytes += size
        self._bytes += size

    def of(self, step: int) -> list[Any]:
        """The micro-batches of a step, if they are still here."""
        return next((k.batches for k in self._steps if k.step == step), [])

    def until(self, step: int) -> list[KeptStep]:
        """The kept steps up to this one, oldest first."""
        return [replace(k, batches=list(k.batches), rng=list(k.rng)) for k in self._steps if k.step <= step]

    def follow(self, signal: str, phase: str, kind: str) -> None:
        """An alarm begins, changes or ends."""
        if kind in ("slow_rise", "new_level"):
            return
        if phase == "end":
            self._alarms.pop(signal, None)
        else:
            self._alarms[signal] = kind
        if "non_finite" not in self._alarms.values():
            self._through_weights = None

    def went_into_the_weights(self, step: int) -> None:
        """The step has its bundle, and its update was made: what is not finite from now on comes from it."""
        if self._through_weights is None:
            self._through_weights = step

    def wanted(self, step: int, kind: str) -> bool:
        """Whether an alarm of this kind at this step gets a bundle.

        One for each step; none for a later symptom, such as the loss of a healthy rank that is NaN after the update
        with another rank's NaN; and not without end.
        """
        if step in self._bundled or self._is_symptom(step, kind):
            return False
        if self._count[kind] >= MOST:
            self.not_written[kind] += 1
            return False
        self._bundled.add(step)
        self._count[kind] += 1
        return True

    def _is_symptom(self, step: int, kind: str) -> bool:
        return kind == "non_finite" and self._through_weights is not None and step > self._through_weights


DEEPEST = 8
"""Levels of a batch's containers that are looked into for its size: one may hold itself."""


def size_of(batch: Any, depth: int = 0) -> int:
    """Bytes of the tensors of a batch, roughly: of a long list of one kind the first stands for all."""
    if hasattr(batch, "element_size"):
        return int(batch.numel() * batch.element_size())
    if depth >= DEEPEST:
        return 0
    if isinstance(batch, list | tuple):
        if len(batch) > 64:
            return len(batch) * max(size_of(batch[0], depth + 1), 8)
        return sum(size_of(v, depth + 1) for v in batch)
    held = batch if isinstance(batch, Mapping) else inside(batch)
    return sum(size_of(v, depth + 1) for v in held.values())


def take(rec: Recorder, w: Writer, values: Values, alarm: schemas.Alarm, record: str | None) -> Held | None:
    """On the training thread: take what must be taken now. None where the step has its bundle already.

    Nothing here waits for a device; weights are copied only with the gate, see `_state`.
    """
    if not rec.recent.wanted(values.step, alarm.abnormal):
        return None
    frame = values.frame
    found = Held(
        ledger=w.ledger,
        run=w.ids.run,
        segment=w.ids.segment,
        rank=w.world.rank,
        world_size=w.world.world_size,
        place=w.place,
        step=values.step,
        done=rec.steps.done,
        alarm=alarm,
        alarm_record=record,
        signals=dict(values.signals),
        steps=rec.recent.until(values.step),
        rows=w.lately,
        fingerprints=[b.digest for b in values.batches],
        again=lambda batch: _fingerprint(rec, batch),
        parent=rec.parent.checkpoint if rec.parent is not None else None,
        limit=int(rec.settings.bundle_bytes),
        surroundings=lambda: rec.surroundings.wait_written(ENVIRONMENT),
        now={
            "clip_threshold": rec.seen.clip_threshold,
            "clip_value": rec.seen.clip_value,
            "samples": rec.steps.samples,
            "tokens": rec.steps.tokens,
            "batches_seen": rec.watched.batches_seen,
        },
    )
    _try(found, "what is watched for events", lambda: setattr(found, "watched", _watched(rec)))
    if frame is not None:
        from .probing import columns

        found.tensors = lambda: columns(w.ids.segment, w.world.rank, frame)
    if not any(k.step == values.step and k.batches for k in found.steps):
        found.absent["batches of the step"] = (
            NO_BATCH if not rec.watched.batches_seen else "no longer in memory"
        )
    _try(found, "loader state", lambda: setattr(found, "loader", _state_dict(rec.watched.loader, "loader")))
    _try(
        found,
        "scheduler state",
        lambda: setattr(found, "scheduler", _state_dict(rec.watched.scheduler, "scheduler")),
    )
    if alarm.abnormal == "differs":
        found.absent["weights and optimizer state"] = (
            "they are those after the step; the tensors that differ are kept"
        )
        _try(found, absent.DIFFERING, lambda: setattr(found, "differing", _differing(rec, alarm)))
        return found
    _try(found, "weights and optimizer state", lambda: _state(rec, values, found))
    if alarm.abnormal == "non_finite" and not _without_update(rec, values, found.steps):
        rec.recent.went_into_the_weights(values.step)
    return found


def _try(found: Held, what: str, action: Any) -> None:
    try:
        action()
    except _NotThere as e:
        found.absent[what] = str(e)
    except _TooBig as e:
        found.left_out[what] = str(e)
    except Exception as e:
        found.left_out[what] = f"could not be taken ({reason(e)})"


class _NotThere(Exception):
    """Something that a bundle would hold is not there; the text says why."""


class _TooBig(Exception):
    """Something is there and may not be copied; the text says how big it is."""


def _watched(rec: Recorder) -> str:
    """What of this node is watched while the run trains, and what cannot be."""
    if rec.hardware is None:
        return "this process watches nothing: the one with local rank 0 of its node does, with hardware_every above 0"
    parts, missing, gaps = rec.hardware.covered()
    told = [*(p.replace("hardware events: ", "watched: ") for p in parts), *missing.values(), *gaps]
    return "; ".join(t.removeprefix("hardware events: ") for t in told) or "the watch has not looked yet"


def _state_dict(holder: Any, name: str) -> Any:
    for found in (holder, getattr(holder, "sampler", None)):
        if found is not None and hasattr(found, "state_dict"):
            return found.state_dict()
    raise _NotThere(f"no {name} with a state_dict was given")


def _fingerprint(rec: Recorder, batch: Any) -> str | None:
    """On the worker thread: the fingerprint of a batch as it is now."""
    from ..capture import later
    from ..capture.batch import fingerprint

    made = fingerprint(batch, rec.steps.batching.known)
    return made.digest() if later.wait(made.ready, 30.0) else None


def _state(rec: Recorder, values: Values, found: Held) -> None:
    """The state that the step began with, where its update was not made: held back, skipped, or the loop raised.

    Raises `_NotThere` with the reason where there is none, `_TooBig` where it may not be copied here.
    """
    model, optimizer = rec.watched.model, rec.watched.optimizer
    if model is None or optimizer is None:
        raise _NotThere(
            "no model and optimizer were given: `lineage.attach(run, model=model, optimizer=optimizer)`"
        )
    if not _without_update(rec, values, found.steps):
        raise _NotThere(
            "the update was made before the alarm; `gate=True` keeps what a step with a non-finite gradient began with"
        )
    weights = {clean(n): p for n, p in model.named_parameters()}
    buffers = {clean(n): b for n, b in model.named_buffers()}
    names = {id(p): n for n, p in weights.items()}
    state = {names[id(p)]: dict(s) for p, s in optimizer.state.items() if id(p) in names}
    tensors = [*weights.values(), *buffers.values(), *(v for s in state.values() for v in s.values())]
    tensors = [t for t in tensors if hasattr(t, "element_size")]
    if any(hasattr(t, "placements") for t in tensors) or _flat(model):
        raise _NotThere("they are divided over ranks")
    size = sum(t.numel() * t.element_size() for t in tensors)
    if size > found.limit:
        raise _TooBig(
            f"{size:,} bytes, and a bundle may have {found.limit:,} (setting bundle_bytes); with the gate they stand "
            "as they were until the next healthy update, so a checkpoint saved now has them"
        )
    _room(tensors, size)
    found.state = KeptState(
        weights={n: p.detach().clone() for n, p in weights.items()},
        buffers={n: b.detach().clone() for n, b in buffers.items()},
        optimizer={n: {k: held_._copy(v) for k, v in s.items()} for n, s in state.items()},
        updates_after=max(0, rec.steps.done - values.step),
    )


def _differing(rec: Recorder, alarm: schemas.Alarm) -> dict[str, Any]:
    """What this rank holds of the tensors that differ from those of other ranks, and the optimizer of them, now.

    Raises `_NotThere`, `_TooBig`: they are copied on the training thread, so no more than `MEMORY` of them.
    """
    from ..probes.readable import local

    model, optimizer = rec.watched.model, rec.watched.optimizer
    if model is None or not alarm.tensors:
        raise _NotThere("which tensors differ was not told while the run went on; `lineage ranks` names them")
    wanted, found = set(alarm.tensors), dict[str, Any]()
    for kind, named in (("weight", model.named_parameters()), ("buffer", model.named_buffers())):
        for name, t in named:
            if clean(name) not in wanted:
                continue
            found[f"{kind}|{clean(name)}"] = t
            state = optimizer.state.get(t, {}) if optimizer is not None else {}
            found |= {f"{key}|{clean(name)}": v for key, v in state.items() if hasattr(v, "element_size")}
    found = {n: local(t) for n, t in found.items()}
    size = sum(t.numel() * t.element_size() for t in found.values())
    if size > MEMORY:
        raise _TooBig(f"{size:,} bytes, and {MEMORY:,} are copied at most; a checkpoint saved now has them")
    return {n: t.detach().clone() for n, t in found.items()}


def _without_update(rec: Recorder, values: Values, steps: list[KeptStep]) -> bool:
    """Whether the step made no update: the gate held it back, the loss scaler skipped it, or an exception ended it."""
    if 1.0 in (values.signals.get("update_held_back"), values.signals.get("update_skipped")):
        return True
    return _stopped(rec, values.step, steps)


def _stopped(rec: Recorder, step: int, steps: list[KeptStep]) -> bool:
    """Whether an exception ended the step before its update: the optimizer's own counter has not moved."""
    before = next((k.facts.get("counter") for k in steps if k.step == step), None)
    return rec.steps.done < step and before is not None and held_.counter(rec.watched.optimizer) == before


def _flat(model: Any) -> bool:
    return any(type(m).__name__ == "FullyShardedDataParallel" for m in model.modules())


def _room(tensors: list[Any], size: int) -> None:
    """Raise `_TooBig` where copies on a device might take memory that training needs."""
    devices = {t.device for t in tensors if t.device.type == "cuda"}
    if devices:
        import torch

        for device in devices:
            free, _ = torch.cuda.mem_get_info(device)
            if free < 4 * size:
                raise _TooBig(f"{device} has {free:,} bytes free, too few for a copy beside the training")


ENVIRONMENT = 10.0
"""Seconds for which a bundle of the first steps waits until code and environment, which belong in it, are on record.
What only this process has (batches, random states, rows) is written before."""
NOT_KEPT = "the evidence of step {:,} is not kept"
ELSEWHERE = 64 << 20
"""Bytes of a bundle that the ledger's disk refused: it goes to the folder for temporary files, which may be memory."""


def keep(rec: Recorder, w: Writer, held: Held) -> None:
    """On the worker thread: write the bundle, then its record. A failure is said once, and training goes on."""
    from ..bundle import writing

    try:
        record = writing.write(held)
    except OSError as e:
        found = _elsewhere(w, held, e)
        if found is None:
            return
        record = found
    except Exception as e:
        w.trouble("bundle", e, NOT_KEPT.format(held.step))
        return
    w.write(record, step=held.step, caused_by=[held.alarm_record] if held.alarm_record else [])


def _elsewhere(w: Writer, held: Held, error: OSError) -> schemas.Bundle | None:
    """The ledger's disk refused the bundle: a smaller one where journals go then, and where it is, said once."""
    from ..bundle import writing

    held.limit = min(held.limit, ELSEWHERE)
    place = layout.fallback_root() / held.run
    try:
        if place == held.ledger:
            raise error
        record = writing.write(held, place)
    except Exception:
        w.trouble("bundle", error, NOT_KEPT.format(held.step))
        return None
    there = f"{held.ledger / FOLDER / held.segment}/"
    w.trouble(
        "bundle",
        error,
        f"the evidence of step {held.step:,} is in {record.location}, with {held.limit:,} bytes at most",
        f"make room, then: mkdir -p {there} && mv {record.location} {there}",
    )
    return record
