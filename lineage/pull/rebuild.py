"""From a run's pages to a ledger: journals byte for byte as the tracker has them, held against the anchors."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from .._rooms import trackers
from ..imports.into_ledger import run_id
from ..ledger import layout, pulled
from ..ledger.reader import Ledger
from ..ledger.verify import Verification, verify
from . import missing, place, values
from .chunks import Chunks
from .source import PullTrouble, Source


class AnchorsDiffer(PullTrouble):
    """What the tracker has now does not fit its anchors, or what was pulled before; nothing was written."""


@dataclass
class Done:
    """What a pull made."""

    ledger: Path
    run: str
    pages: list[trackers.Held]
    layer: bool
    """whether the layer was there; else the page's own values were read as far as they go"""
    verification: Verification
    changed: bool = True
    """False: everything was here already"""
    values: int = 0
    conflicts: list[str] = field(default_factory=list)
    """lines of which two pages have different ones"""
    notes: list[str] = field(default_factory=list)


def open_pages(sources: Sequence[Source]) -> tuple[list[trackers.Held], list[str]]:
    """Open what was named, and the further pages of the same run that can be seen from there.

    Raises `TrackerUnavailable` or `TrackerRefused` for a page that was named; of others it is said.
    """
    named = [trackers.open_held(s.kind, *s.arguments) for s in sources]
    pages = {p.source: p for p in named}
    notes: list[str] = []
    for page in named:
        try:
            for other in page.others():
                pages.setdefault(other.source, other)
        except (trackers.TrackerUnavailable, trackers.TrackerRefused) as e:
            notes.append(f"whether the run has further pages is not shown: {e}")
    return sorted(pages.values(), key=lambda p: p.source), notes


def fetch(pages: Sequence[trackers.Held]) -> Chunks:
    """Fetch the journal's chunks of all pages."""
    chunks = Chunks()
    for page in pages:
        with tempfile.TemporaryDirectory(prefix="lineage-pull-") as scratch:
            page.fetch(Path(scratch))
            chunks.add_folder(Path(scratch), [f.name for f in page.files()], page.source)
    return chunks


def rebuild(
    pages: Sequence[trackers.Held],
    chunks: Chunks,
    where: Callable[[str], Path],
    *,
    anchors: Sequence[str] = (),
    with_values: bool = True,
) -> Done:
    """Make the ledger, hold it against the anchors, and put it in its place.

    `where`: run id -> folder. Raises `AnchorsDiffer` where a good ledger that was pulled before would be replaced by
    one that does not fit, `PullTrouble` where there is nothing to rebuild or the folder is somebody else's.
    """
    lines = chunks.whole()
    run = _run(lines, pages)
    target = where(run)
    before = place.existing(target)
    if before is not None and before.run != run:
        raise PullTrouble(
            f"{target} was pulled of run {before.run}, and this is run {run}: name another --out"
        )
    if before is not None:
        chunks.add_ledger(target, before.lines)
        lines = chunks.whole()
    with place.workshop(target) as made:
        if before is not None:
            shutil.copytree(target, made, dirs_exist_ok=True, symlinks=True)
        _write(made, lines)
        logged = values.Written()
        if with_values:
            shutil.rmtree(layout.series_folder(made), ignore_errors=True)
            logged = values.write(made, pages)
        marker = marker_of(run, pages, {f: len(held) for f, held in lines.items()}, before, anchors)
        marker.missing = [
            *chunks.odd,
            *chunks.gaps(),
            *missing.of(Ledger(made), logged.count),
            *logged.missing,
        ]
        marker.values = logged.digest if with_values or before is None else before.values
        pulled.write(made, marker)
        found = verify(made)
        _judge(chunks, found, target if before is not None else None)
        same = before is not None and _same(before, marker)
        if not same:
            place.put(made, target)
    return Done(target, run, list(pages), True, found, not same, logged.count, chunks.conflicts)


def _run(lines: dict[str, list[bytes]], pages: Sequence[trackers.Held]) -> str:
    with tempfile.TemporaryDirectory(prefix="lineage-pull-") as scratch:
        _write(Path(scratch), lines)
        runs = sorted({r.run for r in Ledger(Path(scratch)).records})
    names = ", ".join(p.source for p in pages)
    if not runs:
        raise PullTrouble(f"no line of the journal on {names} can be read as a record. Nothing was written.")
    if len(runs) > 1:
        raise PullTrouble(f"{names} hold several runs: {', '.join(runs)}. Pull one after the other.")
    return runs[0]


def folder_name(run: str) -> str:
    """A run's id as the name of a folder: what a page says is not taken for a path."""
    return run_id(run) or "run"


def _write(ledger: Path, lines: dict[str, list[bytes]]) -> None:
    for file, held in lines.items():
        path = layout.journal_folder(ledger) / file
        layout.make_folder(path.parent)
        layout.write_durably(path, b"\n".join(held) + b"\n")


def marker_of(
    run: str,
    pages: Sequence[trackers.Held],
    lines: Mapping[str, int],
    before: pulled.Pulled | None,
    anchors: Sequence[str],
) -> pulled.Pulled:
    """Which pages were read now, and those that were read before."""
    read_at = datetime.now(UTC).isoformat(timespec="seconds")
    held = {p.source: p for p in (before.pages if before else [])}
    for page in pages:
        known = held[page.source].anchors if page.source in held else []
        roots = [*known, *(pulled.Root(root=a.root, place=a.place) for a in page.anchors())]
        roots = list(
            {r.root: r for r in roots}.values()
        )  # a root that stood there once must still be a seal's
        held[page.source] = pulled.Page(
            tracker=page.tracker, id=page.id, source=page.source, read_at=read_at, anchors=roots
        )
    if anchors:
        given = [pulled.Root(root=a, place="given by hand (--anchor)") for a in anchors]
        held["--anchor"] = pulled.Page(
            tracker="by hand", id="", source="--anchor", read_at=read_at, anchors=given
        )
    return pulled.Pulled(run=run, pages=list(held.values()), lines=dict(lines))


def _judge(chunks: Chunks, found: Verification, good: Path | None) -> None:
    """Refuse to replace what was pulled before, and fits its anchors, by what does not."""
    wrong = [
        *chunks.conflicts,
        *(f"{d.code} {d.title}: {d.text}" for d in found.damage if d.code != "LIN-J001"),
    ]
    if good is not None and wrong and (chunks.conflicts or verify(good).whole):
        said = "\n  ".join(wrong[:6])
        raise AnchorsDiffer(
            f"what the tracker has now does not fit its anchors, or what was pulled before:\n  {said}\n{good} was left "
            "as it is. Somebody changed the page or the journal after it was sealed: keep both, and ask who. "
            "--out NEWFOLDER writes what is there now beside it"
        )


def _same(before: pulled.Pulled, now: pulled.Pulled) -> bool:
    """Whether nothing but the time of reading is new."""
    roots = [(p.source, a.root) for p in before.pages for a in p.anchors]
    return (
        before.lines == now.lines
        and roots == [(p.source, a.root) for p in now.pages for a in p.anchors]
        and before.missing == now.missing
        and before.values == now.values
    )
