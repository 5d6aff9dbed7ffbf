"""`lineage audit`: how a run was kept and handled, rule by rule, with records and remedies."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
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
    ledger is damaged, 4 where there is no segment to judge.
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
    found, open_ = pulled.judged(audit(gathered), pulled=asked.marker is not None)
    if as_json:
        emit(_data(asked, found))
    else:
        _show(subject, found, every)
        _show_pulled(asked, open_)
    return ending(code_of(found, fail_on), gathered.damage, as_json=as_json)


def code_of(found: Sequence[AuditFinding], fail_on: str) -> int:
    """The exit code: whether anything is at or above a severity."""
    limit = schemas.severity_place(fail_on)
    return Exit.FOUND if any(schemas.severity_place(f.severity) <= limit for f in found) else Exit.OK


def _data(asked: _Asked, found: Sequence[AuditFinding]) -> dict[str, Any]:
    counts = Counter(f.severity for f in found)
    subject, marker = asked.subject, asked.marker
    from_tracker: dict[str, Any] = {}
    if marker is not None:
        told = {"pages": marker.pages, "notes": marker.notes, "missing": marker.missing, "said": asked.said}
        from_tracker = {"pulled": told, "not_judged": dict(pulled.NOT_FROM_A_TRACKER)}
    return {
        **from_tracker,
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
                {"code": r.code, "rule": r.name, "severity": r.severity, "says": r.says, "remedy": r.remedy}
                for r in RULES
            ]
        )
        return
    for r in RULES:
        console.print(
            f"[bold]{r.code}[/] {r.name} [{STYLE.get(r.severity, 'red')}]{r.severity}[/]\n  {escape(r.says)}"
        )
