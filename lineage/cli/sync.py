"""`lineage sync`: bring a tracker's page up to date from the ledger."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from rich.markup import escape

from .._rooms import schemas, trackers
from ..capture.pseudonym import node
from ..judge import branches, graph
from ..ledger import layout, scan
from ..ledger.journal import Journal
from ..ledger.reader import Ledger
from ..recorder import on_page
from ..recorder.delivery import Busy, Delivered, file_note, key
from .common import CliError, Exit, Json, Run, console, damage, emit, ending, find
from .opening import Gone, close, open_tracker

NAME = "sync"


def command(
    run: Run = None,
    uri: Annotated[
        str | None, typer.Option(help="Where the tracker is now, if not where the run recorded it.")
    ] = None,
    tracker: Annotated[str | None, typer.Option(help="Only this tracker's page: wandb or mlflow.")] = None,
    as_json: Json = False,
) -> None:
    """Show in the tracker what it has not shown yet. Safe to repeat: nothing appears twice."""
    subject = find(run)
    found = pages(subject.ledger, uri, tracker)
    if uri and len({aliases[0].tracker for aliases in found}) > 1:
        raise CliError("this run has pages in several trackers; say with --tracker which one --uri names")
    results, gone = [], []
    for aliases in found:
        try:
            results.append(sync(subject.ledger, *aliases, uri=uri))
        except Gone as e:
            gone.append(e)
            results.append(Synced(aliases[0], problems=[str(e)]))
        except OSError as e:
            raise CliError(f"the ledger cannot be written, so what is shown cannot be noted: {e}") from None
    if len(gone) == len(results):
        raise CliError("\n".join(map(str, gone)))
    emit([r.plain() for r in results]) if as_json else _print(results)
    code = Exit.FOUND if any(r.problems for r in results) else Exit.OK
    raise ending(code, damage(subject.ledger), as_json=as_json)


def pages(ledger: Ledger, uri: str | None, tracker: str | None) -> list[list[schemas.TrackerAlias]]:
    """The run's pages, each with the aliases that are on it.

    Every offline segment of a W&B run has a log of its own, so an alias and notes of its own; where `uri` names
    the server to which the logs went, those of one run id are one page.
    """
    aliases = {key(a): a for r in ledger.of("run") for a in r.payload.aliases}
    if not aliases:
        raise CliError("this run has no tracker run; its page is in the ledger's view/ folder")
    chosen = [a for a in aliases.values() if tracker in (None, a.tracker)]
    if not chosen:
        there = ", ".join(sorted({a.tracker for a in aliases.values()}))
        raise CliError(f"this run has no page in {tracker!r}; it has one in {there}")
    out: dict[tuple[str, ...], list[schemas.TrackerAlias]] = {}
    for a in chosen:
        out.setdefault((a.tracker, a.id) if uri else key(a), []).append(a)
    return list(out.values())


@dataclass
class Synced:
    """What became of one page."""

    alias: schemas.TrackerAlias
    shown: int = 0
    already: int = 0
    anchor: schemas.Anchor | None = None
    problems: list[str] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "tracker": self.alias.tracker,
            "id": self.alias.id,
            "uri": self.alias.uri,
            "shown": self.shown,
            "already": self.already,
            "anchor": self.anchor,
            "problems": self.problems,
        }


def sync(ledger: Ledger, *aliases: schemas.TrackerAlias, uri: str | None = None) -> Synced:
    """Show on one page every record that is not noted as shown, in order, stopping where the tracker is away.

    A page has the records of the segments that trained with it: another branch's verdict is another page's.
    Raises `Gone` where the page cannot be opened, `OSError` where the ledger cannot be written.
    """
    names = set(map(key, aliases))
    own = {r.segment for r in ledger.of("run") if names & set(map(key, r.payload.aliases))}
    try:
        with Delivered(ledger.path, aliases[0]).alone():
            trains = _living(ledger, own)
            if trains:
                raise Busy(f"a process that trains shows this page ({trains})")
            return _sync(ledger, own, *aliases, uri=uri)
    except Busy as e:
        again = "It shows what is missing itself; once it has ended, run `lineage sync` again"
        return Synced(aliases[0], problems=[f"{e}. {again}."])


def _living(ledger: Ledger, segments: set[str]) -> str | None:
    """The journal file of a process of some segments that still writes, as far as its file system tells."""
    files = [p for p in scan.journal_files(ledger.path) if p.parent.name in segments]
    return next((p.name for p in files if layout.held(p)), None)


def _sync(ledger: Ledger, own: set[str], *aliases: schemas.TrackerAlias, uri: str | None) -> Synced:
    tracker = open_tracker(aliases[0], uri)
    delivered = Delivered(ledger.path, tracker.alias() if uri else aliases[0])
    # Notes of an offline segment tell what its log holds. What became of that when the log was sent, nobody here
    # knows (W&B keeps the config of the last log only), so all of it is shown again: that changes nothing twice.
    sent = [a for a in aliases if not (a.uri or "").startswith("offline:")]
    done = delivered.ids().union(*(Delivered(ledger.path, a).ids() for a in sent))
    doubtful = _doubtful(ledger, own, tracker.kind, done)
    done = {n for n in done if not any(segment in n for segment in doubtful.values())}
    done -= {r.id for r in ledger.records if r.segment in doubtful.values()}
    out = Synced(aliases[0], already=len(done & {r.id for r in ledger.records}))
    page = trackers.Page(ledger.run, ledger=str(ledger.path))
    for s in ledger.segments:
        page.number(s.uid)
    page.checkpoints |= {r.payload.uid: r for r in ledger.of("checkpoint") if r.payload.status == "complete"}
    try:
        _publish(
            ledger, own, tracker, delivered, done
        )  # first: an anchor without its chunk looks like a cut ledger
        mine = [r for r in ledger.records if r.segment in own]
        _show([*mine, *_branches(ledger, mine, tracker.kind, aliases)], tracker, page, delivered, done, out)
        out.anchor = _anchor(ledger, [r for r in ledger.of("seal") if r.segment in own], tracker, page)
    except trackers.TrackerUnavailable as e:
        out.problems.append(f"the tracker is not available: {e}. Run `lineage sync` again later.")
    except trackers.TrackerRefused as e:
        out.problems.append(f"refused: {e}")
    try:
        close(tracker)
    except (trackers.TrackerUnavailable, trackers.TrackerRefused) as e:
        out.problems.append(f"the page may lack its last values: {e}. Run `lineage sync` again later.")
    if not out.problems:
        for record in doubtful:
            delivered.add(f"again:{record}")
    return out


def _doubtful(ledger: Ledger, own: set[str], kind: str, done: set[str]) -> dict[str, str]:
    """Record that a segment's tracker went away -> the segment, of whose notes nothing is known then.

    W&B's client takes what it is given and sends it later: where it was killed, what it had taken is gone, though
    noted as shown. All of the segment is shown once more, which changes nothing twice.
    """
    if kind != "wandb":
        return {}
    return {
        r.id: r.segment
        for r in ledger.of("degraded")
        if r.segment in own and r.payload.part == "tracker" and f"again:{r.id}" not in done
    }


def _branches(
    ledger: Ledger, mine: Sequence[schemas.Record], kind: str, here: Sequence[schemas.TrackerAlias]
) -> list[schemas.Envelope]:
    """A new note of where the branches of the run stand, unless the page's newest one says so.

    A segment that goes on from an earlier state, on a page of its own, cannot tell the page that it left.
    """
    own = {r.segment for r in mine}
    g = graph.build(ledger.records, reached=ledger.reached)
    told = branches.words(g, ledger.run, on_page.pages(ledger, *here))
    notes = [r.payload.text for r in mine if r.kind == "tracker_note" and r.payload.code == "LIN-T004"]
    newest = [s.uid for s in ledger.segments if s.uid in own][-1:]
    if not told or notes[-1:] == [told] or not newest:
        return []
    note = schemas.TrackerNote(code="LIN-T004", tracker=kind, text=told)
    return [_write(ledger, note, newest[0], g.last_step.get(newest[0]))]


def _write(
    ledger: Ledger, payload: schemas.Payload, segment: str, step: int | None, caused_by: Sequence[str] = ()
) -> schemas.Envelope:
    """Write a record in a file of this process's own, whose header names the newest lines of all others."""
    heads, torn = scan.heads(ledger.path)
    place = schemas.Place(node=node(ledger.run, socket.gethostname()), pid=os.getpid())
    journal = Journal(ledger.path, ledger.run, segment, 0, place, previous=heads, set_aside=torn)
    record = journal.append(payload, step=step, caused_by=caused_by)
    if journal.close():
        raise OSError(f"{journal.path} takes no {payload.kind} record")
    return record


