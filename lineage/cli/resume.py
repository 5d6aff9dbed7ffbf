"""`lineage resume`: what each resume of a run restored, and what it did not."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from .._rooms import schemas
from ..judge import rank_sets
from ..ledger import resumes
from ..ledger.resumes import Resumed
from ..report.words import plural
from . import naming
from .check import STYLE, meant
from .common import Exit, Json, Run, console, damage, emit, ending, find, short, step_text, table

NAME = "resume"
STATUS = {
    "restored": "[green]restored[/]",
    "differs": "[bold red]DIFFERS[/]",
    "absent": "[bold red]NOT RESTORED[/]",
    "not_recorded": "[cyan]not recorded[/]",
}


def command(
    run: Run = None,
    segment: Annotated[int | None, typer.Option(help="Number of the segment; all by default.")] = None,
    as_json: Json = False,
) -> None:
    """Tell for each resume, component by component, what was restored: on every rank, before the first step.

    Held against the save are exact digests of the state, whatever the number of ranks on either side; then the first
    losses, where another branch had the same batches, and the size of the first updates. Exit code 1 where something
    was not restored, 4 where nothing could be compared.
    """
    subject = find(run)
    chosen = [s for s in subject.ledger.segments if meant(subject, s, segment)]
    found = [
        r
        for s in chosen
        if (r := resumes.look(subject.ledger, s, naming.saved_in(subject, s.info.parent_checkpoint)))
    ]
    saves = [f for s in chosen for f in resumes.saves(subject.ledger, s.uid)]
    if as_json:
        emit({"run": subject.ledger.run, "resumes": [_data(r) for r in found], "saves": saves})
    else:
        for r in found:
            _print(r)
        _findings(saves)
        if not found:
            console.print("No segment of this run went on from a checkpoint, so there is nothing to compare.")
    raise ending(_code(found, saves), damage(subject.ledger), as_json=as_json)


def _code(found: list[Resumed], saves: list[schemas.Finding]) -> int:
    told = [*saves, *(f for r in found for f in r.findings)]
    if any(r.faithful is False or r.not_in_effect for r in found) or any(f.severity != "note" for f in told):
        return Exit.FOUND
    return Exit.OK if any(r.faithful for r in found) else Exit.CANNOT_TELL


def _print(r: Resumed) -> None:
    where = (
        f"the checkpoint of step {step_text(r.step)}"
        if r.step is not None
        else "a checkpoint that is not known"
    )
    name = f" ({escape(r.path)})" if r.path else f" ({short(r.checkpoint)})" if r.checkpoint else ""
    console.print(f"[bold]Segment {r.number}[/] went on from {where}{name}{_worlds(r)}: {_word(r)}")
    several = r.world > 1
    rows = table("component", "status", *(["ranks"] if several else []), "what was found")
    for o in r.outcomes:
        ranks = [rank_sets.text(o.ranks) if o.ranks else "together"] if several else []
        text = o.text.removeprefix(_title(o.component)).lstrip(" :")
        rows.add_row(_title(o.component), STATUS.get(o.status, o.status), *ranks, escape(text))
    if r.outcomes:
        console.print(rows)
    for text in r.not_in_effect:
        console.print(f"  [red]asked for[/] {escape(text)}")
    if r.lost is not None and (said := r.lost.text()):
        console.print(f"  first update: {said}")
    if r.losses is not None:
        console.print(f"  first losses: {escape(r.losses.text())}")
    if r.sizes is not None:
        said = ", ".join(f"step {step:,}: {ratio:.3g}" for step, ratio in r.sizes.ratios.items())
        console.print(
            f"  first updates: {said} times the usual size for their rate "
            f"({r.sizes.low:.2g} to {r.sizes.high:.2g} in {plural(r.sizes.count, 'update')} before the save)"
        )
    _findings(r.findings)


def _word(r: Resumed) -> str:
    if r.faithful is None:
        return "[cyan]nothing was recorded that could be compared[/]"
    if r.faithful:
        left = sorted({_title(o.component) for o in r.outcomes if o.status == "not_recorded"})
        config = (
            "; [bold red]the config asks for other values than are in effect[/]" if r.not_in_effect else ""
        )
        return (
            f"[green]what was recorded is restored[/]{'; not recorded: ' + ', '.join(left) if left else ''}"
            f"{config}"
        )
    names = dict.fromkeys(_title(o.component) for o in r.outcomes if o.status in ("differs", "absent"))
    return f"[bold red]not restored: {', '.join(names)}[/]"


def _worlds(r: Resumed) -> str:
    if r.saved_on is None or (r.saved_on == r.world == 1):
        return ""
    if r.saved_on == r.world:
        return f" on {plural(r.world, 'rank')}"
    return f", saved on {plural(r.saved_on, 'rank')}, on {plural(r.world, 'rank')} now"


def _title(component: str) -> str:
    return schemas.catalogue().concept(component).title


def _findings(found: list[schemas.Finding]) -> None:
    for f in sorted(found, key=lambda f: schemas.severity_place(f.severity)):
        console.print(
            f"  [{STYLE.get(f.severity, 'red')}]{f.severity}[/] {f.code} {escape(f.subject)}: {escape(f.text)}"
        )
        if f.remedy:
            console.print(f"    [dim]next: {escape(f.remedy)}[/]")


def _data(r: Resumed) -> dict[str, Any]:
    return {
        "segment": r.number,
        "checkpoint": r.checkpoint,
        "path": r.path,
        "step": r.step,
        "saved_on_ranks": r.saved_on,
        "ranks": r.world,
        "faithful": r.faithful,
        "components": [
            {"component": o.component, "status": o.status, "ranks": list(o.ranks) or "all", "text": o.text}
            for o in r.outcomes
        ],
        "not_in_effect": r.not_in_effect,
        "first_update_factor": r.lost.factor if r.lost is not None else None,
        "first_losses": None
        if r.losses is None
        else [{"step": s.step, "there": s.there, "here": s.here} for s in r.losses.steps],
        "first_updates": None
        if r.sizes is None
        else {"ratios": r.sizes.ratios, "low": r.sizes.low, "high": r.sizes.high, "updates": r.sizes.count},
        "findings": r.findings,
    }
