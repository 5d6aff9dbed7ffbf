"""A replay from its beginning to its record: the control, then the change, each from the same state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from uuid6 import uuid7

from .._rooms import schemas
from ..bundle.reading import Bundle
from ..judge import replayed
from ..judge.replayed_rules import SINGLE
from ..probes.deep import Deep, Seen
from . import batches as batches_
from . import compare, conditions, peers, start
from .building import Built, Given, build
from .conditions import Change, Shown
from .operations import Census, Counting, Operations
from .start import Plan
from .step import Step, inputs, make
from .where import Where


@dataclass(frozen=True)
class Asked:
    """What was asked for."""

    function: Callable[..., Any]
    """the user's `build`"""
    changes: Sequence[Change] = ()
    repeat: int = 1
    deep: bool = True
    """whether a step that is not finite is made once more with every module and operator looked at"""
    control: bool = True
    checkpoint: Path | None = None
    checkpoint_step: int | None = None
    spec: str = ""


@dataclass
class Run:
    """One run from the start state to the bad step."""

    step: Step
    earlier: list[Step] = field(default_factory=list)
    digests: dict[str, str | None] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    census: Census | None = None
    compiled: int = 0
    """graphs that were compiled from the start state on"""
    compiled_now: int = 0
    """of them, those of the bad step"""
    problems: list[str] = field(default_factory=list)
    deep: Deep | None = None
    operations: Operations | None = None


