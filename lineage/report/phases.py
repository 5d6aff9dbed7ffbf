"""The phase table in words: the same cells in the terminal, in Markdown and in HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .._rooms import schemas
from ..judge import phases as judge
from ..judge.graph import Graph
from ..judge.phase_amounts import Amounts
from ..judge.phase_mitigations import Mitigated
from ..judge.phase_told import Value
from ..judge.phases import NOT_SHOWN, Measured, Phase
from . import words
from .series import Consumed, Curves

COLUMNS = (
    "Phase",
    "Steps",
    "Consumed",
    "Data mix",
    "Learning rate",
    "Global batch",
    "Precision",
    "Clipping",
    "Mitigations in effect",
    "Hardware",
    "Started from",
    "Restarts",
)

HOW = {
    "effective": "",
    "measured": "",
    "predicted": " (by the schedule)",
    "requested": " (requested)",
    "reported": " (reported)",
    "computed": " (computed)",
    "before": " (until step {at:,}{later})",
}

MOST_MITIGATIONS = 6

REPORTED = "As a source reports it: nothing of this run was seen live, so no mitigation is shown to have been in effect"


def phases(
    records: Sequence[schemas.Record], graph: Graph, curves: Curves, consumed: Mapping[str, Consumed]
) -> list[Phase]:
    """All phases of a ledger, its series included."""
    return judge.phases(records, graph, measured(graph, curves, consumed))


def measured(graph: Graph, curves: Curves, consumed: Mapping[str, Consumed]) -> Measured:
    """What the series of a ledger add to its records; the lowest rank's rate speaks for all."""
    rates = {}
    seen = {}
    for uid in graph.segments:
        ranks = curves.of(uid, "lr")
        if ranks:
            rates[uid] = ranks[min(ranks)]
        steps = curves.steps(uid)
        if steps:
            seen[uid] = (steps[0], steps[-1])
    amounts = {uid: Amounts(c.samples, c.tokens, c.ranks) for uid, c in consumed.items()}
    return Measured(rates, amounts, seen)


def cells(p: Phase, most: int = MOST_MITIGATIONS) -> dict[str, str]:
    """Column -> what stands in it; of the mitigations the newest `most`."""
    return {
        "Phase": _name(p),
        "Steps": p.steps + (f"; changes within it {p.unplaced}, steps not stated" if p.unplaced else ""),
        "Consumed": p.tokens or p.samples or NOT_SHOWN,
        "Data mix": _said(p, p.data_mix),
        "Learning rate": _said(p, p.learning_rate),
        "Global batch": _said(p, p.batch),
        "Precision": _said(p, p.precision),
        "Clipping": _said(p, p.clip),
        "Mitigations in effect": _mitigations(p, most),
        "Hardware": _said(p, p.hardware),
        "Started from": p.start,
        "Restarts": f"{p.restarts}",
    }


def told_once(found: Sequence[Phase]) -> tuple[dict[str, str], list[str]]:
    """Columns that hold one and the same value in every phase, and those that are shown in none."""
    if len(found) < 2:
        return {}, []
    rows = [cells(p) for p in found]
    same = {
        c: rows[0][c]
        for c in COLUMNS
        if c not in ("Phase", "Steps", "Consumed", "Started from") and len({r[c] for r in rows}) == 1
    }
    silent = [c for c in COLUMNS[2:-1] if all(r[c] == NOT_SHOWN for r in rows)]
    return {c: v for c, v in same.items() if v != NOT_SHOWN}, silent


def notes(found: Sequence[Phase]) -> list[str]:
    """What a reader of the table must know."""
    out = []
    if found and all(p.reported for p in found):
        out.append(REPORTED)
    values = [
        v for p in found for v in (p.data_mix, p.learning_rate, p.batch, p.precision, p.clip, p.hardware)
    ]
    if any(v is not None and v.how == "before" for v in values):
        out.append('A value "until" a step is what the change at that step says that it was before')
    if any(p.unplaced for p in found):
        out.append(
            '"Steps not stated": the source dates a change, or gives only its place among others. It came at or after '
            "the beginning of that phase, so values are listed in order, and no amount is worked out from them"
        )
    if any(p.abandoned for p in found):
        out.append("Abandoned: no later segment of the surviving branch stands on it")
    return out


def _name(p: Phase) -> str:
    regime = ""
    if p.regime is not None:
        several = p.first_regime not in (None, p.regime)
        regime = f", regimes {p.first_regime} to {p.regime}" if several else f", regime {p.regime}"
    left = ", abandoned" if p.abandoned else ""
    return f"{p.number}{regime}{left}"


def _said(p: Phase, value: Value | None) -> str:
    if value is None:
        return NOT_SHOWN
    how = (
        ""
        if p.reported and value.how == "reported"
        else HOW[value.how].format(at=(value.at or 1) - 1, later=" or later" if value.earliest else "")
    )
    return value.text + how


def _mitigations(p: Phase, most: int) -> str:
    """The newest first; those of one interval and one kind of evidence together."""
    if not p.mitigations:
        return "none declared" if p.reported else "none with evidence"
    shown = p.mitigations[:most]
    groups: dict[tuple[str, str], list[str]] = {}
    for m in shown:
        value = f" {words.shorten(m.value, 60)}" if m.value else ""
        names = groups.setdefault((_interval(m), _evidence(p, m)), [])
        names += [m.title + value] if m.title + value not in names else []
    parts = [f"{when}: {', '.join(names)}{evidence}" for (when, evidence), names in groups.items()]
    more = len(p.mitigations) - len(shown)
    return "; ".join(parts) + (f"; and {more} earlier" if more > 0 else "")


def _interval(m: Mitigated) -> str:
    if m.first is None:
        return "step not shown"
    begin = f"step {m.first:,}" + (f" or later ({m.since.removeprefix('dated ')})" if m.since else "")
    if m.until:
        return f"{begin} until changed again ({m.until.removeprefix('dated ')})"
    return f"{begin} on" if m.last is None else f"{begin} to {m.last:,}"


def _evidence(p: Phase, m: Mitigated) -> str:
    if m.in_effect == "no":
        return " (declared, NOT in effect)"
    return " (not shown to be in effect)" if m.in_effect == "not_shown" and not p.reported else ""


def span(graph: Graph, curves: Curves, uid: str) -> tuple[int, int] | None:
    """The first and last step of a segment, as far as recorded; None where it made no step."""
    info = graph.segments[uid]
    steps = curves.steps(uid)
    first = steps[0] if steps else (info.parent_step or 0) + 1
    last = max(steps[-1] if steps else 0, graph.last_step.get(uid, 0))
    return (first, last) if last >= first else None
