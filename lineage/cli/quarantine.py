"""`lineage quarantine`: mark the checkpoints that hold a state from after the first bad step, or take a mark back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from .._rooms import schemas
from ..judge.quarantined import Quarantine, Quarantined, quarantine
from ..ledger.scan import heads
from ..ledger.seal import seal
from ..recorder.quarantine import beside
from . import judging
from .common import CliError, Exit, Json, Run, Subject, console, emit, ending, find, short, step_text
from .preserving import name_later, open_journal

NAME = "quarantine"


def command(
    run: Run = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be marked; change nothing.")
    ] = False,
    mark: Annotated[
        str | None,
        typer.Option(
            help="Quarantine this checkpoint by hand: its uid, path, or run@step.", show_default=False
        ),
    ] = None,
    lift: Annotated[
        str | None,
        typer.Option(
            help="Take the quarantine of this checkpoint back, and of those that have it from this one.",
            show_default=False,
        ),
    ] = None,
    why: Annotated[
        str | None,
        typer.Option(help="The reason for --mark or --lift, which goes on record.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Mark the checkpoints saved at or after the first bad step, and what descends from them.

    The mark goes into the ledger and into the lineage.json beside each checkpoint; `lineage sync` shows it in the
    tracker.
    A resume from a marked one warns, and is a finding. With --dry-run, exit code 1 where something would be marked.
    """
    if mark and lift:
        raise CliError("--mark and --lift are two commands: give one of them")
    if mark or lift:
        _by_hand(run, str(mark or lift), why, lifting=lift is not None, dry_run=dry_run, as_json=as_json)
        return
    if why:
        raise CliError(
            "--why is the reason for --mark or --lift; the marks that follow from a first bad step have theirs"
        )
    subject = find(run)
    bads = judging.first_bads(subject)
    found = quarantine(subject.ledger.records, graph=subject.graph, bads=bads)
    due, done = found.unmarked, {}
    if not dry_run and due:
        journal = open_journal(subject, subject.tip)
        done = name_later(subject, journal, bads)
        journal.append(seal(heads(subject.ledger.path)[0], "incident"))
        journal.close()
    if as_json:
        emit(_data(found, due, done, dry_run=dry_run))
    else:
        _print(subject, found, due, done, dry_run=dry_run)
    raise ending(Exit.FOUND if dry_run and due else Exit.OK, judging.damage(subject), as_json=as_json)


def _by_hand(
    run: str | None, name: str, why: str | None, *, lifting: bool, dry_run: bool, as_json: bool
) -> None:
    if not why:
        raise CliError("a reason is needed, which goes on record: --why '...' (nothing was changed)")
    subject = find(run or name)
    found = quarantine(subject.ledger.records, graph=subject.graph, bads=judging.first_bads(subject))
    uid = _checkpoint(subject, found, name)
    if lifting:
        facts = _lifts(found, uid, why)
    else:
        facts = [schemas.CheckpointMark(checkpoint=uid, mark="quarantined", why=why, by="person")]
    beside_: dict[str, bool] = {}
    if not dry_run:
        journal = open_journal(subject, subject.tip)
        for fact in facts:
            journal.append(fact)
            node = subject.graph.nodes.get(fact.checkpoint)
            path = node.checkpoint.path if node else None
            beside_[fact.checkpoint] = path is not None and beside(Path(path), fact)
        journal.append(seal(heads(subject.ledger.path)[0], "incident"))
        journal.close()
    if as_json:
        emit({"marks": facts, "in_sidecar": beside_, "dry_run": dry_run})
        return
    word = (
        ("would be lifted" if dry_run else "lifted")
        if lifting
        else "would be marked"
        if dry_run
        else "marked"
    )
    for fact in facts:
        node = subject.graph.nodes.get(fact.checkpoint)
        step = f"of step {step_text(node.checkpoint.step)}" if node else "of another ledger"
        console.print(f"{word}: the checkpoint {step} ({fact.checkpoint})")
    if not dry_run:
        console.print("`lineage sync` shows it in the tracker")