def _show(
    records: Sequence[trackers.Shown],
    tracker: trackers.Tracker,
    page: trackers.Page,
    delivered: Delivered,
    done: set[str],
    out: Synced,
) -> None:
    for record in records:
        if record.id in done or isinstance(record.payload, schemas.Opaque):
            continue
        try:
            out.shown += tracker.show(record, page) is not None
            delivered.add(record.id)
        except trackers.TrackerRefused as e:
            out.problems.append(f"refused: {record.payload.kind} of step {record.step}: {e}")


def _publish(
    ledger: Ledger, own: set[str], tracker: trackers.Tracker, delivered: Delivered, done: set[str]
) -> None:
    """Put what is not there yet on the page: the journal's chunks, and the report where the newest segment has it."""
    chunks = ledger.path / "chunks"
    files = [
        (p, f"journal/{p.relative_to(chunks).as_posix()}")
        for p in sorted(chunks.glob("*/*/*.jsonl"))
        if p.parts[-3] in own
    ]
    if ledger.segments and ledger.segments[-1].uid in own:
        files += [(p, p.name) for p in sorted((ledger.path / "report" / "tracker").glob("report.*"))]
    for path, name in files:
        note = file_note(path, name)
        if note not in done:
            tracker.publish(path, name)
            delivered.add(note)


def _anchor(
    ledger: Ledger, seals: Sequence[schemas.Record], tracker: trackers.Tracker, page: trackers.Page
) -> schemas.Anchor | None:
    """Write down which root the page now holds, where and since when, unless the ledger says so already.

    It is the newest seal's, which covers all before it.
    """
    sealed = seals[-1] if seals else None
    where = tracker.show(sealed, page) if sealed else None
    if sealed is None or where is None:
        return None
    anchor = schemas.Anchor(
        root=sealed.payload.root,
        tracker=tracker.kind,
        place=trackers.text.anchor_place(where, tracker.alias()),
    )
    known = {(r.payload.root, r.payload.place) for r in ledger.of("anchor")}
    if (anchor.root, anchor.place) in known:
        return None
    _write(ledger, anchor, sealed.segment, sealed.step, caused_by=[sealed.id])
    return anchor


def _print(results: Sequence[Synced]) -> None:
    for r in results:
        console.print(
            f"{r.alias.tracker} run {escape(r.alias.id)}: {r.shown} records shown, {r.already} were there"
        )
        if r.anchor:
            console.print(f"  anchored {r.anchor.root}\n  in {escape(r.anchor.place)}")
        for problem in r.problems:
            console.print(f"  [bold red]{escape(problem)}[/]")
