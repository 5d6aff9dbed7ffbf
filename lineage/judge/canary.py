"""Two sides of a canary: equal bit for bit, within the spread of repeated seeds, or different, and where first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from .._rooms import schemas
from .rung_answers import answer

LEAST = 3
"""Seeds without which there is no spread."""
SOURCE = (
    "a difference that no seed would notice is no larger than what another seed makes: the range over at least three "
    "seeds, at each step"
)


@dataclass(frozen=True)
class Parting:
    """Where two sides differ first."""

    step: int
    what: str
    """`loss`, `gradient` or `weight`"""
    tensors: tuple[str, ...]
    hint: str


def answers(before: schemas.Canary, after: schemas.Canary) -> list[schemas.Answer]:
    """Whether it is one job; whether each side repeats itself; how the two sides lie to each other."""
    return [_one_job(before, after), _repeats(before, after), _sides(before, after)]


MAIN = ("sides_agree",)


def _one_job(a: schemas.Canary, b: schemas.Canary) -> schemas.Answer:
    question = "one_job"
    wrong = [
        text
        for text, same in (
            (
                "another recipe (names, shapes or types of parameters, classes, settings or config)",
                _recipe(a, b),
            ),
            (f"{a.steps} steps before and {b.steps} now", a.steps == b.steps),
            ("other seeds", [r.seed for r in a.runs] == [r.seed for r in b.runs]),
        )
        if not same
    ]
    changed = [
        f"{k} {_shown(a.conditions.get(k))} -> {_shown(b.conditions.get(k))}"
        for k in sorted({*a.conditions, *b.conditions})
        if a.conditions.get(k) != b.conditions.get(k)
    ]
    if a.world_size != b.world_size:
        changed.append(f"ranks {a.world_size} -> {b.world_size}")
    if wrong:
        return answer(question, "fail", f"not the same job: {'; '.join(wrong)}", look_at=changed)
    many = " (more than one: no difference can be traced to one of them)" if len(changed) > 1 else ""
    text = (
        f"the same job; changed: {', '.join(changed)}{many}"
        if changed
        else "the same job under the same conditions"
    )
    return answer(question, "pass", text, values={"changed": changed})


def _recipe(a: schemas.Canary, b: schemas.Canary) -> bool:
    return a.recipe.digest == b.recipe.digest


def _shown(value: schemas.Scalar | None) -> str:
    return "not known" if value is None else str(value.plain())


def _repeats(a: schemas.Canary, b: schemas.Canary) -> schemas.Answer:
    question = "each_side_repeats_itself"
    told = {"before": a.repeats, "now": b.repeats}
    if None in told.values():
        return answer(question, "cannot_tell", "the job was not run twice with one seed on both sides")
    not_ = [side for side, yes in told.items() if not yes]
    if not_:
        text = f"one seed run twice gives other bits ({', '.join(not_)}): bits of the two sides say nothing"
        return answer(question, "cannot_tell", text)
    return answer(question, "pass", "one seed run twice gives the same bits, before and now")


def parting(a: schemas.Canary, b: schemas.Canary) -> Parting | None:
    """Where the first seed's runs differ first: loss, then gradients, then weights of a step."""
    return parting_of(a.runs[0], b.runs[0]) if a.runs and b.runs else None


def parting_of(a: schemas.CanaryRun, b: schemas.CanaryRun) -> Parting | None:
    """Where two runs of one seed differ first; None where they do not."""
    return next(_differences(a, b), None)


