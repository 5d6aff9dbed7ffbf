"""What `lineage replay` prints: the control and the change beside the record, and what that does to each cause."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from .._rooms import schemas
from ..bundle import reading
from ..judge.replay_course import flips
from .common import console, errors, short, step_text, table

if TYPE_CHECKING:
    from ..replay.where import Where

MAIN = ("loss", "grad_norm_local", "grad_norm")
WORDS = {
    "reproduced": "[bold red]reproduced[/]",
    "not_reproduced": "[green]not reproduced[/]",
    "inconclusive": "[yellow]inconclusive[/]",
}


def show(
    bundle: reading.Bundle,
    here: Where,
    found: list[schemas.Replay],
    *,
    recorded: Path | None,
    known: schemas.Replay | None = None,
) -> None:
    """Print the replays of one step, the control first.

    `recorded`: the ledger that they were written into. `known`: a control that was on record before.
    """
    m = bundle.manifest
    rank = f"[rank {here.rank}] " if here.world > 1 else ""
    console.print(f"{rank}step {step_text(m.step)} of rank {m.rank}: {escape(m.alarm.text)} ({m.alarm.code})")
    console.print(f"begins with {escape(found[0].start.text)}")
    for text in found[0].given:
        console.print(f"differs from the run: {escape(text)}")
    for c in found[0].start.components:
        if c.equal is False:
            console.print(f"[bold red]{c.component} is not as it was recorded[/]")
    if known is not None:
        console.print(
            f"held against the replay {short(known.uid)} on record, of {known.world_size} ranks with nothing changed: "
            f"{WORDS[known.result]}"
        )
    for r in found:
        _one(r)
    if recorded is None:
        errors.print(
            "not recorded: the bundle lies in no ledger, or --no-record was given (--ledger PATH names one)"
        )
    elif here.rank == 0:
        console.print(f"\nwritten down; next: [bold]lineage incident {escape(shlex.quote(str(recorded)))}[/]")


def _one(r: schemas.Replay) -> None:
    name = " and ".join(c.name + (f":{c.argument}" if c.argument else "") for c in r.changes)
    title = f"with {name}" if name else "with nothing changed"
    console.print(f"\n[bold]{title}:[/] {WORDS[r.result]}. {escape(r.reason)}")
    for c in r.changes:
        effect = {
            "yes": "in effect",
            "no": "NOT IN EFFECT",
            "not_shown": "whether it was in effect is not shown",
        }
        console.print(f"  {c.name}: {effect[c.in_effect]}: {escape(c.text)}")
    if r.flips is not None:
        console.print(
            "  [bold]it flips[/]: it shows in one of the two alone" if r.flips else f"  {escape(flips(r))}"
        )
    if r.confounded:
        console.print(
            "  [bold yellow]confounded:[/] several things were changed, and no effect can be traced to one"
        )
    rows = table("", "recorded", "replayed", "equal", "spread")
    shown = [v for v in r.values if v.recorded is not None or v.signal in MAIN]
    for v in shown:
        equal = {True: "to the last bit", False: "no", None: "-"}[v.equal]
        spread = "-" if v.spread is None else f"{v.spread:.3g}"
        rows.add_row(v.signal, _number(v.recorded), ", ".join(map(_number, v.replayed[:4])), equal, spread)
    if shown:
        console.print(rows)
    if r.tensors_compared:
        console.print(
            f"  gradients: {r.tensors_equal} of {r.tensors_compared} equal in every recorded number"
        )
    for t in r.tensors[:4]:
        norms = f"{_number(t.recorded_norm)} recorded, {_number(t.replayed_norm)} replayed"
        broken = t.recorded_broken or t.replayed_broken
        more = f"; not finite: {t.recorded_broken} recorded, {t.replayed_broken} replayed" if broken else ""
        console.print(f"    {escape(t.tensor)}: {norms}{more}")
    for f in r.first_non_finite:
        console.print(f"  [bold]first not finite[/] ({_kind(f)}): {escape(f.text)}")
    for text in r.before[-3:]:
        console.print(f"    before it: {escape(text)}")
    for e in r.effects:
        aspect = f" ({e.aspect})" if e.aspect else ""
        console.print(escape(f"  {e.direction} {e.family}{aspect}: {e.text} [{e.rule}]"))
    for text in r.limits:
        console.print(f"  not shown: {escape(text)}")


def _kind(f: schemas.FirstNonFinite) -> str:
    if f.operation is None:
        return "module"
    return "operation of the backward pass" if f.phase == "backward" else "operation of the forward pass"


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.9g}"