class Replaying:
    """Replays one bundle. `control()` first, then `changed()`."""

    def __init__(self, bundle: Bundle, asked: Asked, where: Where) -> None:
        """Raises `BundleError` where the bundle has not what a replay needs."""
        self.bundle, self.asked, self.where = bundle, asked, where
        self.ranks = peers.of(bundle) if SINGLE in where.given else []
        self.plan: Plan = start.plan(
            bundle, asked.checkpoint, at=asked.checkpoint_step, ranks=[b or peers.NOTHING for b in self.ranks]
        )
        self.symptom = replayed.symptom_of(bundle.manifest.alarm)
        self._control: schemas.Replay | None = None
        self._seen: Census | None = None
        """what ran with nothing changed, where operators were counted"""
        self._compiled = 0

    def control(self) -> schemas.Replay:
        """The step with nothing changed but what this machine cannot give."""
        runs = [self._run(()) for _ in range(self.asked.repeat)]
        self._compiled = max(r.compiled for r in runs)
        shows = any(replayed.shows(self.symptom, self._made(r.step)) for r in runs)
        look = None
        if self.asked.deep and self.where.any(shows and self.symptom.abnormal == "non_finite"):
            look = self._run((), deep=True)
        elif self.asked.changes and not self._compiled:
            look = self._run((), count=True)
        if look is not None:
            self._seen = look.census
        self._control = self._record((), runs, look)
        return self._control

    def at_size(self) -> schemas.Replay | None:
        """The newest replay on record that the run's own ranks made with nothing changed. It becomes the control.

        One device in their place is held against it: all that this process can make itself is on one device.
        """
        from ..ledger.reader import Ledger

        world = self.bundle.manifest.world_size
        if self.bundle.ledger is None or world < 2:
            return None
        found = [
            r.payload for r in Ledger(self.bundle.ledger).of("replay") if r.payload.bundle == self.bundle.root
        ]
        whole = [p for p in found if not p.changes and p.world_size == world]
        if whole:
            self._control = whole[-1]
        return self._control

    def changed(self) -> schemas.Replay:
        """The step with the change, or the changes, that were asked for."""
        changes = self.asked.changes
        deep = any(c.name == "eager-hooks" for c in changes)
        runs = [self._run(changes, deep=deep, count=not deep) for _ in range(self.asked.repeat)]
        return self._record(changes, runs, runs[0] if deep else None)

    # -- one run

    def _run(self, changes: Sequence[Change], *, deep: bool = False, count: bool = False) -> Run:
        """From the start state to the bad step. Updates before it are made as they were; the change is of it alone."""
        facts: dict[str, dict[str, Any]] = {c.name: {} for c in changes}
        conditions.forget_graphs()
        begun = conditions.graphs()
        built = build(self.asked.function, self._given())
        start.enter(self.bundle, self.plan, built)
        digests = start.digests(built)
        for change in changes:
            change.condition.start(built, facts[change.name])
        device, notes = built.device, list[str]()
        earlier = [self._earlier(built, s, device, notes) for s in self.plan.steps[:-1]]
        given = inputs(self.bundle, self.plan.steps[-1], device, notes)
        problems = batches_.fed(self.bundle, list(given.batches))
        given.batches = self._batches(changes, list(given.batches), device, facts)
        eager = deep or not self._compiled or any(c.name == "no-compile" for c in changes)
        before = conditions.graphs()
        with contextlib.ExitStack() as stack:
            stack.enter_context(conditions.around(changes, facts))
            if deep:
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            for change in changes:
                change.condition.model(built, facts[change.name])
            looking = _Looking(built.model, deep=deep, count=count and eager)
            step = make(built, given, around=looking.around, device=device.index, read=not deep)
        made_now = conditions.graphs() - before
        problems += notes + compare.before(self.bundle, earlier)
        for made_again in [*earlier, step]:
            problems += made_again.problems
        if step.random and step.drew:
            problems += step.random
        run = Run(step, earlier, digests, facts, None if made_now else looking.census)
        run.compiled, run.compiled_now = conditions.graphs() - begun, made_now
        run.problems = list(dict.fromkeys(problems))
        run.deep, run.operations = looking.deep, looking.operations
        self._note(run)
        return run

    def _earlier(self, built: Built, step: int, device: Any, notes: list[str]) -> Step:
        """An update before the bad one, made again; on one device from the gradients of all ranks."""
        mine = inputs(self.bundle, step, device, notes)
        if not self.ranks:
            return make(built, mine, device=device.index)
        each = [mine if b is self.bundle or b is None else inputs(b, step, device, notes) for b in self.ranks]
        return make(built, mine, device=device.index, ranks=each)

    def _note(self, run: Run) -> None:
        """What the evidence of some conditions needs of a run."""
        run.facts.get("optimizer-reset", {})["updates"] = len(run.earlier)
        alone = run.facts.get("single-device", {})
        alone["world"] = self.bundle.manifest.world_size
        alone["control"] = self._control.world_size if self._control is not None else None
        if run.deep is not None:
            run.facts.get("eager-hooks", {})["seen"] = len(run.deep.seen)

    def _given(self) -> Given:
        m = self.bundle.manifest
        config = self.bundle.records("config")
        values = (
            {k: schemas.Scalar.model_validate(v).plain() for k, v in config[-1]["values"].items()}
            if config
            else {}
        )
        return Given(m.step, m.rank, self.where.world, self.where.device, self.plan.path, values)

    def _batches(
        self, changes: Sequence[Change], found: list[Any], device: Any, facts: dict[str, dict[str, Any]]
    ) -> list[Any]:
        for change in changes:
            if change.name == "fp32":
                found = batches_.to_float32(found)
            elif change.name == "without-sample":
                found, facts[change.name]["evidence"] = batches_.without(found, change)
            elif change.name == "other-rank-batch":
                other = batches_.other_rank(self.bundle, change)
                theirs = list(inputs(other, self.bundle.step, device, []).batches)
                same = batches_.prints(theirs) == batches_.prints(found)
                rank = other.manifest.rank
                facts[change.name]["evidence"] = (
                    ("no", f"rank {rank} was fed the same")
                    if same
                    else ("yes", f"the batches of rank {rank}")
                )
                found = theirs
        return found

    # -- what is recorded

    def _record(self, changes: Sequence[Change], runs: list[Run], look: Run | None) -> schemas.Replay:
        bundle, first = self.bundle, runs[0]
        alone = SINGLE in self.where.given
        begun = start.distance(bundle, self.plan, first.digests)
        recorded = [c.record(self._shown(c, first)) for c in changes]
        judged = replayed.judge(
            self.symptom,
            [self._made(r.step) for r in runs],
            begun,
            recorded,
            problems=first.problems,
            beside=self._control.result if changes and self._control is not None else None,
        )
        flipped = replayed.flips(self._control, judged.result) if changes else None
        compared, equal, differing = compare.gradients(bundle, first.step)
        found, before = _first(look)
        return schemas.Replay(
            uid=str(uuid7()),
            bundle=bundle.root,
            first_bad_step=bundle.step,
            first_bad_rank=bundle.manifest.rank,
            world_size=self.where.world,
            device=self.where.device_name,
            given=list(self.where.given.values()),
            changes=recorded,
            confounded=len(changes) > 1,
            result=judged.result,
            reason=judged.reason + self._beside(first, compared, equal, changes),
            runs=len(runs),
            shown=judged.shown,
            values=compare.values(bundle, [r.step for r in runs], alone=alone),
            tensors_compared=compared,
            tensors_equal=equal,
            tensors=differing,
            first_non_finite=found,
            before=before,
            start=begun,
            control=self._control.uid if changes and self._control is not None else None,
            flips=flipped,
            effects=replayed.effects(judged, begun, self.where.given, recorded, flipped),
            limits=[
                *replayed.limits(judged, begun, self.where.given, recorded),
                *first.problems,
                *dict.fromkeys(n for s in [*first.earlier, first.step] for n in s.notes),
                *_parted(runs, look, changes),
            ],
            parameters={
                "with": schemas.Scalar.of(self.asked.spec),
                "repeat": schemas.Scalar.of(self.asked.repeat),
                "start": schemas.Scalar.of(str(self.plan.path) if self.plan.path else self.plan.source),
            },
        )

    def _made(self, step: Step) -> replayed.Made:
        """A run for the judgement: one device has no reduced norm."""
        made = step.made()
        if SINGLE in self.where.given:
            signals = {k: v for k, v in made.signals.items() if k != "grad_norm"}
            made = replayed.Made(signals, made.error, made.not_finite)
        return made

    def _shown(self, change: Change, run: Run) -> Shown:
        return Shown(run.census, self._seen, run.compiled_now, self._compiled, run.facts.get(change.name, {}))

    def _beside(self, run: Run, compared: int, equal: int, changes: Sequence[Change]) -> str:
        """The numbers beside the recorded ones; of a changed replay they are not meant to be equal."""
        if changes:
            return ""
        words = []
        loss, known = run.step.signals.get("loss"), self.bundle.signals(self.bundle.step).get("loss")
        if loss is not None and known is not None:
            equal_loss = "the loss is equal to the last bit"
            words.append(
                equal_loss if compare.same(loss, known) else f"the loss is {loss!r}, {known!r} was recorded"
            )
        if compared:
            words.append(f"{equal} of {compared} gradients are equal in every recorded number")
        was, here = compare.first_broken(self.bundle, run.step)
        if was is not None and here is not None:
            both = " in both" if was == here else f", {was} was recorded"
            words.append(f"the first gradient that is not finite is {here}{both}")
        return "; " + "; ".join(words) if words else ""