def _differences(a: schemas.CanaryRun, b: schemas.CanaryRun) -> Iterator[Parting]:
    points = {p.step: p for p in a.points}
    others = {p.step: p for p in b.points}
    for step in range(1, max(len(a.losses), len(b.losses)) + 1):
        if _loss(a, step) != _loss(b, step) and not _both_nan(_loss(a, step), _loss(b, step)):
            hint = (
                "the first step: initialisation, or what the forward pass computes"
                if step == 1
                else "after an update: the backward pass or the optimizer"
                if step == 2
                else "later: a state that is not compared, data or order"
            )
            yield Parting(step, "loss", (), hint)
        p, q = points.get(step), others.get(step)
        if p is None or q is None:
            continue
        for what, mine, theirs, hint in (
            ("gradient", p.gradients, q.gradients, "the backward pass, or what the forward pass kept for it"),
            ("weight", p.weights, q.weights, "the optimizer's update"),
        ):
            differ = tuple(n for n in mine if mine[n] != theirs.get(n))
            if differ:
                yield Parting(step, what, differ, hint)


def _loss(run: schemas.CanaryRun, step: int) -> float | None:
    return run.losses[step - 1] if step <= len(run.losses) else None


def _both_nan(x: float | None, y: float | None) -> bool:
    return x is not None and y is not None and math.isnan(x) and math.isnan(y)


def _sides(a: schemas.Canary, b: schemas.Canary) -> schemas.Answer:
    question = "sides_agree"
    first = parting(a, b)
    values: dict[str, object] = {}
    where = ""
    if first is not None:
        names = (
            f" of {', '.join(first.tensors[:3])}{', ...' if len(first.tensors) > 3 else ''}"
            if first.tensors
            else ""
        )
        where = f"; first at step {first.step:,}: {first.what}{names} ({first.hint})"
        values |= {
            "first_step": first.step,
            "first_what": first.what,
            "first_tensors": list(first.tensors[:64]),
        }
    if not _recipe(a, b) or a.steps != b.steps:
        return answer(
            question, "cannot_tell", "two jobs that are not the same cannot be held against each other"
        )
    pairs = list(zip(a.runs, b.runs, strict=False))
    if first is None and all(x.losses == y.losses for x, y in pairs):
        points = sum(len(x.points) for x, _ in pairs)
        text = f"equal bit for bit: {len(pairs)} seeds, {a.steps} steps, the state at {points} points"
        return answer(question, "pass", text, source=SOURCE, values={**values, "class": "bitwise"})
    if len(pairs) < LEAST:
        text = f"not equal bit for bit, and {len(pairs)} seeds have no spread: at least {LEAST}{where}"
        return answer(question, "cannot_tell", text, source=SOURCE, values=values)
    worst = max(_over_spread(a, b), key=lambda x: x[0], default=(math.nan, 0, 0.0, 0.0))
    share, step, far, spread = worst
    values |= {"largest_over_spread": share, "largest_at_step": step, "largest": far, "spread": spread}
    told = f"the losses differ by up to {far:.3g} where seeds differ by {spread:.3g} (step {step:,})"
    if share <= 1:
        text = f"not equal bit for bit, within the spread of {len(pairs)} seeds: {told}{where}"
        return answer(question, "pass", text, source=SOURCE, values={**values, "class": "within the spread"})
    text = f"different: {told}{where}"
    look = ["what was changed; a second change beside it", "a job too short or too small to have a spread"]
    return answer(
        question, "fail", text, source=SOURCE, values={**values, "class": "different"}, look_at=look
    )


def _over_spread(a: schemas.Canary, b: schemas.Canary) -> Iterator[tuple[float, int, float, float]]:
    """(difference over spread, step, difference, spread) of each step: the largest over the seeds."""
    for i in range(a.steps):
        mine = [r.losses[i] for r in a.runs if i < len(r.losses)]
        theirs = [r.losses[i] for r in b.runs if i < len(r.losses)]
        if not mine or len(mine) != len(theirs):
            yield math.inf, i + 1, math.inf, 0.0
            continue
        spread = max(mine) - min(mine)
        far = max(0.0 if x == y or _both_nan(x, y) else abs(x - y) for x, y in zip(mine, theirs, strict=True))
        if math.isnan(far) or math.isnan(spread):
            yield math.inf, i + 1, far, spread
        elif far:
            yield (far / spread if spread else math.inf), i + 1, far, spread
        else:
            yield 0.0, i + 1, far, spread
