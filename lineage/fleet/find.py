"""The abnormal cells of a big ledger: what `lineage.ledger.cells.find` gives of a small one, with bounded memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from .._rooms import schemas
from ..judge import cells as cells_
from ..judge import evaluations
from ..judge.execution import SIGNALS, is_certain
from ..ledger import ranks
from ..ledger.cells import Cells, state_read, with_kinds
from ..ledger.reader import Ledger
from . import engine as engine_
from . import files as files_
from . import seen as seen_
from . import sql, tensors, values
from . import storms as storms_
from .files import File, Unread


def find(
    ledger: Ledger,
    probes: Sequence[File] | None = None,
    rows: Sequence[File] | None = None,
    memory: str | None = None,
    spill: Path | None = None,
) -> Cells:
    """Find the abnormal cells of all segments. Files that cannot be read are left out, and named in `seen`.

    Args:
        ledger: its journal.
        probes, rows: the files of the tables `probes` and `tensors`; by default those in the ledger's folder.
        memory: what queries may take, such as `4GB`.
        spill: where they put what does not fit.

    Raises `NoEngine` where DuckDB is not installed.
    """
    probes = files_.of(ledger, "probes") if probes is None else probes
    rows = files_.of(ledger, "tensors") if rows is None else rows
    unread, unread_rows = Unread(), Unread()
    with engine_.opened(memory, spill) as engine:
        summary = seen_.read(engine, probes, unread)
        reader = values.Reader(engine, probes, unread, summary.joined, summary.scaled)
        read = reader.odd()
        searched = tensors.searches(cells_.searching(read.points))
        storms = storms_.of(reader.signatures(), tensors.signatures(engine, rows, searched, unread_rows))
        read.points += reader.broken(storms)
        series = read.cells()
        alarms = cells_.from_alarms(ledger.records)
        by_tensor = tensors.broken(engine, rows, searched, storms, unread_rows)
        certain: dict[str, int] = {}
        for c in (*series, *alarms, *by_tensor):
            if is_certain(c):
                certain[c.segment] = min(c.step, certain.get(c.segment, c.step))
        layers, kinds, notes = tensors.out_of_range(engine, rows, certain, unread_rows)
    by_segment: dict[str, list[str]] = defaultdict(list)
    for path, why in sorted(unread.items()):
        by_segment[path.split("/")[-2]].append(ranks.cannot_read("/".join(path.split("/")[-3:]), why))
    found = cells_.merged(series, alarms, [*by_tensor, *layers], evaluations.cells(ranks.evaluations(ledger)))
    at = _lookup(probes, unread, memory, spill)
    summed = ranks.summed(
        ledger, summary.spans, summary.signals, summary.holes, summary.clocks, summary.twins, by_segment
    )
    seen = {
        uid: replace(
            s,
            values_at=at,
            state_read=state_read(ledger),
            ranks=with_kinds(uid, s, kinds),
            same_until=storms.same_until.get(uid, {}),
        )
        for uid, s in summed.items()
    }
    judged = {rank for (_, rank), signals in summary.signals.items() if signals.intersection(SIGNALS)}
    steps = sum(map(len, summary.steps.values())) if judged else 0
    return Cells(ledger, found, read.points, seen, (*storms.notes, *notes), (steps, len(judged)))


def _lookup(
    probes: Sequence[File], unread: Unread, memory: str | None, spill: Path | None
) -> Callable[[schemas.Cell], Mapping[int, float]]:
    """The values of a cell's signal at its step, over the ranks. Asked once or twice, it opens its own engine."""

    def at(cell: schemas.Cell) -> Mapping[int, float]:
        out: dict[int, float] = {}
        if cell.signal not in SIGNALS:
            return out
        mine = [f for f in probes if f.segment == cell.segment]
        with engine_.opened(memory, spill) as engine:
            for portion in files_.portions(mine):
                table = files_.ask(
                    engine,
                    portion,
                    sql.PROBES,
                    lambda r: sql.of_step(r, cell.segment, cell.step, cell.signal),
                    unread,
                )
                out |= {int(rank): float(value) for rank, value in files_.rows_of(table)}
        return out

    return at
