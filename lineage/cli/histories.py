"""`lineage histories`: judge logbooks without recording them, and score the judge where a person marked them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ..imports import ImportTrouble, into_ledger, read
from ..judge import placing, reported, scoring
from ..ledger.reader import open_ledger
from ..report import gather, histories
from .common import CliError, Exit, Json, console, emit, step_text, table

NAME = "histories"

HEAD = """# Public histories, judged

<!-- Made by `{command}`; not written by hand. -->

What this layer would have told the teams of public runs, had their logbooks been its records. Only the fields of an
entry are judged (run, step, date, concept, values, restart); prose and marks are not read. Nothing of these runs was
seen live: values are as reported, and no mitigation is shown to have been in effect.

"""

Files = Annotated[
    list[Path], typer.Argument(help="Logbooks: JSON, JSON lines, CSV or YAML; folders of JSON files.")
]


def command(
    files: Files,
    as_json: Json = False,
    every: Annotated[bool, typer.Option("--all", help="Also list entries that change nothing.")] = False,
    markdown: Annotated[
        Path | None,
        typer.Option(
            "--markdown", help="Write the page with phases and branches of each run.", show_default=False
        ),
    ] = None,
) -> None:
    """Say of each entry of a logbook whether it opens a new regime, and why; score against marks if there are any."""
    try:
        found = judge_files(files)
    except ImportTrouble as e:
        raise CliError(str(e)) from None
    has_marks = any(scoring.mark_of(m.entry)[0] for m in found)
    report = scoring.score([m for m in found if scoring.mark_of(m.entry)[0]]) if has_marks else None
    if markdown is not None:
        text = page(files, found, report)
        markdown.write_text(text, encoding="utf-8")
        console.print(f"written: {escape(str(markdown))}")
    elif as_json:
        emit({"entries": [_row(m) for m in found], "score": _score(report)})
    else:
        _show(found, every)
        if report:
            show_score(report)
    raise typer.Exit(Exit.FOUND if any(m.judgement.regime_change == "yes" for m in found) else Exit.OK)


def judge_files(files: list[Path]) -> list[scoring.Marked]:
    """Judge every run of every file. Raises `ImportTrouble` for a file that cannot be read."""
    out = []
    for path in _paths(files):
        for book in read(path):
            entries = placing.place(book.entries)
            judged = reported.judge(entries)
            out += [
                scoring.Marked(book.run, e, j, scoring.mark_of(e)[1])
                for e, j in zip(entries, judged, strict=True)
            ]
    return out


def _paths(files: list[Path]) -> list[Path]:
    return [p for f in files for p in (sorted(f.glob("*.json")) if f.is_dir() else [f])]


def page(files: list[Path], found: list[scoring.Marked], report: scoring.Report | None) -> str:
    """The page of all runs: each is imported into a ledger of its own, which is left nowhere."""
    with tempfile.TemporaryDirectory() as folder:
        facts = {
            book.run: gather(open_ledger(into_ledger(book, Path(folder))))
            for path in _paths(files)
            for book in read(path)
        }
    names = " ".join(f.as_posix() for f in files)
    head = HEAD.format(command=f"lineage histories {names} --markdown PAGE")
    return head + histories.render(found, facts, report)


def _row(m: scoring.Marked) -> dict[str, Any]:
    answer = {"yes": True, "no": False, "cannot_tell": None}[m.judgement.regime_change]
    row: dict[str, Any] = {
        "run": m.run,
        "order": m.entry.order,
        "step": m.entry.step,
        "date": m.entry.date,
        "placed_at": m.entry.placed_at,
        "placed_by": m.entry.placed_by,
        "concept": m.entry.concept,
        "regime_change": answer,
        "concepts": m.judgement.concepts,
        "class": m.judgement.cls,
        "rule": m.judgement.rule,
        "reason": m.judgement.reason,
        "effects": m.judgement.effects,
        "problems": m.entry.problems,
    }
    marked, mark = scoring.mark_of(m.entry)
    return row | ({"mark": mark} if marked else {})


def _score(report: scoring.Report | None) -> dict[str, Any] | None:
    if report is None:
        return None
    return {
        "scores": [
            {
                "name": s.name,
                "precision": s.precision,
                "recall": s.recall,
                "hits": s.hits,
                "false_alarms": s.false_alarms,
                "misses": s.misses,
                "rightly_silent": s.rightly_silent,
            }
            for s in report.scores
        ],
        "disagreements": [_row(m) for m in report.disagreements],
        "cannot_tell": [_row(m) for m in report.undecided_by_judge],
        "undecidable": [_row(m) for m in report.undecidable],
    }


ANSWER = {"yes": "[bold red]new regime[/]", "no": "no change", "cannot_tell": "[cyan]cannot tell[/]"}


def _show(found: list[scoring.Marked], every: bool) -> None:
    for run in dict.fromkeys(m.run for m in found):
        own = [m for m in found if m.run == run]
        rows = table("step", "date", "concept", "judgement", "why", title=f"[bold]{escape(run)}[/]")
        for m in own:
            if every or m.judgement.regime_change != "no":
                at = step_text(m.entry.step if m.entry.step is not None else m.entry.restart_from)
                why = "; ".join([m.judgement.reason, *(f"odd: {p}" for p in m.entry.problems)])
                rows.add_row(
                    at,
                    m.entry.date or "-",
                    escape(m.entry.concept),
                    ANSWER[m.judgement.regime_change],
                    escape(why),
                )
        console.print(rows)
        silent = sum(m.judgement.regime_change == "no" for m in own)
        if silent and not every:
            console.print(
                f"  {silent} of {len(own)} entries change nothing that results depend on (--all lists them)"
            )
        console.print()


def show_score(report: scoring.Report) -> None:
    """Print precision and recall beside the baselines, and each entry on which judge and person differ."""
    rows = table("rule", "precision", "recall", "right", "false alarms", "missed")
    for s in report.scores:
        rows.add_row(
            s.name, _share(s.precision), _share(s.recall), str(s.hits), str(s.false_alarms), str(s.misses)
        )
    console.print("[bold]Against the marks of a person[/]")
    console.print(rows)
    for title, group in (
        ("judged otherwise than marked", report.disagreements),
        ("marked, but cannot be told from the fields", report.undecided_by_judge),
        ("undecidable to the person too", report.undecidable),
    ):
        console.print(f"[bold]{title}[/]: {len(group)}")
        for m in group:
            mark = {True: "changed", False: "not changed", None: "undecidable"}[m.mark]
            console.print(
                f"  {escape(m.run)}, entry {m.entry.order + 1} ({escape(m.entry.concept)}): marked {mark}; "
                f"{escape(m.judgement.rule)}: {escape(m.judgement.reason)}"
            )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
