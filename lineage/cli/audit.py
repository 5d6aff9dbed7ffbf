"""`lineage audit`: how a run was kept and handled, rule by rule, with records and remedies."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.markup import escape

from .._rooms import schemas
from ..judge.audit import RULES, AuditFinding, audit
from ..judge.audit.rules import Severity
from ..ledger import audited, pulled
from ..ledger.reader import open_ledger
from ..pull.source import is_source
from .check import STYLE
from .common import CliError, Exit, Json, Subject, console, emit, ending, find, step_text

NAME = "audit"
LEVELS: tuple[str, ...] = get_args(Severity)
VANISHED = "LIN-U020"
FEW = 3
"""Findings of one code that are shown without `--all`."""
Audited = Annotated[
    str | None,
    typer.Argument(
        help="A run (ledger folder, id or name), nothing for the latest run, or a run's page in its tracker, as "
        "`lineage pull` takes it: mlflow://TRACKING-URI/RUN-ID, wandb://ENTITY/PROJECT/RUN, offline-run-*, a download.",
        show_default=False,
    ),
]


@dataclass
class _Asked:
    """What is audited."""

    subject: Subject
    name: str
    """what the run is called in a command"""
    marker: pulled.Pulled | None = None
    said: list[str] = field(default_factory=list)


def command(
    run: Audited = None,
    fail_on: Annotated[
        str, typer.Option("--fail-on", help="Exit with 1 from this severity on: fault, warning or note.")
    ] = "fault",
    every: Annotated[
        bool, typer.Option("--all", help="Every finding, with the records that it rests on.")
    ] = False,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules, and judge nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Audit a run: bad habits, undeclared changes, evidence that is gone, and whether the record can be trusted.

    What other checks find (series, ranks, resumes, checkpoints, incidents) is listed with it, under their own codes. It
    works on any machine that sees the ledger. Exit code 1 where something is found at or above `--fail-on`, 3 where the
    ledger is damaged, 4 where there is no segment to judge, or where a pulled journal is not all there and nothing is
    found.
    """
    if fail_on not in LEVELS:
        raise CliError(f"--fail-on takes {', '.join(LEVELS)}; not {fail_on!r}")
    if rules:
        _list_rules(as_json)
        return
    with _asked(run) as asked:
        raise _audit(asked, fail_on, every, as_json)


@contextmanager
def _asked(run: str | None) -> Iterator[_Asked]:
    """The ledger that is meant; a page in a tracker is pulled into a folder that is gone afterwards."""
    if run is None or not is_source(run):
        subject = find(run)
        yield _Asked(subject, str(subject.ledger.path), _marker(subject.ledger.path))
        return
    from .pull import pulled as pull_

    with tempfile.TemporaryDirectory(prefix="lineage-audit-") as scratch:
        done = pull_([run], Path(scratch))
        said = [
            f"pulled from {', '.join(p.source for p in done.pages)} into a folder that is gone when this ends; "
            f"`lineage pull {run}` keeps one (FOLDER below)",
            *(() if done.layer else ("the layer was not there: this is what the page tells",)),
            *done.notes,
            *(f"contradiction: {c}" for c in done.conflicts),
        ]
        yield _Asked(Subject(open_ledger(done.ledger)), "FOLDER", _marker(done.ledger), said)


def _marker(ledger: Path) -> pulled.Pulled | None:
    try:
        return pulled.read(ledger)
    except pulled.MarkerDamaged:
        return None  # `verify` names it


def _audit(asked: _Asked, fail_on: str, every: bool, as_json: bool) -> typer.Exit:
    subject = asked.subject
    if not subject.ledger.segments:
        raise CliError(
            f"{subject.ledger.path} holds no segment, so there is nothing to audit", Exit.CANNOT_TELL
        )
    gathered = audited.gather(subject.ledger, subject.graph, subject.cells, asked.name)
    partial = bool(gathered.unread)
    found, open_ = pulled.judged(audit(gathered), pulled=asked.marker is not None, partial=partial)
    if as_json:
        emit({**_data(asked, found, gathered.unread), "unread": gathered.unread})
    else:
        _show(subject, found, every)
        if partial:
            _show_partial(gathered.unread, open_)
        if unseen := _unseen(subject):
            console.print(
                f"\nnot judged: [bold]{VANISHED}[/] {escape(schemas.CODES[VANISHED])}: {escape(unseen)}"
            )
        _show_pulled(asked, open_)
    code = code_of(found, fail_on)
    if partial and code == Exit.OK:
        code = Exit.CANNOT_TELL
    return ending(code, gathered.damage, as_json=as_json)


