"""`lineage demo`: the main job from end to end, on this machine, in about a minute."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from .._rooms import schemas
from . import judging
from .common import CliError, Exit, Json, Subject, console, emit, errors, status, step_text, table

NAME = "demo"


def command(
    seed: Annotated[int, typer.Option(help="Draws the fault: kind, rank and step.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder of the demo.")] = Path("lineage-demo"),
    fault: Annotated[
        bool, typer.Option(help="--no-fault: nothing strikes, and nothing must be found.")
    ] = True,
    tracker: Annotated[str, typer.Option(help="mlflow (SQLite in the demo's folder) or none.")] = "mlflow",
    as_json: Json = False,
) -> None:
    """Train a small GPT on two ranks, let a fault strike, recover twice, and say what may be concluded."""
    try:
        from ..demo import run
    except ImportError as e:
        raise CliError(
            f"the demo trains with torch, which is not installed: {e}. pip install 'runlineage[torch,mlflow]'"
        ) from None
    out = out.absolute()
    story = run.Story(out, tracker=_tracker(tracker, out), fault=run.choose(seed) if fault else None)
    try:
        run.prepare(out)
        data = _tell(run, story, quiet=as_json)
    except run.DemoError as e:
        raise CliError(str(e), Exit.CANNOT_TELL) from None
    if as_json:
        emit(data)
    if data["went_wrong"]:
        raise typer.Exit(Exit.FOUND)


def _tracker(name: str, out: Path) -> str:
    if name == "none":
        return "none"
    if name != "mlflow":
        raise CliError(f"--tracker takes mlflow or none; not {name!r}")
    try:
        import mlflow  # noqa: F401
    except ImportError:
        errors.print(
            "mlflow is not installed, so the demo runs without a tracker: pip install 'runlineage[mlflow]'",
            markup=False,
        )
        return "none"
    return f"sqlite:///{out}/mlflow.db"


def _tell(run: Any, story: Any, *, quiet: bool) -> dict[str, Any]:
    """Run the story and print it as it goes."""
    begun = time.monotonic()

    def say(text: str = "") -> None:
        if not quiet:
            console.print(text)

    def act(text: str, work: Any) -> None:
        if quiet:
            work()
            return
        with console.status(text):
            work()

    say(
        f"[bold]1[/] An unbroken reference: {story.steps} steps on {story.world} gloo ranks, "
        "a small GPT on the standard library's sources"
    )
    act("training the reference ...", lambda: run.reference(story))
    say(
        "[bold]2[/] The same training again"
        + (", and a fault will strike one rank" if story.fault else ", without a fault")
    )
    act("training ...", lambda: run.broken(story))
    pretrain = Subject(story.ledger(run.PRETRAIN))
    found = judging.first_bads(pretrain)
    if not found:
        say(
            "  no alarm, no bad cell: nothing was found"
            + (" [bold red]although a fault struck[/]" if story.fault else "")
        )
        where = _where(story, say)
        return {
            "fault": str(story.fault) if story.fault else None,
            "found": None,
            "went_wrong": story.fault is not None,
            **_took(begun, say),
            **where,
        }
    bad = next(iter(found.values()))
    assert bad.cell is not None
    say(
        f"  [bold red]found: rank {bad.cell.rank}, step {step_text(bad.cell.step)}[/]: {escape(bad.cell.text)}"
    )
    if story.fault:
        say(
            f"  [dim]struck: {story.fault.words} on rank {story.fault.rank} at step {story.fault.step} "
            "(the layer was not told)[/]"
        )
    node = pretrain.graph.nodes.get(bad.last_good_checkpoint or "")
    if node is None or node.checkpoint.path is None:
        raise run.DemoError("no checkpoint was complete before the first bad step")
    say(
        f"  last good checkpoint: step {step_text(node.checkpoint.step)}; before any restart, evidence is kept:"
    )
    kept, problems = _preserve(pretrain, bad)
    for p in kept:
        files = f"{p.files} file{'s' if p.files != 1 else ''}"
        say(f"    {p.what}: {files}, {p.bytes:,} bytes, copied and verified")
    say("[bold]3[/] Recovered faithfully from that checkpoint: everything restored, nothing changed")
    act("resuming ...", lambda: run.recover(story, node.checkpoint.path, faithful=True))
    equal = run.equal_weights(story, "reference", "faithful") and run.equal_losses(
        story, "reference", "faithful"
    )
    outcome = "equal the reference bit for bit" if equal else "[bold red]differ from the reference[/]"
    say(f"  losses and final weights {outcome}")
    say("[bold]4[/] Recovered from it once more, with four habits that people have under pressure")
    act("resuming ...", lambda: run.recover(story, node.checkpoint.path, faithful=False))
    return _conclude(run, story, bad, kept, problems, equal, begun, say)


def _preserve(subject: Subject, bad: schemas.FirstBad) -> tuple[list[schemas.Preserved], list[str]]:
    from .preserving import plan, preserve_all

    assert bad.cell is not None
    items = plan(subject, bad.cell.segment, bad)
    return preserve_all(subject, bad.cell.segment, bad, items)


def _conclude(
    run: Any, story: Any, bad: schemas.FirstBad, kept: Any, problems: Any, equal: bool, begun: float, say: Any
) -> dict[str, Any]:
    """Read the ledger again and say what changed, who may be compared with whom, and where to look."""
    from ..judge.drift import alters
    from .pairs import pair_verdict

    subject = Subject(story.ledger(run.PRETRAIN))
    reference = Subject(story.ledger(run.REFERENCE))
    segments = list(subject.graph.segments)
    faithful, habits = segments[1], segments[2]
    drift = next(r.payload for r in subject.ledger.of("drift", habits) if r.payload.moment == "resume")
    # What the live objects show; a key that only asked for one of these is part of it, not a fifth habit.
    found = [c for c in drift.changes if alters(c) and c.read_from is not None]
    declared = sum(c.mitigation is not None for c in found) or "none"
    say(f"  found: {len(found)} changes that alter what the run means, {declared} of them declared")
    for c in found:
        say(f"    - {escape(c.text)}")
    if drift.confounded:
        say("  [bold]confounded[/]: they came at one restart, so no effect can be traced to one of them")
    pairs = {
        "faithful": pair_verdict(_at(subject, faithful), reference),
        "habits": pair_verdict(_at(subject, habits), reference),
        "last_good": judging.verdict(Subject(subject.ledger, bad.last_good_checkpoint)),
    }
    say("\n[bold]Who may be compared with whom[/]")
    rows = table(
        "claim",
        "faithful recovery against the reference",
        "habits against the reference",
        "last good checkpoint against its run's start",
    )
    rows.columns[0].no_wrap = True
    for i, claim in enumerate(schemas.CLAIMS):
        rows.add_row(
            schemas.catalogue().claims[claim].title, *(status(v.claims[i].status) for v in pairs.values())
        )
    say(rows)
    where = _where(story, say)
    return {
        "fault": str(story.fault) if story.fault else None,
        "found": bad,
        "faithful_equals_reference": equal,
        "went_wrong": not equal or len(found) != len(run.HABITS),
        "changes": [c.concept for c in found],
        "confounded": drift.confounded,
        "preserved": kept,
        "problems": problems,
        "verdicts": pairs,
        **_took(begun, say),
        **where,
    }


def _at(subject: Subject, segment: str) -> Subject:
    """A run as it stands at the end of one of its branches."""
    return Subject(subject.ledger, segment=segment)


def _took(begun: float, say: Any) -> dict[str, float]:
    seconds = time.monotonic() - begun
    say(f"\n[dim]It took {seconds:.0f} seconds.[/]")
    return {"seconds": seconds}


def _where(story: Any, say: Any) -> dict[str, Any]:
    """Write the report, and say how to open it, the ledger and the tracker's page: commands that work from here."""
    subject = Subject(story.ledger("demo-pretrain"))
    ledger = subject.ledger.path
    out: dict[str, Any] = {"ledger": ledger}
    say("\n[bold]Where to look[/]")
    try:
        from .. import report

        out["report"] = report.write(subject.ledger, story.out / "report")
        say(f"  report   {out['report'][-1]}")
    except ImportError as e:
        say(f"  report   not written: {escape(str(e))}")
    say(f"  ledger   {_program('lineage')} show {_from_here(ledger)}")
    if subject.ledger.of("incident"):
        say(f"  incident {_program('lineage')} incident {_from_here(ledger)}")
        say("           its step is made again with --with lineage.demo.replay:build")
    if story.tracker != "none":
        alias = subject.ledger.of("run")[-1].payload.aliases[0]
        say(f"  tracker  {_program('mlflow')} ui --port 5000 --backend-store-uri {story.tracker}")
        say(f"           then open http://127.0.0.1:5000/#/experiments/{alias.project}/runs/{alias.id}")
        out["tracker"] = story.tracker
    return out


def _program(name: str) -> str:
    """How to call a program of this installation: by name where that finds it, else by its path."""
    own = Path(sys.executable).with_name(name)
    found = shutil.which(name)
    return name if (found and Path(found).resolve() == own.resolve()) or not own.exists() else _from_here(own)


def _from_here(path: Path) -> str:
    """A path as it is shortest to type in the working directory."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
