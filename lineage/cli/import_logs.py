"""The part of `lineage import` that reads training logs: which sources are logs, and what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.markup import escape

from ..imports.logs import Import, ImportTrouble, import_logs, is_log, refused, what_else
from ..imports.read import readable
from ..ledger.reader import Ledger
from .common import CliError, console, step_text

SHOWN = 12


def divide(sources: list[Path], format_: str) -> list[Path]:
    """The sources that are logs: all of them, or none.

    Raises `CliError` for a mixture, and `ImportTrouble` for a file that is neither a log nor may be a logbook.
    """
    if format_ == "log":
        return sources
    logs: list[Path] = []
    for path in sources:
        if is_log(path):
            logs.append(path)
        elif (why := what_else(path)) is not None:
            raise ImportTrouble(f"{path}: {why}")
        elif not readable(path):
            raise ImportTrouble(f"{path}: {refused.without_step(path)}")
    if logs and len(logs) < len(sources):
        other = next(p for p in sources if p not in logs)
        raise CliError(
            f"{logs[0]} is a training log and {other} is a logbook: each makes a ledger of its own. Import them one "
            "after the other, under two names (--run)."
        )
    return logs


def imported(logs: list[Path], run: str | None, where: Path) -> dict[str, Any]:
    """Read the logs of one run into a ledger, and say what they hold."""
    if run is None and len(logs) > 1:
        raise CliError("several logs are read as one run: name it with --run, or import them one by one")
    return summary(import_logs(logs, run or _name(logs[0]), where))


def _name(path: Path) -> str:
    """A run's name by its file's, or by its folder's where all such files have one name."""
    stem = path.name.split(".")[0]
    return (
        path.absolute().parent.name or stem if stem in ("events", "trainer_state", "stdout", "log") else stem
    )


def summary(done: Import) -> dict[str, Any]:
    """What an import made, as data."""
    ledger = Ledger(done.ledger)
    coverage = {r.segment: r.payload for r in ledger.of("coverage")}
    return {
        "run": done.name,
        "ledger": str(done.ledger),
        "rows": done.rows,
        "files": {s.name: {"format": s.format.name, "rows": s.told.recognised} for s in done.sources},
        "signals": dict(done.meaning.keys),
        "segments": [
            {
                "number": p.number + 1,
                "start": p.start,
                "from_step": p.from_step,
                "steps": [p.first, p.last] if p.first is not None else [],
                "ranks": sorted(p.spacing),
                "gaps": coverage[p.uid].gaps,
            }
            for p in done.cutter.parts
        ],
        "findings": [f"{r.payload.code} {r.payload.subject}: {r.payload.text}" for r in ledger.of("finding")],
        "alarms": [
            f"step {r.step:,}: {r.payload.text}"
            for r in sorted(ledger.of("alarm"), key=lambda r: r.step or 0)
        ],
        "problems": [f"{s.name}: {text}" for s in done.sources if s.told.torn for text in s.told.gaps],
    }


def show(done: dict[str, Any]) -> None:
    """Say it for a person."""
    kinds = ", ".join(dict.fromkeys(f["format"] for f in done["files"].values()))
    console.print(
        f"[bold]{escape(done['run'])}[/]: {done['rows']:,} rows of {kinds} -> {escape(done['ledger'])}"
    )
    for s in done["segments"]:
        steps = "-".join(step_text(x) for x in s["steps"]) or "none"
        came = f" from step {step_text(s['from_step'])}" if s["from_step"] is not None else ""
        ranks = f", {len(s['ranks'])} ranks" if len(s["ranks"]) > 1 else ""
        console.print(f"  segment {s['number']}: {s['start']}{came}, steps {steps}{ranks}")
    for text in done["findings"][:SHOWN]:
        console.print(f"  [yellow]odd:[/] {escape(text)}")
    for text in done["alarms"][:SHOWN]:
        console.print(f"  [red]bad:[/] {escape(text)}")
    gaps = list(dict.fromkeys(g for s in done["segments"] for g in s["gaps"]))
    for gap in gaps[:SHOWN]:
        console.print(f"  [dim]note: {escape(gap)}[/]")
    if len(gaps) > SHOWN:
        console.print(f"  ... and {len(gaps) - SHOWN} more (--json lists them)")
    ledger = escape(done["ledger"])
    console.print(f"  next: lineage first-bad {ledger}, lineage check {ledger}")
