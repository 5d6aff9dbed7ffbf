"""`lineage show`: the run at one glance."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from .._rooms import schemas, trackers
from ..judge import rank_sets
from ..ledger import events as ledger_events
from ..ledger import health, reader
from ..report import odd, words
from . import events, first_bad, judging, oddities
from .common import (
    Exit,
    Json,
    Run,
    Subject,
    console,
    emit,
    ending,
    find,
    root,
    short,
    status,
    step_text,
    table,
)

NAME = "show"
NOT_RESTORED = ("differs", "absent")


def command(
    run: Run = None,
    every: Annotated[bool, typer.Option("--all", help="List all runs in the folder of ledgers.")] = False,
    as_json: Json = False,
) -> None:
    """Show a run: segments, branches, checkpoints, what changed, and the verdict of each branch."""
    if every:
        raise ending(Exit.OK, _list(as_json), as_json=as_json)
    subject = find(run)
    if subject.checkpoint:
        _checkpoint(subject, as_json)
    elif as_json:
        emit(_data(subject))
    else:
        _show(subject)
    raise ending(_code(subject), judging.damage(subject), as_json=as_json)


def _code(subject: Subject) -> int:
    """1 where a branch or the checkpoint is broken."""
    tips = [None] if subject.checkpoint else judging.tips(subject)
    worst = judging.worst_of(judging.verdict(subject, tip) for tip in tips)
    return Exit.FOUND if worst == "broken" else Exit.OK


def _list(as_json: bool) -> list[str]:
    """List all runs. Returns what of their ledgers is damaged."""
    runs = []
    damaged: list[str] = []
    for path in reader.find(root()):
        subject = Subject(reader.Ledger(path))
        damaged += [f"{path.name}: {text}" for text in judging.damage(subject)]
        runs.append(
            {
                "run": subject.ledger.run,
                "ledger": path,
                "segments": len(subject.ledger.segments),
                "last_step": max(subject.graph.last_step.values(), default=0),
                "last_record": subject.ledger.records[-1].at.isoformat() if subject.ledger.records else None,
                "status": judging.worst_of([judging.verdict(subject, t) for t in judging.tips(subject)]),
            }
        )
    if as_json:
        emit(runs)
        return damaged
    rows = table("run", "segments", "last step", "last record (UTC)", "verdict")
    for r in runs:
        rows.add_row(
            str(r["run"]),
            str(r["segments"]),
            step_text(int(str(r["last_step"]))),
            str(r["last_record"])[:19],
            status(str(r["status"])),
        )
    console.print(rows if runs else f"no ledger in {root()}")
    return damaged


def _data(subject: Subject) -> dict[str, object]:
    return {
        "run": subject.ledger.run,
        "ledger": subject.ledger.path,
        "segments": [
            {
                "number": s.number,
                "ranks": s.ranks,
                "last_step": subject.graph.last_step.get(s.uid),
                "segment": s.info,
            }
            for s in subject.ledger.segments
        ],
        "abandoned": subject.graph.abandoned(),
        "checkpoints": [n.checkpoint for n in subject.graph.nodes.values()],
        "drift": [r.payload for r in subject.ledger.of("drift")],
        "findings": [r.payload for r in health.findings(subject.ledger)],
        "first_bad": judging.first_bads(subject),
        "incidents": first_bad.by_hand(subject.ledger),
        "verdicts": {t: judging.verdict(subject, t) for t in judging.tips(subject)},
        "events": [events.plain(p) for p in ledger_events.read(subject.ledger).placed],
        "odd": odd.odd(subject.ledger.records),
        "damage": [d.__dict__ for d in subject.ledger.damage],
    }


def _show(subject: Subject) -> None:
    ledger, graph = subject.ledger, subject.graph
    info = ledger.last("run")
    name = f" ({info.payload.name})" if info and info.payload.name else ""
    console.print(f"[bold]run {escape(ledger.run)}[/]{escape(name)}  {escape(str(ledger.path))}")
    for alias in {(a.tracker, a.id, a.url) for r in ledger.of("run") for a in r.payload.aliases}:
        console.print(f"  {alias[0]} run {escape(alias[1])} {escape(alias[2] or '')}")
    console.print()
    _segments(subject)
    for uid, bad in judging.first_bads(subject).items():
        cell = bad.cell
        if cell:
            console.print(
                f"\n[bold red]first bad in segment {graph.number(uid)}: rank {cell.rank}, "
                f"step {step_text(cell.step)}[/]: {escape(cell.text)}"
            )
    first_bad.show_by_hand(subject, first_bad.by_hand(ledger))
    for drift in ledger.of("drift"):
        _drift(subject, drift)
    _findings(subject)
    oddities.tell(ledger.records)
    events.tell(subject)
    console.print()
    for tip in judging.tips(subject):
        found = judging.verdict(subject, tip)
        console.print(
            f"segment {graph.number(tip)}: {status(found.status)}  {escape(trackers.headline(found))}"
        )
    console.print("\nnext: [bold]lineage verdict[/], [bold]lineage report[/], [bold]lineage verify[/]")


def _segments(subject: Subject) -> None:
    graph, abandoned = subject.graph, subject.graph.abandoned()
    tips = set(graph.tips())
    rows = table("segment", "start", "from", "steps", "ranks", "checkpoints", "ended")
    ends = {r.segment: r.payload for r in subject.ledger.of("segment_end") if r.rank == 0}
    for s in subject.ledger.segments:
        parent = graph.nodes.get(s.info.parent_checkpoint or "")
        came = "-"
        if parent:
            came = f"step {step_text(parent.checkpoint.step)} of segment {graph.number(parent.segment)}"
        elif s.info.parent_checkpoint:
            came = f"step {step_text(s.info.parent_step)} of another ledger"
        last = graph.last_step.get(s.uid, 0)
        first = (s.info.parent_step or 0) + 1
        steps = f"{first:,}-{last:,}" if last >= first else "none"
        if s.info.place.node == schemas.IMPORTED and s.uid in tips and s.uid not in abandoned:
            steps = f"{first:,} on"  # how far it went is not shown
        if s.uid in abandoned:
            steps += f" (left after {abandoned[s.uid]:,})"
        saved = [step_text(n.checkpoint.step) for n in graph.nodes.values() if n.segment == s.uid]
        end = ends.get(s.uid)
        rows.add_row(
            str(s.number),
            s.info.start,
            came,
            steps,
            "not seen" if s.info.place.node == schemas.IMPORTED else f"{len(s.ranks)} of {s.info.world_size}",
            ", ".join(saved) or "-",
            end.reason.replace("_", " ") if end else "no end recorded",
        )
    console.print(rows)


def _drift(subject: Subject, record: schemas.Record) -> None:
    drift: schemas.Drift = record.payload
    number = subject.graph.number(record.segment)
    others = _other_ranks(subject, record) if drift.moment == "resume" else {}
    at = f"at step {step_text(drift.from_step)}"
    if drift.lower_bound is not None:
        at = f"at or after step {step_text(drift.from_step)} ({escape(drift.lower_bound)})"
    if drift.changes or drift.unclassified:
        word = "  [bold]confounded[/]" if drift.confounded else ""
        console.print(f"\n[bold]segment {number}: changed {at}[/]{word}")
    elif drift.moment == "reported":
        console.print(f"\nsegment {number}: something was reported {at}; whether it changes anything is open")
    else:
        where = " on rank 0" if others else ""
        console.print(f"\nsegment {number}: nothing differs from the state at the save{where}")
    for c in [*drift.changes, *drift.unclassified]:
        declared = "declared" if c.mitigation else "undeclared"
        console.print(
            f"  {c.cls if c.cls != 'unclassified' else '?'}  {escape(c.text)}  [dim]({declared})[/]"
        )
    for text, ranks in others.items():
        console.print(f"  {escape(rank_sets.words(ranks))}: {escape(text)}")
    if drift.not_shown:
        console.print(f"  [cyan]not shown:[/] {escape(', '.join(drift.not_shown))}")


def _other_ranks(subject: Subject, record: schemas.Record) -> dict[str, list[int]]:
    """What only other ranks than the judging one did not restore -> those ranks: each rank records its own."""
    found: dict[str, list[int]] = {}
    restores = {
        r.rank: r.payload for r in subject.ledger.of("restore", record.segment) if r.payload.scope == "rank"
    }
    own = restores.get(0)
    told = {c.component for c in own.components if c.status in NOT_RESTORED} if own else set()
    for rank, restore in sorted(restores.items()):
        for c in restore.components if rank else ():
            if c.status in NOT_RESTORED and c.component not in told:
                found.setdefault(c.text, []).append(rank)
    return found


def _findings(subject: Subject) -> None:
    """What checks found, the worst first; the same of several ranks and segments once."""
    found = health.gathered(subject.ledger, subject.graph.segments)
    if found:
        console.print("\nchecks found:")
    for g in found:
        r, f = g.first, g.first.payload
        also = f", and in {words.plural(g.others, 'more segment')}" if g.others else ""
        names = (
            f" [dim]({escape(', '.join(f.names[:3]))}{', ...' if len(f.names) > 3 else ''})[/]"
            if f.names
            else ""
        )
        style = {"fault": "red", "warning": "yellow", "note": "dim"}.get(f.severity, "red")
        console.print(
            f"  [{style}]{f.severity}[/] {f.code} {escape(f.subject)}: {escape(f.text)}{names}, "
            f"step {step_text(r.step)} of segment {subject.graph.number(r.segment)}{also}"
        )


def _checkpoint(subject: Subject, as_json: bool) -> None:
    node = subject.graph.nodes[subject.checkpoint or ""]
    found = judging.verdict(subject)
    if as_json:
        emit({"checkpoint": node.checkpoint, "marks": node.marks, "verdict": found})
        return
    c = node.checkpoint
    console.print(
        f"[bold]checkpoint {c.uid}[/]  step {step_text(c.step)}, {c.status}  {escape(c.path or '')}"
    )
    console.print(
        f"  segment {subject.graph.number(node.segment)}, parents {', '.join(map(short, c.parents)) or 'none'}"
    )
    for mark in node.marks:
        console.print(f"  marked {mark.mark.replace('_', ' ')}: {escape(mark.why)}")
    rows = table("component", "digest at the save", "facts")
    for live in c.live:
        facts = ", ".join(f"{k} {v.text()}" for k, v in live.detail.items())
        rows.add_row(live.component, (live.digest or "none")[:30], escape(facts or live.note or ""))
    console.print(rows)
    console.print(f"\n{status(found.status)}  {escape(trackers.headline(found))}")