class _Aside(Deep):
    """The deep hooks, whose own operators are none of the step's."""

    def __init__(self, model: Any, operations: Operations) -> None:
        super().__init__(model)
        self._operations = operations

    def _look(self, *args: Any) -> None:
        known = self.first
        with self._operations.aside():
            super()._look(*args)
        if known is None and self.first is not None and self._on_purpose(self.first):
            self.first = None

    def _on_purpose(self, seen: Seen) -> bool:
        """Whether a module returned nothing but infinities that were put there, as a module that makes a mask does."""
        ops, s = self._operations, seen.stats
        signs = {sign for sign, n in ((1.0, s.n_posinf), (-1.0, s.n_neginf)) if n}
        return seen.phase == "forward" and not s.n_nan and not ops.forward and signs <= ops.put


class _Looking:
    """What looks at a run, and the context that it needs around the passes."""

    def __init__(self, model: Any, *, deep: bool, count: bool) -> None:
        self.operations = Operations(model) if deep else None
        self.deep = _Aside(model, self.operations) if self.operations is not None else None
        self._counting = Counting() if count and not deep else None

    @property
    def census(self) -> Census | None:
        found = self.operations or self._counting
        return found.census if found is not None else None

    @contextlib.contextmanager
    def _all(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for look in (self.deep, self.operations, self._counting):
                if look is not None:
                    stack.enter_context(look)
            yield

    def around(self) -> AbstractContextManager[Any]:
        """For the forward and backward passes."""
        return self._all()


def _first(look: Run | None) -> tuple[list[schemas.FirstNonFinite], list[str]]:
    """The first values that are not finite: by module, by operator forward, by operator backward; and those before."""
    if look is None or look.deep is None or look.operations is None:
        return [], []
    out = []
    seen = look.deep.first
    if seen is not None:
        out.append(
            schemas.FirstNonFinite(
                phase=seen.phase,
                module=seen.name,
                **{"class": seen.module},
                place=seen.place,
                largest=seen.stats.largest,
                broken=seen.stats.elements - _finite(seen),
                elements=seen.stats.elements,
                text=_said(seen),
            )
        )
    out += [*look.operations.forward[:1], *look.operations.backward[:1]]
    out.sort(key=lambda f: f.phase in ("backward", "gradient"))  # what the forward pass shows came first
    before = look.deep.seen
    if seen is not None:
        before = [s for s in before if s.order < seen.order]
    elif look.operations.forward:  # outside of all modules, as in the loss
        before = [s for s in before if s.phase in ("input", "forward")]
    return out, [_said(s) for s in before[-8:]]


def _finite(seen: Seen) -> int:
    return seen.stats.elements - seen.stats.n_nan - seen.stats.n_posinf - seen.stats.n_neginf


PHASES = {
    "input": "input of",
    "forward": "output of",
    "backward": "gradient at the output of",
    "gradient": "gradient of",
}


def _said(seen: Seen) -> str:
    broken = seen.stats.elements - _finite(seen)
    state = f"{broken:,} of {seen.stats.elements:,} not finite, " if broken else ""
    place = f" [{seen.place}]" if seen.place else ""
    return f"{PHASES[seen.phase]} {seen.name}{place} ({seen.module}): {state}largest {seen.stats.largest:.4g}"


def _parted(runs: list[Run], look: Run | None, changes: Sequence[Change]) -> list[str]:
    """Whether looking changed what was looked at."""
    if look is None or changes or look is runs[0]:
        return []
    a, b = runs[0].step.signals.get("loss"), look.step.signals.get("loss")
    if a is None or b is None or compare.same(a, b):
        return []
    return [
        f"with every module looked at the loss is {b!r}, without {a!r}: what was named may be another run's first"
    ]
