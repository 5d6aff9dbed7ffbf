"""The decision how to go on: from which state, with which changes, what they do to validity, and what it costs.

Nothing here says what broke. A decision may be right without a cause, and a cause is not shown by a decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from .._rooms import schemas
from . import validity
from .graph import Graph
from .quarantined import Quarantine

REGIME = ("R", "C")
NO_FORM = "write concept=value because why; and after a semicolon hypothesis: ... or smallest: ..."


@dataclass(frozen=True)
class Asked:
    """A mitigation as a person asks for it."""

    concept: str
    after: str
    why: str
    hypothesis: str | None = None
    smallest: str | None = None


def parse(text: str) -> Asked:
    """Read `grad_clip=0.3 because the norm spiked; hypothesis: one shard; smallest: a skip did not do`.

    Raises `ValueError` where the reason is missing.
    """
    head, _, rest = text.partition(" because ")
    concept, equals, after = head.partition("=")
    if not equals or not concept.strip() or not after.strip():
        raise ValueError(f"{text!r} names no change; {NO_FORM}")
    parts = [p.strip() for p in rest.split(";")]
    if not parts[0]:
        raise ValueError(f"{head.strip()!r} has no reason; {NO_FORM}")
    more: dict[str, str] = {}
    why = [parts[0]]
    for part in parts[1:]:
        name, colon, value = part.partition(":")
        if colon and name.strip() in ("hypothesis", "smallest"):
            more[name.strip()] = value.strip()
        elif part:
            why.append(part)
    return Asked(concept.strip(), after.strip(), "; ".join(why), more.get("hypothesis"), more.get("smallest"))


def restart_point(
    graph: Graph,
    quarantine: Quarantine,
    bad: schemas.FirstBad | None,
    checkpoint: str | None = None,
    segment: str | None = None,
) -> schemas.RestartPoint | None:
    """The checkpoint to go on from: the one that was named, else the last good one, else the newest that is sound.

    None where there is none. What speaks against it is in its `doubts`.
    """
    why = "it was named"
    uid = checkpoint
    if uid is None and bad is not None and bad.last_good_checkpoint in graph.nodes:
        uid, why = (
            bad.last_good_checkpoint,
            "the last good checkpoint: the latest complete one that is not in doubt",
        )
    if uid is None and segment is not None:
        step = graph.last_step.get(segment, 0) if bad is None or bad.cell is None else bad.cell.step - 1
        sound = [n for n in graph.before(segment, step) if n.uid not in quarantine.bad]
        if sound:
            uid, why = sound[0].uid, "the latest complete checkpoint on the branch that is not quarantined"
    node = graph.nodes.get(uid or "")
    if node is None:
        return None
    c = node.checkpoint
    doubts = []
    if c.uid in quarantine.bad:
        doubts.append(f"it is quarantined: {quarantine.bad[c.uid].why}")
    if c.status != "complete":
        doubts.append(f"its save is {c.status} on record")
    if c.missing:
        doubts.append(f"a faithful resume would lack {', '.join(c.missing)}")
    if node.deleted:
        doubts.append("it was deleted")
    return schemas.RestartPoint(
        checkpoint=c.uid, step=c.step, segment=node.segment, path=c.path, why=why, doubts=doubts
    )


def change_of(asked: Asked, before: schemas.Scalar | None) -> schemas.Change:
    """The change that a mitigation would make, as a drift would name it."""
    concept = schemas.catalogue().concept(asked.concept)
    after = schemas.Scalar.of(plain(asked.after))
    title = concept.title if concept.id != "unclassified" else asked.concept
    was = "not on record" if before is None else before.text()
    return schemas.Change.model_validate(
        {
            "concept": asked.concept,
            "class": concept.cls,
            "title": title,
            "requested_before": before,
            "requested_after": after,
            "effective_before": before,
            "effective_after": after,
            "text": f"{title} {was} -> {after.text()}",
        }
    )


def plain(text: str) -> object:
    """A value as it is written: a number where it is one, else the text."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)


def effects(change: schemas.Change, step: int, segment: str) -> list[schemas.ClaimEffect]:
    """What one change by itself does to each claim, by the validity policy; claims that it leaves are left out."""
    return [
        schemas.ClaimEffect(claim=claim, status=tally.status, reason=validity.because(tally.links, claim))
        for claim, tally in validity.tallies_of(_drift([change], step), segment).items()
        if tally.links and tally.status != "holds"
    ]


def _drift(changes: Sequence[schemas.Change], step: int) -> schemas.Drift:
    known = [c for c in changes if c.cls != "unclassified"]
    return schemas.Drift(
        from_step=step + 1,
        changes=known,
        unclassified=[c for c in changes if c.cls == "unclassified"],
        confounded=confounded(changes),
    )


def confounded(changes: Sequence[schemas.Change]) -> bool:
    """Two or more changes of a class that results depend on, at one restart."""
    return len({c.concept for c in changes if c.cls in REGIME}) > 1


