"""A run that never had the layer, from its page: values with their steps, configs and what became of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from .._rooms import schemas, trackers
from ..capture import config as capture
from ..capture import secrets
from ..imports.configs import changes
from ..imports.entries import Book, ImportTrouble
from ..imports.into_ledger import Judged, append, into_ledger, judge, run_id
from ..imports.logs.importing import Import, Source
from ..judge import asked_peak
from ..judge.asked_peak import Course
from ..ledger import layout, pulled, scan, series
from ..ledger.journal import Journal
from ..ledger.reader import Ledger, SegmentView
from ..ledger.seal import seal
from ..ledger.verify import verify
from . import page_rows, place
from .rebuild import Done, marker_of
from .source import PullTrouble

NO_JOURNAL = (
    "the layer was there (run {run}), and no chunk of its journal is on the page: they are sent at checkpoints and at "
    "the end. Where the run trained, `lineage sync` sends what there is; what follows is what the page tells"
)


@dataclass(frozen=True)
class _Config:
    """One config as it stood, the segment it was set in, and its first update."""

    config: schemas.Config
    segment: str
    step: int | None
    source: str
    place: str
    number: int


def adopt(pages: Sequence[trackers.Held], where: Callable[[str], Path]) -> Done:
    """Read pages of one run without a journal into a ledger of their own.

    `where`: run id -> folder. Raises `PullTrouble` where the page has neither a value nor a config, or the folder holds
    something else.
    """
    first = pages[0]
    name = first.about().name or first.id
    run = run_id(f"{first.tracker}-{first.id}")
    target = where(run)
    before = place.existing(target)
    readers = [page_rows.of(p) for p in pages]
    with place.workshop(target) as made:
        done = _import(readers, name, run, made)
        ledger = made / run
        configs = _write_configs(ledger, done, readers, name, made)
        went_back = [text for r in readers if r.page.tracker == "mlflow" for text in r.rewound()]
        _tell(ledger, pages, len(configs), went_back)
        notes = [*went_back, *_beside_rates(ledger, configs)]
        _seal(ledger)
        marker = marker_of(run, pages, _lines(ledger), None, ())
        marker.values = _print(ledger, pages)
        runs = {r for p in pages if (r := p.run()) is not None}
        notes = [*(NO_JOURNAL.format(run=r) for r in sorted(runs)), *notes]
        marker.notes = notes
        marker.missing = [
            "everything that no tracker is told: live values, batches, checkpoints, what each rank did by itself"
        ]
        same = before is not None and before.values == marker.values
        if before is not None and not same:
            raise PullTrouble(
                f"{target} was read from this page before, and the page has changed since. What is read of a page "
                "without a journal is never added to: --out NEWFOLDER writes what is there now"
            )
        if not same:
            pulled.write(ledger, marker)
            place.put(ledger, target)
        count = 0 if done is None else sum(s.keys[k] for s in done.sources for k in s.keys)
        return Done(target, run, list(pages), False, verify(target), not same, count)


def _import(readers: Sequence[page_rows.PageRows], name: str, run: str, root: Path) -> Import | None:
    """The values, cut into segments; None where no page has any."""
    sources = [
        Source(Path(r.page.source), r.page.source, r) for r in readers if any(True for _ in r.page.rows())
    ]
    if not sources:
        return None
    done = Import((), run, root, sources)
    done.name = secrets.mask(name)[0]
    try:
        done.write()
    except ImportTrouble as e:
        raise PullTrouble(f"{e}. Nothing was written.") from None
    return done


def _write_configs(
    ledger: Path, done: Import | None, readers: Sequence[page_rows.PageRows], name: str, root: Path
) -> list[_Config]:
    """Write each config as it stood, and what differs from one to the next. Returns those that have a segment."""
    if done is None:
        _configs_alone(readers, ledger.name, name, root)
        return []
    found = [c for r in readers for c in _configs(r, done)]
    entries: dict[str, list[schemas.Reported]] = {}
    for before, after in pairwise(found):
        source = schemas.Source(name=after.source, place=after.place, authority="machine")
        for e in changes(before.config, after.config, sum(map(len, entries.values())), source, None):
            entries.setdefault(after.segment, []).append(e.model_copy(update={"step": after.step}))
    judged = judge(Book(done.run, [e for held in entries.values() for e in held]))
    regime: schemas.Regime | None = None
    for view in Ledger(ledger).segments:
        own = [c for c in found if c.segment == view.uid]
        mine = {e.uid for e in entries.get(view.uid, ())}
        held = Ledger(ledger).of("regime", view.uid)
        regime = held[-1].payload if held else regime
        if own:
            regime = _append(ledger, view, own, judged, mine, regime)
    return found


def _append(
    ledger: Path,
    view: SegmentView,
    own: Sequence[_Config],
    judged: Judged,
    mine: set[str],
    regime: schemas.Regime | None,
) -> schemas.Regime | None:
    """Add a segment's configs to it, in a journal file of their own."""
    journal = _journal(ledger, view)
    for c in own:
        journal.append(c.config, step=c.step)
    part = Judged(
        [e for e in judged.entries if e.uid in mine], [j for j in judged.judgements if j.reported in mine]
    )
    if part.entries:
        append(journal, ledger, part, regime, view.info.parent_step or 0)
    journal.close()
    opened = Ledger(ledger).of("regime", view.uid)
    return opened[-1].payload if opened else regime


