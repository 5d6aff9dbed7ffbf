"""`lineage sync`: bring a tracker's page up to date from the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from .._rooms import schemas, trackers
from ..ledger.reader import Ledger
from ..recorder.delivery import Delivered
from .common import CliError, Exit, Json, Run, console, emit, find

NAME = "sync"


def command(
    run: Run = None,
    uri: Annotated[
        str | None, typer.Option(help="Where the tracker is now, if not where the run recorded it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show in the tracker what it has not shown yet. Safe to repeat: nothing appears twice."""
    subject = find(run)
    aliases = {(a.tracker, a.id): a for r in subject.ledger.of("run") for a in r.payload.aliases}
    if not aliases:
        raise CliError("this run has no tracker run; its page is in the ledger's view/ folder")
    results = [sync(subject.ledger, alias, uri) for alias in aliases.values()]
    if as_json:
        emit(results)
    else:
        for r in results:
            console.print(
                f"{r['tracker']} run {escape(r['id'])}: {r['shown']} records shown, {r['already']} were there"
            )
            for problem in r["problems"]:
                console.print(f"  [bold red]{escape(problem)}[/]")
    raise typer.Exit(Exit.FOUND if any(r["problems"] for r in results) else Exit.OK)


def sync(ledger: Ledger, alias: schemas.TrackerAlias, uri: str | None = None) -> dict[str, Any]:
    """Show every record that is not noted as shown, in order, stopping where the tracker is unavailable."""
    tracker = _open(alias, uri)
    delivered = Delivered(ledger.path, alias)
    done = delivered.ids()
    page = trackers.Page(ledger.run, ledger=str(ledger.path))
    for s in ledger.segments:
        page.number(s.uid)
    shown, problems = 0, []
    for record in ledger.records:
        if record.id in done or isinstance(record.payload, schemas.Opaque):
            continue
        try:
            tracker.show(record, page)
            delivered.add(record.id)
            shown += 1
        except trackers.TrackerRefused as e:
            problems.append(f"refused: {record.kind} of step {record.step}: {e}")
        except trackers.TrackerUnavailable as e:
            problems.append(f"the tracker is not available: {e}. Run `lineage sync` again later.")
            break
    else:
        problems += _publish(ledger.path, tracker, delivered, done)
    _close(tracker)
    return {
        "tracker": alias.tracker,
        "id": alias.id,
        "shown": shown,
        "already": len(done),
        "problems": problems,
    }


def _publish(ledger: Path, tracker: trackers.Tracker, delivered: Delivered, done: set[str]) -> list[str]:
    """Put the journal's chunks and the report on the page, those that are not there yet."""
    chunks = ledger / "chunks"
    found = sorted(chunks.glob("*/*/*.jsonl"))
    files = [(p, f"journal/{p.relative_to(chunks).as_posix()}") for p in found]
    files += [(p, p.name) for p in sorted((ledger / "report").glob("report.*"))]
    for path, name in files:
        if f"file:{name}" in done:
            continue
        try:
            tracker.publish(path, name)
            delivered.add(f"file:{name}")
        except (trackers.TrackerRefused, trackers.TrackerUnavailable) as e:
            return [f"{name} could not be put on the page: {e}. Run `lineage sync` again later."]
    return []


def _open(alias: schemas.TrackerAlias, uri: str | None) -> trackers.Tracker:
    """Open the tracker run of an alias."""
    where = uri or alias.uri
    try:
        if alias.tracker == "mlflow":
            from mlflow import MlflowClient

            return trackers.adapter("mlflow", (MlflowClient(where), alias.id))
        if alias.tracker == "wandb":
            return _open_wandb(alias, where)
    except ImportError as e:
        raise CliError(
            f"{alias.tracker} is not installed here: {e}. pip install 'runlineage[{alias.tracker}]'"
        ) from None
    raise CliError(f"this version does not know the tracker {alias.tracker!r}")


def _open_wandb(alias: schemas.TrackerAlias, where: str | None) -> trackers.Tracker:
    """Resume the W&B run for writing; it must not be training at the same time."""
    import wandb

    kind, _, folder = (where or "").partition(":")
    if kind in ("offline", "disabled"):
        how = (
            f"send its log first, `wandb sync wandb/{folder}`, then name the server: "
            "`lineage sync --uri https://api.wandb.ai`"
            if kind == "offline"
            else "its page does not exist; the ledger has everything"
        )
        raise CliError(f"the W&B run {alias.id} was {kind}: {how}")
    entity, _, project = (alias.project or "").rpartition("/")
    settings = wandb.Settings(
        base_url=where or "https://api.wandb.ai",
        console="off",
        disable_git=True,
        save_code=False,
        silent=True,
        x_disable_meta=True,
        x_disable_stats=True,
    )
    run = wandb.init(
        id=alias.id,
        entity=entity or None,
        project=project or None,
        resume="must",
        mode="online",
        settings=settings,
    )
    return trackers.adapter("wandb", run, sole_writer=True)


def _close(tracker: trackers.Tracker) -> None:
    """Let go of the tracker; a W&B run was resumed only for this, so it is finished."""
    tracker.close()
    if tracker.kind == "wandb":
        import wandb

        if wandb.run is not None:
            wandb.run.finish()