def claims_after(
    now: schemas.Verdict, changes: Sequence[schemas.Change], step: int, segment: str
) -> list[schemas.ClaimEffect]:
    """What may be concluded once the changes are made: the worse of what the restart point has and what they do."""
    added = validity.tallies_of(_drift(changes, step), segment)
    out = []
    for c in now.claims:
        tally = added.get(c.claim)
        worse = tally.status if tally is not None and tally.links else "holds"
        status = validity.worst([c.status, worse])
        reason = c.reason
        if tally is not None and status == worse and worse != "holds":
            reason = validity.because([k for k in tally.links if k.effect == worse], c.claim)
            if c.status == worse:
                reason = f"{c.reason}; and {reason}"
        out.append(schemas.ClaimEffect(claim=c.claim, status=status, reason=reason))
    return out


@dataclass(frozen=True)
class Price:
    """What a device-hour costs."""

    money: float | None = None
    currency: str = ""
    kilowatts: float | None = None


@dataclass(frozen=True)
class Work:
    """How much was done since the restart point."""

    devices: int
    restart: int
    last: int | None
    """the last step that was made"""
    bad: int | None
    times: Sequence[float] = field(default=())
    """seconds of recent healthy steps"""


def cost(work: Work, price: Price) -> schemas.RecoveryCost:
    """What it costs to wait and to resume, each number with its formula."""
    step_time = median(work.times) if work.times else None
    again = None if work.last is None else max(0, work.last - work.restart)
    to_bad = None if work.bad is None else max(0, work.bad - work.restart)
    hours = _hours(again, step_time, work.devices)
    failing = _hours(to_bad, step_time, work.devices)
    even = None if failing is None else failing / work.devices
    formula = []
    if step_time is None:
        formula.append("the time of a step is not on record, so no hours can be told")
    else:
        formula.append(
            f"step time {step_time:.3g} s: median of {len(work.times):,} steps before the first bad one"
        )
    if again is not None and hours is not None:
        formula.append(
            f"made again: {again:,} steps x {step_time:.3g} s x {work.devices:,} devices / 3600 = "
            f"{_amount(hours, price)}"
        )
    if to_bad is not None and failing is not None:
        formula.append(
            f"lost if it breaks again at step {work.bad:,}: {to_bad:,} steps x {step_time:.3g} s x "
            f"{work.devices:,} devices / 3600 = {_amount(failing, price)}"
        )
    formula.append(f"each hour of waiting: {work.devices:,} devices x 1 h = {_amount(work.devices, price)}")
    if even is not None:
        formula.append(
            f"waiting {even:.2g} h costs as much as one resume that breaks at the same step: {to_bad:,} x "
            f"{step_time:.3g} s / 3600"
        )
    return schemas.RecoveryCost(
        step_time=step_time,
        steps_measured=len(work.times),
        devices=work.devices,
        steps_again=again,
        steps_to_bad=to_bad,
        device_hours_again=hours,
        device_hours_failing=failing,
        waiting_per_hour=float(work.devices),
        break_even_hours=even,
        price=price.money,
        currency=price.currency or None,
        energy=price.kilowatts,
        formula=formula,
    )


def _hours(steps: int | None, step_time: float | None, devices: int) -> float | None:
    return None if steps is None or step_time is None else steps * step_time * devices / 3600


def _amount(hours: float, price: Price) -> str:
    told = f"{hours:,.3g} device-hours"
    if price.money is not None:
        told += f" x {price.money:g} = {hours * price.money:,.2f} {price.currency}".rstrip()
    if price.kilowatts is not None:
        told += f"; x {price.kilowatts:g} kW = {hours * price.kilowatts:,.3g} kWh"
    return told


def habits(
    asked: Sequence[Asked], changes: Sequence[schemas.Change], earlier: Mapping[str, int]
) -> list[str]:
    """What is known to go wrong with such a choice, in words, said before it is taken. It forbids nothing.

    `earlier`: what the incident has seen so far: `replays`, `one_change` (replays with one condition changed).
    """
    out = []
    if confounded(changes):
        names = ", ".join(c.title for c in changes if c.cls in REGIME)
        out.append(
            f"several changes at one restart ({names}): whatever happens then can be traced to none of them"
        )
    lowered = [
        c for c in changes if c.concept == "learning_rate" and _lower(c.requested_before, c.requested_after)
    ]
    if lowered and not earlier.get("one_change"):
        out.append(
            "a lower learning rate as the opening move: it makes most symptoms smaller, whatever the cause, and no "
            "replay with one condition changed has been made yet"
        )
    if asked and not earlier.get("replays"):
        out.append("a mitigation before any replay: what it is to cure has not been made again yet")
    out += [
        f"{a.concept}: no hypothesis is stated, so nothing can speak against it"
        for a in asked
        if not a.hypothesis
    ]
    return out


def _lower(before: schemas.Scalar | None, after: schemas.Scalar | None) -> bool:
    a, b = (before and before.plain()), (after and after.plain())
    return isinstance(a, int | float) and isinstance(b, int | float) and b < a
