"""Drift: what differs between two sides, concept by concept, requested beside effective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .._rooms import schemas
from . import membership, settle
from .components import component_changes
from .environment import code_change, environment_changes
from .requested import Requested, compare
from .schedule import same_future
from .sides import Side
from .values import arrow, same

__all__ = ["REQUIRED", "Declared", "Side", "alters", "drift", "effect", "requested_only"]

SCHEDULE_CONCEPTS = ("warmup", "horizon", "decay_horizon", "min_lr")
"""Requested concepts whose effect shows in the schedule's future and nowhere else."""

REQUIRED = (
    "learning_rate",
    "lr_schedule",
    "optimizer",
    "weight_decay",
    "grad_clip",
    "global_batch",
    "data_mix",
    "data_order",
    "precision",
    "model",
)
"""Concepts without which no claim about the update can be shown to hold."""


@dataclass(frozen=True)
class Declared:
    """A declared mitigation with the record that holds it."""

    record: str
    mitigation: schemas.Mitigation


def drift(
    before: Side,
    after: Side,
    *,
    from_step: int,
    restore: schemas.Restore | None = None,
    declared: Sequence[Declared] = (),
    parent: str | None = None,
    moment: Literal["resume", "in_run"] = "resume",
    extra: Sequence[schemas.Change] = (),
    asked: Requested | None = None,
) -> schemas.Drift:
    """Compare two sides.

    `restore` adds components that were not restored; `extra` adds changes found by other means; `asked` is the
    comparison of the two configs where that is made already: what it leaves open is settled in it. The result is
    pure: it names nothing that neither side shows.
    """
    asked = asked or compare(before.config, after.config, [_packages(before), _packages(after)])
    settle.batch(asked, before, after)
    found = [
        *component_changes(restore),
        *environment_changes(before.environment, after.environment),
        *code_change(before.code, after.code),
        *extra,
    ]
    classified = _decided(asked, before, after, {c.concept for c in found})
    changes = _effective(before, after, classified)
    changes += [
        _with_request(c, classified.pop(c.concept, None))
        for c in found
        if c.concept not in {x.concept for x in changes}
    ]
    changes += classified.values()
    changes = [_declare(c, declared) for c in settle.classes(changes, asked, before, after)]
    altering = [c for c in changes if alters(c)]
    return schemas.Drift(
        moment=moment,
        parent_checkpoint=parent,
        from_step=from_step,
        changes=sorted(changes, key=_weight),
        unclassified=asked.unclassified,
        confounded=len(altering) >= 2,
        undeclared=[c.concept for c in altering if c.mitigation is None],
        unproven=_unproven(declared, changes, after),
        not_shown={**_not_shown(before, after, restore), **asked.not_shown},
    )


def alters(change: schemas.Change) -> bool:
    """Tell whether a change is in effect and of a class that opens a regime."""
    return change.cls in ("R", "C") and not requested_only(change)


def requested_only(change: schemas.Change) -> bool:
    """Tell whether a change was asked for while the live value stayed as it was."""
    known = change.effective_before is not None and change.effective_after is not None
    return known and same(change.effective_before, change.effective_after)


def _weight(change: schemas.Change) -> tuple[int, str]:
    order = {"R": 0, "C": 1, "B": 2, "H": 3, "O": 4, "unclassified": 5}
    return order[change.cls], change.concept


def _packages(side: Side) -> dict[str, str]:
    return side.environment.packages if side.environment else {}


def _decided(asked: Requested, before: Side, after: Side, found: set[str]) -> dict[str, schemas.Change]:
    """The changes that are asked for, with those that only one side states where live values decide them.

    What neither configs nor live values decide goes to `asked.not_shown`.
    """
    out = dict(asked.changes)
    for concept, change in asked.one_sided.items():
        a, b = before.value(concept), after.value(concept)
        live = _one(concept, before, after) is not None
        if concept in SCHEDULE_CONCEPTS and a is None and b is None:
            live = _schedule_equal(before, after)[0] is not None
        if concept in out:
            out[concept] = _said_too(out[concept], change)
        elif live or concept in found:
            out[concept] = change
        elif a is not None and b is not None and _main(concept, change):
            stated = change.requested_after if change.requested_after is not None else change.requested_before
            if not same(stated, b.value):
                out[concept] = change
        else:
            why = asked.why.get(concept, "the other side does not state it, and its default is not known")
            settle.leave_open(asked, concept, f"{change.text}: {why}")
    for concept in [c for c in asked.not_shown if before.value(c) and after.value(c)]:
        del asked.not_shown[concept]  # live values show it
    return out