def _checkpoint(subject: Subject, quarantined: Quarantine, name: str) -> str:
    """The uid of the checkpoint that is named within a ledger. Raises `CliError`."""
    nodes = subject.graph.nodes
    if name in nodes or name in quarantined.bad:
        return name
    path = str(Path(name).expanduser().absolute())
    at = [n.uid for n in nodes.values() if n.checkpoint.path == path]
    ends = [uid for uid in nodes if len(name) >= 8 and (uid.endswith(name) or uid.startswith(name))]
    found = at[-1:] or (ends if len(ends) == 1 else [])
    if not found and subject.checkpoint in nodes:
        found = [str(subject.checkpoint)]
    if not found:
        other = find(name).checkpoint
        found = [other] if other is not None and other in nodes else []
    if not found:
        raise CliError(
            f"{name} is no checkpoint of the ledger {subject.ledger.path}: name its uid, path, or run@step"
        )
    return found[0]


def _lifts(found: Quarantine, uid: str, why: str) -> list[schemas.CheckpointMark]:
    """The marks that take a quarantine back, of a checkpoint and of those that have theirs from it alone."""
    if uid not in found.bad:
        raise CliError(f"the checkpoint {uid} is not quarantined, so there is nothing to lift")
    own = found.bad[uid]
    if own.origin is not None:
        raise CliError(
            f"the checkpoint {uid} descends from a quarantined one: {own.why}. Lift {own.origin.checkpoint}, if that "
            "one is right; this one goes with it"
        )
    below = [q.checkpoint for q in found.bad.values() if q.origin is not None and q.origin.checkpoint == uid]
    return [
        schemas.CheckpointMark(checkpoint=c, mark="quarantine_lifted", why=why, by="person")
        for c in [uid, *below]
    ]


def _data(
    found: Quarantine, due: Sequence[Quarantined], done: Mapping[str, bool], *, dry_run: bool
) -> dict[str, Any]:
    new = {q.checkpoint for q in due}
    return {
        "dry_run": dry_run,
        "quarantined": [
            {
                "checkpoint": q.checkpoint,
                "step": q.node.checkpoint.step if q.node else None,
                "path": q.node.checkpoint.path if q.node else None,
                "why": q.why,
                "marked": q.checkpoint in done or (q.marked and q.checkpoint not in new),
                "new": q.checkpoint in new,
                "in_sidecar": done.get(q.checkpoint),
            }
            for q in found.bad.values()
        ],
        "lifted": [
            {"checkpoint": x.checkpoint, "why": x.why, "at": x.at.isoformat()} for x in found.lifted.values()
        ],
    }


def _print(
    subject: Subject,
    found: Quarantine,
    due: Sequence[Quarantined],
    done: Mapping[str, bool],
    *,
    dry_run: bool,
) -> None:
    if not found.bad:
        console.print("No checkpoint is quarantined: none was saved at or after a first bad step.")
    new, why = {q.checkpoint for q in due}, ""
    for q in sorted(
        found.bad.values(), key=lambda q: (q.node.checkpoint.step if q.node else -1, q.checkpoint)
    ):
        word = "marked before" if q.checkpoint not in new else "WOULD BE MARKED" if dry_run else "marked now"
        place = escape(_place(q))
        of = (
            f"step {step_text(q.node.checkpoint.step)} of segment {subject.graph.number(q.node.segment)}"
            if q.node
            else "of another ledger"
        )
        console.print(f"[bold]{word}[/]  {of}  {place}")
        if q.why != why:
            console.print(f"     {escape(q.why)}")
        why = q.why
    for lifted in found.lifted.values():
        console.print(f"lifted: {short(lifted.checkpoint)}: {escape(lifted.why)}")
    without = [c for c, there in done.items() if not there]
    if without:
        many = f"{len(without)} of them have" if len(without) > 1 else "one of them has"
        console.print(
            f"[yellow]{many} no lineage.json that could take the mark[/] ({', '.join(map(short, without[:4]))}): "
            "there the ledger alone warns"
        )
    if done:
        console.print("`lineage sync` shows the marks in the tracker")


def _place(q: Quarantined) -> str:
    """Where a checkpoint is. What lies at the path of one that was deleted or written over is another one."""
    if q.node is not None and q.node.deleted:
        return f"{short(q.checkpoint)}, whose files are gone"
    return (q.node.checkpoint.path if q.node else None) or short(q.checkpoint)
