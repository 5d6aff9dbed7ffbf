"""`lineage recover`: the decision how to go on, apart from what broke. Evidence first."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.markup import escape
from uuid6 import uuid7

from .._rooms import schemas
from ..judge import recovery
from ..judge.gate import Gate
from ..judge.incident_life import Life
from ..recorder import mitigations
from ..recorder.mitigations import text
from . import incident_facts, judging, recover_compare, recover_declare, recover_gathered
from .common import (
    CliError,
    Exit,
    Json,
    Run,
    Subject,
    console,
    emit,
    ending,
    find,
    short,
    status,
    step_text,
    table,
)
from .default_command import Decides
from .incident_facts import Which
from .incident_writing import By, Despite, Told, filled, messages, who, write

NAME = "decide"
app = typer.Typer(
    name="recover",
    cls=Decides,
    help="How to go on after an incident: from where, with which changes, at what cost. Never what broke it.",
)


@app.callback()
def _group() -> None:
    """Hold the commands of a recovery."""


@app.command(NAME)
def decide(
    run: Run = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", help="The checkpoint to go on from; the last good one by default.", show_default=False
        ),
    ] = None,
    mitigate: Annotated[
        list[str] | None,
        typer.Option(
            help="'CONCEPT=VALUE because WHY; hypothesis: ...; smallest: ...'; repeatable. None is a good number.",
            show_default=False,
        ),
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Who is responsible for it.", show_default=False)] = None,
    told: Told = None,
    price: Annotated[
        float | None, typer.Option(help="Of one device for one hour.", show_default=False)
    ] = None,
    currency: Annotated[str, typer.Option(help="Of the price.")] = "",
    kilowatts: Annotated[
        float | None, typer.Option(help="That one device draws, for the energy.", show_default=False)
    ] = None,
    note: Annotated[str | None, typer.Option(help="Anything else.", show_default=False)] = None,
    despite: Despite = None,
    yes: Annotated[bool, typer.Option("--yes", help="Write the decision down without asking.")] = False,
    by: By = None,
    which: Which = None,
    as_json: Json = False,
) -> None:
    """Show what a recovery rests on, does and costs; with --yes, write it down as the decision.

    Refused while evidence is missing that is still there to be held, or that was deleted.
    """
    filled(owner=owner, told=told, despite=despite, by=by)
    subject = find(run)
    name = incident_facts.command_name(subject, run)
    life = incident_facts.choose(subject, which, name)
    gate = incident_facts.gate(subject, life, name)
    asked = _asked(mitigate or [])
    made = _Decision(subject, life, gate, from_, asked, recovery.Price(price, currency, kilowatts))
    refused = [*(f"{e.what}: {e.text}" for e in gate.missing), *made.restart.doubts]
    record = made.record(
        owner=text(owner) or life.latest.owner,
        by=who(by),
        messages=messages(told),
        override=text(despite) if refused else None,
        note=text(note),
    )
    if not as_json:
        _show(subject, life, gate, record, made.habits())
    if refused and not despite:
        _refuse(name, gate, made.restart, as_json=as_json)
    taken = yes or (sys.stdin.isatty() and not as_json and typer.confirm("Is this the decision?"))
    if taken:
        write(subject, life.segment, [record], caused_by=life.records[-1:])
    if as_json:
        emit({"decision": record, "written": taken, "refused": refused, "habits": made.habits()})
    elif taken:
        _taken(record)
    else:
        console.print("nothing is written yet: [bold]--yes[/] writes it down as the decision")
    raise ending(Exit.OK, judging.damage(subject), as_json=as_json)


def _asked(texts: Sequence[str]) -> list[recovery.Asked]:
    try:
        return [recovery.parse(t) for t in texts]
    except ValueError as e:
        raise CliError(f"--mitigate: {e}") from None


class _Decision:
    """A decision in the making."""

    def __init__(
        self,
        subject: Subject,
        life: Life,
        gate: Gate,
        checkpoint: str | None,
        asked: Sequence[recovery.Asked],
        price: recovery.Price,
    ) -> None:
        self._subject, self._life, self._gate, self._asked = subject, life, gate, asked
        self.restart = recover_gathered.restart(subject, life, _uid(subject, checkpoint))
        self._changes = [
            recovery.change_of(self._named(a), recover_gathered.effective(subject, life.segment, _concept(a)))
            for a in asked
        ]
        self._cost = recovery.cost(recover_gathered.work(subject, life, self.restart), price)

    def _named(self, a: recovery.Asked) -> recovery.Asked:
        return recovery.Asked(_concept(a), a.after, a.why, a.hypothesis, a.smallest)

    def record(self, **said: Any) -> schemas.Recovery:
        """The decision as a record."""
        point = self.restart
        return schemas.Recovery(
            uid=str(uuid7()),
            incident=self._life.uid,
            restart=point,
            mitigations=[
                schemas.PlannedMitigation.model_validate(
                    {
                        "uid": str(uuid7()),
                        "concept": c.concept,
                        "class": c.cls,
                        "before": c.requested_before,
                        "after": c.requested_after,
                        "why": text(a.why),
                        "hypothesis": text(a.hypothesis),
                        "smallest_justified": text(a.smallest),
                        "effects": recovery.effects(c, point.step, point.segment),
                    }
                )
                for a, c in zip(self._asked, self._changes, strict=True)
            ],
            confounded=recovery.confounded(self._changes),
            claims=recovery.claims_after(
                recover_gathered.now(self._subject, point), self._changes, point.step, point.segment
            ),
            cost=self._cost,
            evidence=list(self._gate.items),
            policy=schemas.catalogue().digest,
            **said,
        )

    def habits(self) -> list[str]:
        """What is known to go wrong with such a choice."""
        roots = {r.payload.root for r in self._subject.ledger.of("bundle", self._life.segment)}
        replays = [r.payload for r in self._subject.ledger.of("replay") if r.payload.bundle in roots]
        single = [p for p in replays if len(p.changes) == 1 and not p.confounded]
        seen = {"replays": len(replays), "one_change": len(single)}
        return recovery.habits(self._asked, self._changes, seen)


def _concept(a: recovery.Asked) -> str:
    return mitigations.concept_of(a.concept, "what it does to validity is not known")


def _uid(subject: Subject, name: str | None) -> str | None:
    """The checkpoint that was named: its uid or the end of it, its path, or a step. Raises `CliError`."""
    if name is None:
        return None
    nodes = subject.graph.nodes
    ends = [uid for uid in nodes if uid == name or (len(name) >= 8 and uid.endswith(name))]
    at = [n.uid for n in nodes.values() if n.checkpoint.path and name.rstrip("/") == n.checkpoint.path]
    steps = [n.uid for n in nodes.values() if name.lstrip("@").replace(",", "") == str(n.checkpoint.step)]
    found = ends or at[-1:] or steps
    if len(found) == 1:
        return found[0]
    if not found:
        other = find(name).checkpoint
        if other in nodes:
            return other
        raise CliError(f"--from {name} is no checkpoint of this ledger: name its uid, path or step")
    raise CliError(f"--from {name} is {len(found)} checkpoints: {', '.join(found)}; name one by its uid")


# -- what is shown


def _show(subject: Subject, life: Life, gate: Gate, d: schemas.Recovery, habits: Sequence[str]) -> None:
    console.print(f"[bold]recovery of incident {short(life.uid)}[/]  {escape(life.latest.title)}\n")
    rows = table("evidence", "", "")
    for e in gate.items:
        rows.add_row(escape(e.what), _state(e), escape(e.text))
    console.print(rows)
    r = d.restart
    console.print(
        f"\n[bold]from[/] step {step_text(r.step)} of segment {subject.graph.number(r.segment)}: {escape(r.why)}\n"
        f"     {escape(r.path or r.checkpoint)}"
    )
    for doubt in r.doubts:
        console.print(f"     [bold red]{escape(doubt)}[/]")
    _mitigations(d)
    console.print("\n[bold]what may be concluded afterwards[/]")
    for c in d.claims:
        title = (
            schemas.catalogue().claims[c.claim].title if c.claim in schemas.catalogue().claims else c.claim
        )
        console.print(f"  {status(c.status)}  {escape(title)}: {escape(c.reason)}")
    console.print("\n[bold]cost[/]")
    for line in d.cost.formula:
        console.print(f"  {escape(line)}")
    for habit in habits:
        console.print(f"\n[yellow]known to go wrong:[/] {escape(habit)}")
    console.print()


def _mitigations(d: schemas.Recovery) -> None:
    if not d.mitigations:
        console.print("\n[bold]with[/] nothing changed: what comes then can be compared with what was")
        return
    for m in d.mitigations:
        title = schemas.catalogue().concept(m.concept).title
        was = "not on record" if m.before is None else m.before.text()
        now = "" if m.after is None else m.after.text()
        console.print(
            f"\n[bold]with[/] {escape(title)} {escape(was)} -> {escape(now)}, because {escape(m.why)}"
        )
        for name, said in (("hypothesis", m.hypothesis), ("nothing smaller, since", m.smallest_justified)):
            if said:
                console.print(f"     {name}: {escape(said)}")
        if not m.effects:
            console.print("     it leaves every claim as it is")
        for e in m.effects:
            console.print(f"     {status(e.status)}  {escape(e.claim.replace('_', ' '))}: {escape(e.reason)}")
    if d.confounded:
        console.print(
            "     [bold]confounded[/]: several changes at one restart, no effect can be traced to one"
        )


STATES = {
    "held": "[green]held[/]",
    "missing": "[bold red]MISSING[/]",
    "gone": "[bold red]GONE[/]",
    "none": "never recorded",
}


def _state(e: schemas.EvidenceState) -> str:
    """The word for a state; what is not required is quiet."""
    return STATES[e.state] if e.required else f"[dim]{e.state.replace('none', 'never recorded')}[/]"


def _refuse(name: str, gate: Gate, point: schemas.RestartPoint, *, as_json: bool) -> None:
    """Say what is missing and how to hold it. Raises `CliError`."""
    lines = [f"{e.what}: {e.text}" + (f"\n    {e.remedy}" if e.remedy else "") for e in gate.missing]
    lines += [f"the restart point: {doubt}" for doubt in point.doubts]
    raise CliError(
        "no recovery is decided, since this is missing:\n  "
        + "\n  ".join(lines)
        + f"\n`lineage incident {name}` says what to do next. --despite REASON decides all the same: the reason, and "
        "what was missing, stand in the record, and the audit shows them",
        Exit.FOUND,
    )


def _taken(d: schemas.Recovery) -> None:
    r = d.restart
    console.print(f"decided: from step {step_text(r.step)} ({short(d.uid)})")
    if d.override:
        console.print(f"[bold red]although evidence was missing:[/] {escape(d.override)}")
    console.print("In the training code, so that what changes is declared:")
    fork = f"rec = lineage.attach(run, resumed_from={str(r.path)!r}, ...)"
    console.print(f"    [bold]{escape(fork)}[/]")
    for m in d.mitigations:
        before, after = (None if v is None else v.plain() for v in (m.before, m.after))
        hypothesis = f", hypothesis={m.hypothesis!r}" if m.hypothesis else ""
        line = f"rec.mitigate({m.concept!r}, before={before!r}, after={after!r}, why={m.why!r}{hypothesis})"
        console.print(f"    [bold]{escape(line)}[/]")


recover_compare.add(app)
recover_declare.add(app)