def _said_too(change: schemas.Change, other: schemas.Change) -> schemas.Change:
    return change.model_copy(
        update={"keys": [*change.keys, *other.keys], "text": f"{change.text}; {other.text}"}
    )


def _main(concept: str, change: schemas.Change) -> bool:
    """Whether a change is one of the concept's main value, which is what a live object shows."""
    found = [schemas.catalogue().meaning(k) for k in change.keys]
    return all(m is not None and m.concept.id == concept and m.setting == "" for m in found)


def _effective(before: Side, after: Side, classified: dict[str, schemas.Change]) -> list[schemas.Change]:
    """Compare live values; a requested change of the same concept is taken out of `classified` and joined."""
    out = []
    concepts = {
        *(before.effective.values if before.effective else ()),
        *(after.effective.values if after.effective else ()),
    }
    for concept in sorted(concepts):
        found = _schedule(before, after) if concept == "lr_schedule" else _one(concept, before, after)
        asked = classified.pop(concept, None)
        if found is None and asked is None:
            continue
        change = _join(concept, found, asked, before, after)
        if concept == "param_groups":
            decay = [v.value if (v := side.value("weight_decay")) else None for side in (before, after)]
            change = membership.told(change, decay)
        out.append(change)
    schedule_equal = _schedule_equal(before, after)[0]
    for concept in SCHEDULE_CONCEPTS:
        if schedule_equal and concept in classified:
            asked = classified.pop(concept)
            out.append(
                asked.model_copy(
                    update={
                        "cls": "O",
                        "text": f"{asked.text}; the learning rate of the coming steps stays as it was",
                    }
                )
            )
    return out


def _one(
    concept: str, before: Side, after: Side
) -> tuple[schemas.Scalar | None, schemas.Scalar | None] | None:
    a, b = before.value(concept), after.value(concept)
    if concept == "grad_clip" and (a is None) != (b is None):
        return _clip(a, b, before, after)
    if a is None or b is None or same(a.value, b.value):
        return None
    if concept == "param_groups" and membership.equal(a.value, b.value):
        return None
    return a.value, b.value


_NO_CLIP = schemas.Scalar(type="str", value="no clipping seen")


def _clip(
    a: schemas.EffectiveValue | None, b: schemas.EffectiveValue | None, before: Side, after: Side
) -> tuple[schemas.Scalar | None, schemas.Scalar | None] | None:
    """One side clipped and the other was never seen to: a change, if that other side has made a step."""
    silent = after if b is None else before
    if silent.effective is None or silent.effective.moment in ("attach", "after_load"):
        return None
    return (a.value if a else _NO_CLIP), (b.value if b else _NO_CLIP)


def _schedule(before: Side, after: Side) -> tuple[schemas.Scalar | None, schemas.Scalar | None] | None:
    """The two schedules where they differ, each with its rate at the first step at which they part."""
    a, b = before.value("lr_schedule"), after.value("lr_schedule")
    equal, step = _schedule_equal(before, after)
    if a is None or b is None or equal or (equal is None and same(a.value, b.value)):
        return None
    if step is None:
        return a.value, b.value
    ahead = _ahead(after)
    return _with_rate(a.value, before.lr_ahead[step], step), _with_rate(b.value, ahead[step], step)


def _with_rate(description: schemas.Scalar, rates: Sequence[float], step: int) -> schemas.Scalar:
    shown = ", ".join(f"{r:.6g}" for r in rates)
    return schemas.Scalar.of(f"{shown} at step {step:,} ({description.text()})")


def _ahead(after: Side) -> dict[int, list[float]]:
    return after.lr_ahead or (after.effective.lr_ahead if after.effective else {})


def _schedule_equal(before: Side, after: Side) -> tuple[bool | None, int | None]:
    """Compare two schedules by their future: rate by rate, or by shape where the peak itself is another one."""
    a, b = before.value("learning_rate"), after.value("learning_rate")
    scaled = a is not None and b is not None and not same(a.value, b.value)
    return same_future(before.lr_ahead, _ahead(after), relative=scaled)


