"""What an observed run shows and what it cannot show, as a record and as lines for a person."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .._rooms import schemas
from ..capture.watched import LINES
from . import ranks
from ._light import light
from .steps import COUNTER

if TYPE_CHECKING:
    from .observation import Observation

UNSEEN = ("model", "optimizer", "scheduler", "loader")
"""Live objects that only `lineage.attach` is given."""


def of(o: Observation) -> schemas.Coverage:
    """The coverage record."""
    recorded, missing = [], {name: LINES[name] for name in UNSEEN}
    if o.config is not None:
        recorded.append("config")
    else:
        missing["config"] = LINES["config"]
    recorded += [f"{len(o.rows.keys)} logged metrics"] if o.rows.keys else []
    recorded += [f"{o.saves.count} checkpoints"] if o.saves and o.saves.count else []
    recorded += [f"{o.loads} loads of files"] if o.loads else []
    missing["values in effect"] = "lineage.attach(run, model=model, optimizer=optimizer, scheduler=scheduler)"
    missing["state digests"] = "rec.checkpoint(path, step=step)"
    missing["batch fingerprints"] = "with rec.step(step, batch):"
    return schemas.Coverage(recorded=recorded, missing=missing, gaps=[*o.gaps, *_gaps(o)])


def _gaps(o: Observation) -> list[str]:
    switch = light.events.SWITCH
    out = ["recorded by observation alone: what was asked for was seen, what was in effect was not"]
    if COUNTER in o.rows.axes:
        out.append(f"rows without a step stand on {COUNTER}, which need not be that of the updates")
    if o.rows.others:
        names = ", ".join(list(o.rows.others)[:6])
        out.append(f"logged values that are no numbers are not kept: {names}")
    if o.rows.lost:
        out.append(
            f"{o.rows.lost:,} logged values came before the ledger was open, and were too many to keep"
        )
    if switch.memory_saves:
        out.append(
            f"{switch.memory_saves} saves went into memory or a stream: which file holds them is not seen"
        )
    if switch.dropped:
        out.append(f"{switch.dropped:,} calls came faster than they could be recorded")
    if switch.failures:
        out.append(f"the observer failed on {switch.failures} calls, first: {switch.first_failure}")
    return out + ranks.unreached()


def lines(o: Observation, ledger: Path) -> list[str]:
    """The ledger, what was recorded, what was not and the line that would add it, the next command."""
    found = of(o)
    steps = (
        f"steps {o.rows.first:,}-{o.rows.last:,}"
        if o.rows.first is not None and o.rows.last is not None
        else "no steps"
    )
    return [
        f"lineage: ledger {ledger}",
        f"lineage: observed {steps}: {', '.join(found.recorded) or 'nothing'}",
        f"lineage: not shown: values in effect; add {found.missing['values in effect']}",
        f"lineage: next: lineage show {ledger}",
    ]
