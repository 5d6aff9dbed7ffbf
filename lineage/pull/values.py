"""What the training code logged to a tracker, as series of the ledger: under the tracker's keys, and as signals."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from .._rooms import trackers
from ..imports.logs.meaning import Meaning
from ..imports.logs.rows import Row
from ..imports.logs.sink import Sink
from ..ledger.reader import Ledger, SegmentView
from ..observe.steps import WandbSteps

W_AND_B_STEP = "_step: the step= that was given, or the tracker's count of log calls"


def stepped(page: trackers.Held) -> Iterator[trackers.Logged]:
    """The rows of a page, each at the training step that it names itself where it names one."""
    if page.tracker != "wandb":
        yield from page.rows()
        return
    steps = WandbSteps()
    for name, axis in page.about().axes:
        steps.define(name, axis)
    for row in page.rows():
        step, axis = steps.of(row.values, row.step, True)
        yield replace(row, step=step, axis=axis if axis.startswith("column") else W_AND_B_STEP)


@dataclass
class Written:
    """What became of the values of all pages."""

    count: int = 0
    digest: str = ""
    """sha256 of all, in their order"""
    missing: list[str] = field(default_factory=list)


def write(ledger: Path, pages: Sequence[trackers.Held]) -> Written:
    """Write the values of all pages into the segments they were logged in.

    A page that one segment alone had is that segment's; else the times decide. Values that the tracker does not give
    are said: the journal is whole without them.
    """
    opened = Ledger(ledger)
    sink, sha = Sink(ledger, opened.run), hashlib.sha256()
    out, left = Written(), 0
    for page in pages:
        meaning, own = Meaning(), _own(opened, page)
        for row in _given(page, out):
            sha.update(repr((page.tracker, page.id, row.step, sorted(row.values.items()), row.at)).encode())
            segment = own if len(own) == 1 else _at(opened.segments, row)
            if not segment:
                left += len(row.values)
                continue
            (view,) = segment
            made = Row(row.step, dict(row.values), row.number, at=row.at)
            step = row.step + 1 - view.info.step_base
            sink.row(
                view.uid, 0, made, step, tracker=page.tracker, axis=row.axis, file=page.source, place="row"
            )
            signals = meaning.of(row.values, {})
            if signals:
                sink.signals(view.uid, 0, None, step, row.at, signals)
            out.count += len(row.values)
    sink.close()
    out.digest = sha.hexdigest()
    if left:
        out.missing.append(f"{left:,} logged values whose segment is not here: they are left out")
    return out


def _given(page: trackers.Held, out: Written) -> Iterator[trackers.Logged]:
    """The rows of a page, until it gives no more."""
    try:
        yield from stepped(page)
    except (trackers.TrackerUnavailable, trackers.TrackerRefused) as e:
        out.missing.append(
            f"what the training code logged to {page.source}, which the tracker does not give: {e}"
        )


def _own(ledger: Ledger, page: trackers.Held) -> list[SegmentView]:
    """The segments that trained with this page."""
    uids = {
        r.segment
        for r in ledger.of("run")
        for a in r.payload.aliases
        if a.tracker == page.tracker
        and a.id == page.id
        and (page.place == a.uri or not (a.uri or "").startswith("offline:"))
    }
    return [s for s in ledger.segments if s.uid in uids]


def _at(segments: Sequence[SegmentView], row: trackers.Logged) -> list[SegmentView]:
    """The segment that had begun last when a row was logged."""
    begun = [s for s in segments if row.at is not None and s.record.at <= row.at]
    return begun[-1:]