def _show_partial(unread: Mapping[str, int], open_: Sequence[AuditFinding]) -> None:
    """That lines are not there, and which rules cannot be judged for it."""
    console.print(
        f"\n[yellow]not all there[/]: lines of {len(unread):,} journal{'s' if len(unread) != 1 else ''} are missing "
        f"({escape(', '.join(f'{name} is named up to line {n:,}' for name, n in list(unread.items())[:3]))})"
    )
    asked_of = {f.code for f in open_}
    hint = " (something was found, and may be due to that)"
    told = [f"{c}{hint if c in asked_of else ''}" for c in pulled.NOT_FROM_A_PART]
    console.print(f"  not judged: {escape(', '.join(told))}: {next(iter(pulled.NOT_FROM_A_PART.values()))}")


def _unseen(subject: Subject) -> str:
    """Why nothing is said of checkpoints that are not on this machine; empty where there is none."""
    n = audited.not_looked_at(subject.graph)
    what = f"{n:,} checkpoint{'s' if n != 1 else ''}"
    return (
        f"the folders of {what} are not on this machine, so whether they are still there is not known"
        if n
        else ""
    )


def code_of(found: Sequence[AuditFinding], fail_on: str) -> int:
    """The exit code: whether anything is at or above a severity."""
    limit = schemas.severity_place(fail_on)
    return Exit.FOUND if any(schemas.severity_place(f.severity) <= limit for f in found) else Exit.OK


def _data(asked: _Asked, found: Sequence[AuditFinding], unread: Mapping[str, int]) -> dict[str, Any]:
    counts = Counter(f.severity for f in found)
    subject, marker = asked.subject, asked.marker
    from_tracker: dict[str, Any] = {}
    not_judged: dict[str, str] = {}
    if marker is not None:
        told = {"pages": marker.pages, "notes": marker.notes, "missing": marker.missing, "said": asked.said}
        from_tracker = {"pulled": told}
        not_judged = dict(pulled.NOT_FROM_A_TRACKER)
    if unread:
        not_judged |= pulled.NOT_FROM_A_PART
    if unseen := _unseen(subject):
        not_judged[VANISHED] = unseen
    return {
        **from_tracker,
        "not_judged": not_judged,
        "run": subject.ledger.run,
        "ledger": subject.ledger.path,
        "counts": {level: counts[level] for level in LEVELS},
        "findings": [{**asdict(f), "page": schemas.page(f.code)} for f in found],
        "rules": [r.code for r in RULES],
    }


def _show(subject: Subject, found: Sequence[AuditFinding], every: bool) -> None:
    counts = Counter(f.severity for f in found)
    said = (
        ", ".join(f"{counts[x]} {x}{'s' if counts[x] != 1 else ''}" for x in LEVELS)
        if found
        else "nothing found"
    )
    console.print(
        f"[bold]Audit of {escape(subject.ledger.run)}[/]: {said}; {len(RULES)} rules, and what other checks found"
    )
    by_code: dict[tuple[str, str], list[AuditFinding]] = {}
    for f in found:
        by_code.setdefault((f.severity, f.code), []).append(f)
    for (severity, code), same in by_code.items():
        console.print(
            f"\n[{STYLE.get(severity, 'red')}]{severity}[/] [bold]{code}[/] {escape(same[0].title)}"
        )
        for f in same if every else same[:FEW]:
            console.print(f"  {escape(_where(f) + f.text)}")
            if every and f.records:
                console.print(f"    [dim]{escape(', '.join(f.records))}[/]")
        if not every and len(same) > FEW:
            console.print(f"  and {len(same) - FEW} more: --all")
        if same[0].remedy:
            console.print(f"  [dim]next: {escape(same[0].remedy)}[/]")


def _show_pulled(asked: _Asked, open_: Sequence[AuditFinding]) -> None:
    """What an audit from the tracker alone rests on, and what it cannot say."""
    if asked.marker is None:
        return
    console.print("\n[bold]From the tracker alone[/]")
    for text in [*asked.said, *asked.marker.notes, *(f"missing: {m}" for m in asked.marker.missing)]:
        console.print(f"  {escape(text)}")
    asked_of = {f.code for f in open_}
    for code, why in pulled.NOT_FROM_A_TRACKER.items():
        hint = "; where the run trained, `lineage audit` may find something" if code in asked_of else ""
        console.print(f"  not judged: [bold]{code}[/] {escape(schemas.CODES[code])}: {why}{hint}")


def _where(f: AuditFinding) -> str:
    if not f.segment:
        return ""
    step = f", step {step_text(f.step)}" if f.step is not None else ""
    return f"segment {f.segment}{step}: "


def _list_rules(as_json: bool) -> None:
    if as_json:
        emit(
            [
                {
                    "code": r.code,
                    "rule": r.name,
                    "severity": r.severity,
                    "says": r.says,
                    "remedy": r.remedy.format(run="RUN"),
                }
                for r in RULES
            ]
        )
        return
    for r in RULES:
        console.print(
            f"[bold]{r.code}[/] {r.name} [{STYLE.get(r.severity, 'red')}]{r.severity}[/]\n  {escape(r.says)}\n"
            f"  [dim]next: {escape(r.remedy.format(run='RUN'))}[/]"
        )
