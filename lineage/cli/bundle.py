"""`lineage bundle`: what the evidence of a bad step holds, and whether it is as it was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from .._rooms import schemas
from ..bundle import MANIFEST, around, reading, verifying
from ..ledger.reader import open_ledger
from .common import CliError, Exit, Json, console, emit, find, short, step_text, table

BATCHES = "batches/"
"""Its files are not named one by one: what is in them stands by step."""

app = typer.Typer(
    name="bundle",
    help="The evidence of a bad step: what is in it, and whether it is whole.",
    no_args_is_help=True,
)

Place = Annotated[
    str | None,
    typer.Argument(
        help="A bundle's folder, a folder that holds bundles (of a ledger, a segment, the evidence store), or a run. "
        "The latest run by default.",
        show_default=False,
    ),
]


@app.callback()
def _group() -> None:
    """Hold the commands for bundles."""


def folder_of(name: str | None) -> Path:
    """The folder that was named, or the ledger of the run. Raises `CliError`."""
    if name is not None and Path(name).expanduser().is_dir():
        return Path(name).expanduser()
    return find(name).ledger.path


@app.command("show")
def show(place: Place = None, as_json: Json = False) -> None:
    """Say what a bundle holds and what it does not; of a run or a folder, list the bundles."""
    path = folder_of(place)
    try:
        one = reading.Bundle(path) if (path / MANIFEST).is_file() else None
    except reading.BundleError as e:
        raise CliError(str(e), Exit.DAMAGED) from None
    if one is not None:
        emit({"root": one.root, "manifest": one.manifest}) if as_json else _show(one)
        return
    found = reading.within(path)
    if as_json:
        emit([{"path": b.path, "root": b.root, "manifest": b.manifest} for b in found])
        return
    _unread(path, found)
    if not found:
        console.print(
            f"No bundle that can be read in {path}. The training process writes one at the onset of an alarm."
        )
        return
    rows = table("step", "rank", "segment", "alarm", "micro-batches", "weights", "bytes")
    for b in found:
        m = b.manifest
        kept = sum(x.kept for s in m.steps if s.step == m.step for x in s.batches)
        size = f"{_size(b):,}"
        state = "yes" if m.state is not None else "no"
        rows.add_row(
            step_text(m.step),
            str(m.rank),
            short(m.segment),
            escape(m.alarm.text),
            str(kept),
            state,
            size,
        )
    console.print(rows)
    for b in found:  # in one line each: it is what other commands are given
        console.print(
            f"step {step_text(b.step)}, rank {b.manifest.rank}: {escape(str(b.path))}", soft_wrap=True
        )


def _unread(path: Path, found: list[reading.Bundle]) -> None:
    """Say which bundles are there and are not listed: evidence that is damaged is not passed over."""
    read = {b.path for b in found}
    for p in bundle_folders(path):
        if p in read:
            continue
        c = verifying.verify(p)
        for text in [*c.wrong, *c.partial]:
            console.print(f"[bold red]not listed:[/] {escape(str(p))}: {escape(text)}")


def bundle_folders(path: Path) -> list[Path]:
    """All bundles below a folder, also those that were never finished and those whose manifest is damaged."""
    return [p for p in sorted(path.rglob("*rank*-step*")) if p.is_dir()]


def _show(b: reading.Bundle) -> None:
    m = b.manifest
    console.print(
        f"[bold]rank {m.rank}, step {step_text(m.step)}:[/] {escape(m.alarm.text)} ({m.alarm.code})"
    )
    console.print(
        f"run {m.run}, segment {short(m.segment)}, {m.world_size} ranks, taken after {step_text(m.done)} updates"
    )
    console.print(f"{b.root}")
    console.print(
        f"{len(m.files) + 1} files, {_size(b):,} bytes of at most {m.limit:,} (setting bundle_bytes)"
    )
    _steps(m)
    if m.state is not None:
        after = m.state.updates_after
        console.print(
            "  weights and optimizer state that the step began with"
            + (f"; at most {after} updates were made after it" if after else "")
        )
    checkpoints = dict(_checkpoints(b))
    for what, text in checkpoints.items():
        console.print(f"  {what}: {text}")
    for name, what in m.contents.items():
        if not name.startswith(BATCHES):
            console.print(f"  {name}: {escape(what)}")
    if many := sum(name.startswith(BATCHES) for name in m.contents):
        console.print(f"  {BATCHES}: these micro-batches, {many} files")
    for what, why in m.left_out.items():
        console.print(f"[bold yellow]left out:[/] {escape(what)}: {escape(why)}")
    for what, why in m.absent.items():
        if what in checkpoints:  # it is on record by now
            continue
        console.print(f"not there: {escape(what)}: {escape(why)}")
    if m.alarm.abnormal == "differs":
        console.print(
            f"\n[bold]lineage ranks {escape(m.run)}[/] holds the ranks against each other; no single step of one rank "
            "shows again that they differ"
        )
    elif m.step in b.steps():
        console.print(
            f"\n[bold]lineage replay {escape(str(b.path))} --with your_module:build[/] makes the step again"
        )
    else:
        console.print("\nThe step cannot be made again from it: not all of its batches are in it.")


def _checkpoints(b: reading.Bundle) -> Iterator[tuple[str, str]]:
    """(which, in words) of the checkpoints on both sides of the step, by the bundle and by its ledger as it is now.

    A bundle is written once, at the alarm. The first bad checkpoint is saved after that; that the last good one is
    whole, where it went and whether it is preserved is on record in the ledger.
    """
    m = b.manifest
    records = open_ledger(b.ledger).records if b.ledger is not None else ()
    last, first = around.checkpoints([r for r in records if r.segment == m.segment], m.step, None)
    marked = [r.payload for r in records if r.kind == "checkpoint_mark" and r.payload.mark == "preserved"]
    preserved = {p.checkpoint for p in marked}
    for what, then, now in (("last good", m.last_good, last), ("first bad", m.first_bad, first)):
        ck = now if then is None or (now is not None and now.uid == then.uid) else then
        if ck is None:
            continue
        since = ", on record since the alarm" if then is None else ""
        text = f"step {step_text(ck.step)}, {escape(str(ck.path))} ({short(ck.uid)}){since}"
        if b.ledger is not None:
            todo = f"not preserved: lineage incident preserve {escape(m.run)}"
            text += "; preserved" if ck.uid in preserved else f"; {todo}"
        yield f"{what} checkpoint", text


def _size(b: reading.Bundle) -> int:
    """Bytes of a bundle, its manifest among them."""
    return sum(f.size for f in b.manifest.files) + (b.path / MANIFEST).stat().st_size


def _steps(m: schemas.BundleManifest) -> None:
    """Steps whose batches are in it: the bad one by itself, earlier ones of a kind together."""
    alike: list[tuple[str, list[int]]] = []
    for s in m.steps:
        kept, rng = sum(x.kept for x in s.batches), sum(x.rng for x in s.batches)
        text = f"{kept} of {len(s.batches)} micro-batches, random states before {rng}"
        if alike and alike[-1][0] == text and alike[-1][1][-1] == s.step - 1 and s.step != m.step:
            alike[-1][1].append(s.step)
        else:
            alike.append((text, [s.step]))
    for text, steps in alike:
        first, last = step_text(steps[0]), step_text(steps[-1])
        named = f"step {first}: {text}" if first == last else f"steps {first} to {last}: {text}, each"
        console.print(f"  {named}")
    for x in (x for s in m.steps for x in s.batches if x.same is False):
        console.print(f"    [bold red]micro-batch {x.micro} is not as it was fed:[/] the loop wrote into it")


@app.command("verify")
def verify(place: Place = None, as_json: Json = False) -> None:
    """Digest every file of a bundle again, or of all bundles in a folder or a run."""
    path = folder_of(place)
    single = (path / MANIFEST).is_file() or path.name.startswith(".rank")
    paths = [path] if single else bundle_folders(path)
    if not paths:
        raise CliError(
            f"no bundle in {path}; `lineage bundle show RUN` lists those of a run", Exit.CANNOT_TELL
        )
    found = [verifying.verify(p) for p in paths]
    if as_json:
        emit([{"path": c.path, "whole": c.whole, "wrong": c.wrong, "partial": c.partial} for c in found])
    else:
        for c in found:
            _verified(c)
    raise typer.Exit(Exit.DAMAGED if any(c.wrong for c in found) else Exit.OK)


def _verified(c: verifying.Checked) -> None:
    word = (
        "[green]whole[/]"
        if c.whole and not c.partial
        else "[bold red]DAMAGED[/]"
        if c.wrong
        else "[yellow]partial[/]"
    )
    console.print(f"{word} {escape(str(c.path))}: {c.files} files, {c.bytes:,} bytes")
    for text in c.wrong:
        console.print(f"  [bold red]{escape(text)}[/]")
    for text in c.partial:
        console.print(f"  left out: {escape(text)}")
