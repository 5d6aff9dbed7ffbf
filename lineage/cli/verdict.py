"""`lineage verdict`: what may still be concluded, claim by claim, and why."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from .._rooms import schemas, trackers
from . import judging, mitigated
from .common import Exit, Json, Run, Subject, console, emit, ending, find, status, step_text, table

NAME = "verdict"


def command(
    run: Run = None,
    against: Annotated[
        str | None,
        typer.Option(help="Compare with this run or checkpoint instead of the run's own beginning."),
    ] = None,
    fail_on: Annotated[
        str, typer.Option(help="Worst status that still exits with 0 is below this one.")
    ] = "broken",
    as_json: Json = False,
) -> None:
    """Say what may still be concluded from a run or a checkpoint, and which changes decide it."""
    if fail_on not in schemas.STATUS_ORDER:
        raise typer.BadParameter(f"--fail-on takes {', '.join(schemas.STATUS_ORDER)}; not {fail_on!r}")
    subject = find(run)
    damaged = judging.damage(subject)
    if against is not None:
        from .pairs import pair_verdict

        other = find(against)
        damaged += judging.damage(other)
        found = pair_verdict(subject, other)
        segment = None
    else:
        segment = None if subject.checkpoint else subject.tip
        found = judging.verdict(subject, segment)
    changed = judging.differs(judging.recorded(subject, segment), found) if segment else []
    if as_json:
        emit({"verdict": found, "differs_from_recorded": changed})
    else:
        show(subject, found, changed)
    raise ending(code(found, fail_on), damaged, as_json=as_json)


def code(found: schemas.Verdict, fail_on: str = "broken") -> int:
    """The exit code of a verdict."""
    order = schemas.STATUS_ORDER
    if order.index(found.status) >= order.index(fail_on):
        return Exit.FOUND
    return Exit.CANNOT_TELL if found.status == "not_shown" else Exit.OK


def show(subject: Subject, found: schemas.Verdict, changed: list[str]) -> None:
    """Print a verdict for a person."""
    what, _, name = found.subject.partition(":")
    console.print(f"[bold]{what} {name}[/]  reference: {found.reference}")
    console.print(f"{status(found.status)}  {escape(trackers.headline(found))}\n")
    links = {(k.step, k.concept): k for c in found.claims for k in c.chain}
    if links:
        console.print("[bold]What changed[/]")
        for (step, _), k in sorted(links.items()):
            declared = "declared" if k.declared else "undeclared"
            console.print(f"  step {step_text(step)}  {escape(k.text)}  [dim]({declared}, {k.code})[/]")
        if found.confounded:
            console.print(
                "  [bold]confounded[/]: several changes came at one restart; no effect can be traced to one"
            )
        console.print()
    mitigated.tell(subject)
    rows = table("claim", "verdict", "why")
    for c in found.claims:
        title = (
            schemas.catalogue().claims[c.claim].title if c.claim in schemas.catalogue().claims else c.claim
        )
        rows.add_row(title, status(c.status), escape(_why(c)))
    console.print(rows)
    for line in sorted({c.show for c in found.claims if c.show}):
        console.print(f"\nto show what is not shown: [bold]{escape(line)}[/]")
    for r in subject.ledger.of("finding"):
        if r.payload.code == "LIN-D003":
            console.print(
                f"\n[yellow]{r.payload.code}[/] {escape(r.payload.subject)}: {escape(r.payload.text)}"
            )
    for claim in changed:
        console.print(f"\n[yellow]differs from the verdict recorded while the run went on:[/] {claim}")


def _why(c: schemas.ClaimVerdict) -> str:
    """The deciding concepts by step: the whole texts stand above the table."""
    by_step: dict[int, list[str]] = {}
    for k in c.chain:
        if k.effect == c.status:
            concept = schemas.catalogue().concept(k.concept)
            name = k.text if concept.id == "unclassified" else concept.title
            by_step.setdefault(k.step, []).append(name)
    if not by_step:
        return c.reason
    return "; ".join(
        f"step {step_text(s)}: {', '.join(dict.fromkeys(names))}" for s, names in sorted(by_step.items())
    )
