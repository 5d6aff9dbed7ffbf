"""What happened, in order of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from .._rooms import schemas
from ..judge import trajectory
from ..judge.events_run import Placed
from ..judge.graph import Graph
from . import words

MOST_EVENTS = 200
"""Rows of the timeline; the whole stands in the ledger."""


LAYER, MACHINES = "the layer", "records of machines"


@dataclass(frozen=True)
class Event:
    """One line of the timeline."""

    at: datetime
    step: int | None
    segment: int | None
    rank: int
    what: str
    text: str
    alarm: bool = False
    by: str = LAYER
    """whose word it is"""


def events(records: Sequence[schemas.Record], graph: Graph, beside: Sequence[Placed] = ()) -> list[Event]:
    """All events that a person would want on one page, in order of time.

    A segment begins and ends once per rank; one line stands for all ranks that say the same. `beside` are events of
    machines and software: those that are more than a note stand here too, at their own time, and as no cause.
    """
    out: list[Event] = []
    seen: set[tuple[str, str, str]] = set()
    told: dict[str, set[str]] = {}
    for r in records:
        read = _READERS.get(r.kind)
        if r.kind == "incident":
            what, text = _incident(r.payload, told)
        elif read is not None:
            what, text = read(r.payload)
        else:
            continue
        key = (r.segment, what, text)
        if r.kind in _ONCE:
            if key in seen:
                continue
            seen.add(key)
        number = graph.number(r.segment) if r.segment in graph.segments else None
        by = getattr(r.payload, "by", None) or getattr(r.payload, "who", None) or LAYER
        by = LAYER if by == "layer" else by
        out.append(Event(r.at, r.step, number, r.rank, what, text, alarm=r.kind == "alarm", by=by))
    around = _beside(beside)
    return sorted([*out, *around], key=lambda e: e.at) if around else out


MOST_BESIDE = 40
"""Events of machines and software on the timeline; all stand in their own section."""


def _beside(beside: Sequence[Placed]) -> list[Event]:
    chosen = [p for p in beside if p.event.when is not None and p.event.severity != "note"]
    chosen = sorted(chosen, key=lambda p: schemas.severity_place(p.event.severity))[:MOST_BESIDE]
    return [
        Event(
            p.event.when,
            p.after,
            p.number,
            p.ranks[0] if p.ranks else 0,
            f"beside the run: {p.event.category}{f' {p.event.code}' if p.event.code else ''}",
            f"{words.shorten(p.event.text)} ({p.steps() or p.why or 'steps not known'}; not shown to be the cause "
            "of anything)",
            by=MACHINES,
        )
        for p in chosen
        if p.event.when is not None
    ]


_ONCE = ("segment", "segment_end", "drift", "regime", "degraded")


def _segment(p: schemas.Segment) -> tuple[str, str]:
    after = f" after step {p.parent_step:,}" if p.parent_step else ""
    return "segment begins", f"{p.start}{after}, {words.plural(p.world_size, 'rank')}"


def _end(p: schemas.SegmentEnd) -> tuple[str, str]:
    last = "" if p.last_step is None else f" at step {p.last_step:,}"
    error = f": {words.shorten(p.error)}" if p.error else ""
    return "segment ends", f"{p.reason.replace('_', ' ')}{last}{error}"


def _alarm(p: schemas.Alarm) -> tuple[str, str]:
    return f"alarm {p.phase}", f"{p.text} ({p.code}, {p.scope})"


def _drift(p: schemas.Drift) -> tuple[str, str]:
    found = len(p.changes) + len(p.unclassified)
    if not found:
        return "compared", "nothing differs from the parent checkpoint"
    return "drift", words.plural(found, "change") + (", confounded" if p.confounded else "")


def _regime(p: schemas.Regime) -> tuple[str, str]:
    because = words.shorten("; ".join(p.because)) or "first regime of the run"
    return f"regime {p.index} opens", f"{because} ({words.digest(p.id)})"


def _mitigation(p: schemas.Mitigation) -> tuple[str, str]:
    title = schemas.catalogue().concept(p.concept).title
    arrow = f"{words.value(p.before)} -> {words.value(p.after)}"
    return "mitigation declared", f"{title} {arrow}: {words.shorten(p.why)}"


def _mark(p: schemas.CheckpointMark) -> tuple[str, str]:
    return f"checkpoint marked {p.mark.replace('_', ' ')}", f"{words.short(p.checkpoint)}: {p.why}"


def _incident(p: schemas.Incident, told: dict[str, set[str]]) -> tuple[str, str]:
    """`told`: the states of each incident that stand on the timeline already; its title stands there once."""
    first, states = p.uid not in told, told.setdefault(p.uid, set())
    state = p.reached or (p.status if p.status not in states else None)
    states.add(p.reached or p.status)
    said = [p.title] if first else []
    said += [f"owner {p.owner}"] if p.owner and (first or state is None) else []
    said += [p.note] if p.note else []
    said += [f"told {m.to}" for m in p.messages]
    said += [f"although something was missing: {p.override}"] if p.override else []
    what = "noted" if state is None else state.replace("_", " ")
    return f"incident {what}", words.shorten("; ".join(said) or p.title)


def _recovery(p: schemas.Recovery) -> tuple[str, str]:
    changes = words.plural(len(p.mitigations), "change") if p.mitigations else "nothing changed"
    although = f"; although evidence was missing: {p.override}" if p.override else ""
    owner = f"; owner {p.owner}" if p.owner else ""
    return "recovery decided", words.shorten(f"from step {p.restart.step:,}, {changes}{owner}{although}")


def _cause(p: schemas.RootCause) -> tuple[str, str]:
    return "cause shown", words.shorten(f"{p.family}: {p.text} (a replay with {p.proof.condition} flips it)")


def _trajectory(p: schemas.Trajectory) -> tuple[str, str]:
    return "repaired run compared", words.shorten(trajectory.summary(p.horizons))


def _preserved(p: schemas.Preserved) -> tuple[str, str]:
    return "evidence kept", f"{p.what} ({words.digest(p.root)})"


def _bundle(p: schemas.Bundle) -> tuple[str, str]:
    partial = f", partial: without {', '.join(p.left_out)}" if p.left_out else ""
    return "evidence bundled", words.shorten(
        f"batches, settings and rows of step {p.first_bad_step:,}{partial}"
    )


def _replay(p: schemas.Replay) -> tuple[str, str]:
    changed = " and ".join(c.name for c in p.changes)
    told = {True: "; it flips", False: "; it does not flip", None: ""}[p.flips] if p.changes else ""
    confounded = "; confounded" if p.confounded else ""
    with_ = f"with {changed}" if changed else "with nothing changed"
    return f"step {p.first_bad_step:,} made again", f"{with_}: {p.result.replace('_', ' ')}{told}{confounded}"


def _rung(p: schemas.Rung) -> tuple[str, str]:
    of = f" of {p.recipe.built_by}" if p.recipe is not None and p.recipe.built_by else ""
    return f"rung {p.rung.replace('_', ' ')}{of}", words.shorten(f"{p.outcome.replace('_', ' ')}: {p.text}")


def _degraded(p: schemas.Degraded) -> tuple[str, str]:
    return "layer degraded", words.shorten(f"{p.part}: {p.error}; {p.consequence} ({p.code})")


def _evaluation(p: schemas.Evaluation) -> tuple[str, str]:
    return "evaluation", f"{p.evaluator} {p.evaluator_version} of checkpoint {words.short(p.checkpoint)}"


_READERS: dict[str, Callable[..., tuple[str, str]]] = {
    "segment": _segment,
    "segment_end": _end,
    "alarm": _alarm,
    "drift": _drift,
    "regime": _regime,
    "mitigation": _mitigation,
    "checkpoint_mark": _mark,
    "recovery": _recovery,
    "root_cause": _cause,
    "trajectory": _trajectory,
    "preserved": _preserved,
    "bundle": _bundle,
    "replay": _replay,
    "rung": _rung,
    "degraded": _degraded,
    "evaluation": _evaluation,
}