def _configs(reader: page_rows.PageRows, done: Import) -> list[_Config]:
    """A page's configs, each in the segment and at the step of the first row after it."""
    page = reader.page
    parts = [p for p in done.cutter.parts if page.source in done.files.get(p.number, ())]
    parts = parts or done.cutter.parts[:1]
    out: list[_Config] = []
    for n, asked in enumerate(page.configs()):
        step = reader.step_after(asked.before_row)
        if step is not None and done.base == 0:
            step += 1
        held = [p for p in parts if step is not None and (p.first or 0) <= step <= p.last]
        part = parts[0] if n == 0 else held[-1] if held else parts[-1]
        config = capture.capture(
            dict(asked.values), name=f"{page.tracker}: {'params' if page.tracker == 'mlflow' else 'config'}"
        )
        keys = ", ".join(asked.changed[:3]) + (" ..." if len(asked.changed) > 3 else "")
        told = f"record {asked.number} of the log ({keys})" if asked.number else f"set: {keys}"
        if out and out[-1].config.digest == config.digest:
            continue
        out.append(_Config(config, part.uid, step, page.source, secrets.mask(told)[0], asked.number))
    return out


def _configs_alone(readers: Sequence[page_rows.PageRows], run: str, name: str, root: Path) -> None:
    """Pages that have a config and not one value."""
    book = Book(run)
    for reader in readers:
        for asked in reader.page.configs():
            after = capture.capture(dict(asked.values), name=reader.page.tracker)
            if book.configs:
                told = schemas.Source(
                    name=reader.page.source, place=f"record {asked.number}", authority="machine"
                )
                book.entries += changes(book.configs[-1][1], after, len(book.entries), told, None)
            book.configs.append((len(book.entries), after))
    if not book.configs:
        places = ", ".join(r.page.source for r in readers)
        raise PullTrouble(
            f"{places} has no journal, no config and not one number with a step: there is nothing to read. Is it the "
            "right run?"
        )
    book.problems.append(f"{name}: the page has no value of a step")
    into_ledger(book, root)


def _beside_rates(ledger: Path, configs: Sequence[_Config]) -> list[str]:
    """Where a learning rate was logged that is above the one that the config asked for at the time.

    The rows right at a change of the config are left out: W&B writes a row when the next one begins, so the change may
    stand before the row that was open.
    """
    opened, out = Ledger(ledger), []
    for n, config in enumerate(configs):
        following = configs[n + 1] if n + 1 < len(configs) else None
        for view in opened.segments:
            if (n and view.uid < config.segment) or (following and view.uid > following.segment):
                continue
            after = config.step if n and view.uid == config.segment else None
            until = following.step if following and view.uid == following.segment else None
            rates = [
                (step, rate)
                for step, rate in _rates(ledger, view.uid)
                if (after is None or step > after) and (until is None or step < until)
            ]
            for finding in asked_peak.findings(config.config, Course(rates, from_start=False)):
                journal = _journal(ledger, view)
                journal.append(finding, step=rates[0][0])
                journal.close()
                out.append(f"segment {view.number}: {finding.text}")
    return out


def _journal(ledger: Path, view: SegmentView) -> Journal:
    """A journal file of this process's own in a segment that was imported."""
    place_ = schemas.Place(node=schemas.IMPORTED, pid=0)
    return Journal(ledger, view.record.run, view.uid, 0, place_, fsync=False)


def _rates(ledger: Path, segment: str) -> list[tuple[int, float]]:
    """Step and learning rate, as logged."""
    out = []
    for table in series.of_segment(ledger, segment, "probes"):
        columns = (table[n].to_pylist() for n in ("signal", "step", "value"))
        out += [(step, value) for signal, step, value in zip(*columns, strict=True) if signal == "lr"]
    return sorted(out)


def _tell(ledger: Path, pages: Sequence[trackers.Held], configs: int, notes: Sequence[str]) -> None:
    """Say in the newest segment what else the page tells."""
    opened = Ledger(ledger)
    view = opened.segments[-1]
    standing = opened.of("coverage", view.uid)[-1]
    told = [f"{configs:,} configs, as {p.tracker} keeps them" for p in pages[:1] if configs]
    for page in pages:
        about = page.about()
        facts = {"status": about.status, "commit": about.commit, **about.tags}
        said = ", ".join(f"{k}: {v[:200]}" for k, v in list(facts.items())[:32] if v)
        told += [f"{page.source} says of itself: {said}"] if said else []
    journal = _journal(ledger, view)
    more = standing.payload.model_copy(
        update={
            "recorded": [*standing.payload.recorded, *(secrets.mask(t)[0] for t in told)],
            "gaps": [*standing.payload.gaps, *(secrets.mask(n)[0] for n in notes)],
        }
    )
    journal.append(more, supersedes=standing.id)
    journal.close()


def _seal(ledger: Path) -> None:
    journal = _journal(ledger, Ledger(ledger).segments[-1])
    journal.append(seal(scan.heads(ledger)[0], "close"))
    journal.close()


def _lines(ledger: Path) -> dict[str, int]:
    folder = layout.journal_folder(ledger)
    return {str(p.relative_to(folder)): sum(1 for _ in scan.raw_lines(p)) for p in scan.journal_files(ledger)}


def _print(ledger: Path, pages: Sequence[trackers.Held]) -> str:
    """A digest of what the pages had: their values and configs."""
    sha = hashlib.sha256()
    for page in pages:
        for row in page.rows():
            sha.update(repr((row.step, sorted(row.values.items()), row.at)).encode())
        for asked in page.configs():
            sha.update(repr(sorted(map(str, asked.values.items()))).encode())
    return sha.hexdigest()