def _join(
    concept_id: str,
    found: tuple[schemas.Scalar | None, schemas.Scalar | None] | None,
    asked: schemas.Change | None,
    before: Side,
    after: Side,
) -> schemas.Change:
    """Put requested and effective of one concept beside each other, and say in words what that means."""
    concept = schemas.catalogue().concept(concept_id)
    held_before, held_after = before.value(concept_id), after.value(concept_id)
    a = found[0] if found else (held_before.value if held_before else None)
    b = found[1] if found else (held_after.value if held_after else None)
    title = concept.title if concept_id in schemas.catalogue().concepts else concept_id
    if found and asked:
        text = f"{title} {arrow(a, b)}"
        if not (same(asked.requested_before, a) and same(asked.requested_after, b)):
            text += f" in effect, {arrow(asked.requested_before, asked.requested_after)} requested"
    elif found:
        text = f"{title} {arrow(a, b)}, which no config key asks for"
    elif asked and a is not None and b is not None:
        text = f"{title}: {asked.text}, not in effect: {_held(held_after)} holds {b.text()} as before"
    else:
        text = f"{title}: {asked.text if asked else ''}; the value in effect is not shown"
    return schemas.Change(
        concept=concept_id,
        cls=concept.cls,
        title=title,
        keys=asked.keys if asked else [],
        requested_before=asked.requested_before if asked else None,
        requested_after=asked.requested_after if asked else None,
        effective_before=a,
        effective_after=b,
        read_from=held_after.read_from if held_after else None,
        text=text,
    )


def _with_request(found: schemas.Change, asked: schemas.Change | None) -> schemas.Change:
    """Put what was asked for beside a change that was found by other means than a live value."""
    if asked is None:
        return found
    return found.model_copy(
        update={
            "keys": asked.keys,
            "requested_before": asked.requested_before,
            "requested_after": asked.requested_after,
            "text": f"{found.text}; {asked.text}",
        }
    )


def _held(value: schemas.EffectiveValue | None) -> str:
    return value.read_from if value else "the live object"


def _declare(change: schemas.Change, declared: Sequence[Declared]) -> schemas.Change:
    for d in declared:
        if d.mitigation.concept == change.concept:
            return change.model_copy(update={"mitigation": d.mitigation.uid})
    return change


def _unproven(declared: Sequence[Declared], changes: Sequence[schemas.Change], after: Side) -> list[str]:
    """Declared mitigations that no live value bears out."""
    return [d.mitigation.uid for d in declared if effect(d.mitigation, changes, after)[0] != "yes"]


def effect(
    mitigation: schemas.Mitigation, changes: Sequence[schemas.Change], after: Side
) -> tuple[Literal["yes", "no", "not_shown"], str, schemas.Scalar | None]:
    """Tell whether a declared mitigation is in effect, in words, with the live value that decides it."""
    held = after.value(mitigation.concept)
    changed = next((c for c in changes if c.concept == mitigation.concept and not requested_only(c)), None)
    if held is not None and mitigation.after is not None:
        if same(held.value, mitigation.after):
            return "yes", f"{held.read_from} holds {held.value.text()}", held.value
        return (
            "no",
            f"{mitigation.after.text()} was declared, {held.read_from} holds {held.value.text()}",
            held.value,
        )
    if changed is not None and changed.cls != "unclassified":
        seen = changed.effective_after is not None or changed.read_from is not None
        return ("yes" if seen else "not_shown"), changed.text, changed.effective_after
    return "not_shown", f"no live object shows {mitigation.concept}", None


def _not_shown(before: Side, after: Side, restore: schemas.Restore | None) -> dict[str, str]:
    """Concepts and components that this boundary cannot judge, with what would show them."""
    out: dict[str, str] = {}
    for concept in REQUIRED:
        a, b = before.value(concept), after.value(concept)
        if a is not None and b is not None:
            continue
        if concept == "grad_clip" and _clip(a, b, before, after) is not None:
            continue  # one side clipped and the other made steps without: that is a change, not a gap
        out[concept] = _reason(concept, before, after)
    if before.code is None or after.code is None:
        out["code"] = "no code record on one side"
    elif before.code.unread or after.code.unread:
        out["code"] = f"git did not tell: {after.code.note or before.code.note}"
    if before.environment is None or after.environment is None:
        out["software"] = "no environment record on one side"
    for c in restore.components if restore else ():
        if c.status == "not_recorded":
            out[c.component] = c.text
    if restore is None:
        for name in ("weights", "optimizer_state", "rng", "loader_position"):
            out[name] = "no state digests to compare: call rec.checkpoint(path, step) at each save"
    return out


def _reason(concept: str, before: Side, after: Side) -> str:
    for side in (after, before):
        if side.effective is None:
            return "no live values were recorded on one side"
        if concept in side.effective.unseen:
            return side.effective.unseen[concept]
    return "not recorded on one side"
