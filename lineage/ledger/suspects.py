"""What a ledger holds around a first bad cell, gathered for the rules of `lineage.judge.suspects`.

Only what is near is read: batches and signals of the steps before, probe rows of the first bad rank, digests of the
tensors that differ. Nothing is judged here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .._rooms import schemas
from ..judge import agreement, execution
from ..judge import suspects as judge
from ..judge.agreement import Disagreement
from ..judge.graph import Graph
from ..judge.layers import BEFORE
from ..judge.seen import same_device
from ..judge.suspects import BatchRow, Boundary, Copies, Found, Known, OneElement, ProbeRow, SameBatch
from . import beside, bookkeeping, resumes, series, states, tables
from . import events as events_
from .cells import Cells
from .reader import Ledger, SegmentView

WINDOW = 120
"""Steps before the bad one whose batches and signals are read."""
AROUND = 50
"""Steps between the first bad one and that of a bundle or a replay of the same incident."""
MOST_ELEMENTS = 8
"""Tensors whose digests are looked through for one changed element: of a few thousand that parted, all parted alike."""
_STATISTICS = (
    "tokens",
    "target_tokens",
    "length_min",
    "length_mean",
    "length_max",
    "mask_density",
    "padding",
    "lowest",
    "highest",
    "out_of_range",
    "bos",
    "eos",
)


def gather(ledger: Ledger, graph: Graph, cells: Cells, first: schemas.FirstBad, run: str) -> Known:
    """Gather what is known around a first bad cell. `run`: what the run is called in a command.

    Raises `ValueError` for a `FirstBad` without a cell.
    """
    cell = first.cell
    if cell is None:
        raise ValueError("there is no bad cell, so nothing is suspected of it")
    segment = next(s for s in ledger.segments if s.uid == cell.segment)
    seen = cells.seen.get(cell.segment)
    world = max(segment.info.world_size, seen.count() if seen else 0)
    resumed = resumes.look(ledger, segment)
    compared = states.compare(ledger, segment.uid) if world > 1 else agreement.Compared()
    elements, looked = one_elements(ledger, segment.uid, [d for d in compared.found if d.step <= cell.step])
    batches = list(_batches(ledger.path, cell))
    held = _held(ledger, cell)
    info = segment.info
    node = graph.nodes.get(info.parent_checkpoint or "")
    near, _ = events_.beside(ledger, cell.segment, cell.rank, cell.step)
    until = _until(cells, cell)
    return Known(
        run=run,
        first=first,
        cell=cell,
        segment=segment.number,
        world=world,
        start=info.start,
        parent_step=node.checkpoint.step if node else info.parent_step,
        boundaries=boundaries(ledger, graph, cell),
        compared_configs=any(r.kind in ("config", "effective") for r in _on_path(ledger, graph, cell)),
        outcomes=resumed.outcomes if resumed else (),
        restores=[r.id for r in ledger.of("restore", segment.uid)][:4],
        losses=resumed.losses if resumed else None,
        findings=list(findings(ledger, graph, segment, cell, resumed)),
        batches=batches,
        same=list(_same(ledger, cells, cell, batches)),
        signals=_signals(ledger.path, cell, until),
        rows=list(_rows(ledger.path, cell, until)),
        compared=compared,
        elements=elements,
        looked_at_elements=looked,
        groups=[r.id for r in ledger.of("agreement", segment.uid)],
        held={rank: values for rank, (_, values) in held.items()},
        held_by={rank: record for rank, (record, _) in held.items()},
        events=near,
        watched=_watched(ledger, segment.uid, cell.rank),
        devices=_devices(graph, cells, first),
        replays=_replays(ledger, cell),
        bundle=_bundle(ledger, cell),
        bundled=sorted(
            {r.rank for r in ledger.of("bundle", cell.segment) if r.payload.first_bad_step == cell.step}
        ),
        environments=max(1, len({r.rank for r in ledger.of("environment", segment.uid)})),
        cells=[c for c in cells.of(cell.segment) if cell.step <= c.step <= until],
        upto=until,
    )


LEADS = 40
"""Steps over which what is out of its range may lead up to what is not finite."""


def _until(cells: Cells, cell: schemas.Cell) -> int:
    """The step of what the first bad cell leads up to: the first one that is not finite, else the first certain one."""
    later = [c for c in cells.of(cell.segment) if cell.step <= c.step <= cell.step + LEADS]
    certain = [c.step for c in later if execution.is_certain(c)]
    broken = [c.step for c in later if c.abnormal == "non_finite"]
    return min(broken or certain, default=cell.step)


def _on_path(ledger: Ledger, graph: Graph, cell: schemas.Cell) -> list[schemas.Record]:
    """The records of the segments that lead to the bad step."""
    path = {s.segment for s in graph.path_to_segment(cell.segment)}
    return [r for r in ledger.records if r.segment in path]


def boundaries(ledger: Ledger, graph: Graph, cell: schemas.Cell) -> list[Boundary]:
    """The drifts on the way to the bad step, the newest first. The lowest rank's stand for those of all."""
    upto = {s.segment: s.upto for s in graph.path_to_segment(cell.segment, cell.step)}
    found: dict[tuple[str, str, int], schemas.Record] = {}
    for r in ledger.of("drift"):
        if r.segment not in upto or r.payload.from_step > cell.step:
            continue
        end = upto[r.segment]
        if end is not None and r.payload.from_step > end:
            continue
        key = (r.segment, r.payload.moment, r.payload.from_step)
        if key not in found or r.rank <= found[key].rank:
            found[key] = r
    ordered = sorted(found.values(), key=lambda r: (r.payload.from_step, r.at), reverse=True)
    return [Boundary(r.id, graph.number(r.segment), r.payload) for r in ordered]


def findings(
    ledger: Ledger,
    graph: Graph,
    segment: SegmentView,
    cell: schemas.Cell,
    resumed: resumes.Resumed | None,
) -> Iterator[Found]:
    """What checks recorded on the way to the bad step, and what they find in its segment now; the same once."""
    told: set[tuple[str, str, str, tuple[str, ...]]] = set()
    numbers = {s.segment: graph.number(s.segment) for s in graph.path_to_segment(cell.segment)}
    for r in ledger.of("finding"):
        if r.segment in numbers:
            f = r.payload
            told.add((r.segment, f.code, f.subject, tuple(f.names)))
            yield Found(r.id, numbers[r.segment], r.rank, r.step, f)
    now = [
        *(beside.compare(ledger, segment).findings if segment.info.world_size > 1 else ()),
        *(resumed.findings if resumed else ()),
        *bookkeeping.findings(ledger, segment),
    ]
    for f in now:
        if (segment.uid, f.code, f.subject, tuple(f.names)) not in told:
            yield Found(None, segment.number, _whole(f, "rank") or 0, _whole(f, "first_step"), f)


def _whole(f: schemas.Finding, name: str) -> int | None:
    value = f.values[name].plain() if name in f.values else None
    return value if isinstance(value, int) else None


# -- series


def _near(
    ledger: Path, table: str, cell: schemas.Cell, *, every_rank: bool, before: int, until: int | None = None
) -> Iterator[pa.Table]:
    """A table's rows of the steps up to the bad one: of its rank, and of all ranks where that is asked."""
    for path in series.files(ledger, table):
        if path.parent.name != cell.segment or not (every_rank or series.may_hold(path, cell.rank)):
            continue
        try:
            found = series.fitted(series.read_one(path), tables.TABLES[table])
        except (ValueError, OSError):  # `lineage verify` names it
            continue
        step = found["step"]
        last = cell.step if until is None else until
        inside = pc.and_(pc.greater_equal(step, cell.step - before), pc.less_equal(step, last))
        if not every_rank:
            inside = pc.and_(inside, pc.equal(found["rank"], cell.rank))
        yield found.filter(inside)


def _batches(ledger: Path, cell: schemas.Cell) -> Iterator[BatchRow]:
    """The first bad rank's batches of the steps before, and those of all ranks from the last good step on."""
    since = cell.step - 1 if cell.last_good is None else min(cell.last_good, cell.step - 1)
    for table in _near(ledger, "batches", cell, every_rank=True, before=WINDOW):
        wanted = pc.or_(pc.equal(table["rank"], cell.rank), pc.greater(table["step"], since))
        for row in table.filter(wanted).to_pylist():
            stats = {n: float(row[n]) for n in _STATISTICS if row[n] is not None}
            yield BatchRow(row["rank"], row["step"], row["micro"], row["digest"], stats)


def _same(
    ledger: Ledger, cells: Cells, cell: schemas.Cell, batches: Iterable[BatchRow]
) -> Iterator[SameBatch]:
    """Where else in the run the first bad rank's batch of the bad step was read, with what became of it there."""
    wanted = {b.digest for b in batches if (b.rank, b.step) == (cell.rank, cell.step) and b.digest}
    if not wanted:
        return
    numbers = {s.uid: s.number for s in ledger.segments}
    known = pa.array(sorted(wanted))
    places: set[tuple[str, int, int]] = set()
    for path in series.files(ledger.path, "batches"):
        try:
            table = series.read_one(path).select(["segment", "rank", "step", "digest"])
        except (ValueError, OSError, KeyError):
            continue
        found = table.filter(pc.is_in(table["digest"], known))
        places |= set(zip(*(found[c].to_pylist() for c in ("segment", "rank", "step")), strict=True))
    bad = {(c.segment, c.rank, c.step) for c in cells.found}
    losses = _losses(ledger.path, places)
    for segment, rank, step in sorted(places - {(cell.segment, cell.rank, cell.step)}):
        loss = losses.get((segment, rank, step))
        abnormal = True if (segment, rank, step) in bad else None if loss is None else not math.isfinite(loss)
        yield SameBatch(numbers.get(segment, 0), rank, step, loss, abnormal)


def _losses(ledger: Path, places: Iterable[tuple[str, int, int]]) -> dict[tuple[str, int, int], float]:
    found: dict[tuple[str, int, int], float] = {}
    wanted = set(places)
    for segment in {p[0] for p in wanted}:
        steps = pa.array(sorted({p[2] for p in wanted if p[0] == segment}))
        for table in series.of_segment(ledger, segment, "probes"):
            near = pc.and_(pc.equal(table["signal"], "loss"), pc.is_in(table["step"], steps))
            for row in table.filter(near).select(["rank", "step", "value"]).to_pylist():
                if row["value"] is not None:
                    found[segment, row["rank"], row["step"]] = row["value"]
    return found


def _signals(ledger: Path, cell: schemas.Cell, until: int) -> dict[str, dict[int, dict[int, float]]]:
    """signal -> rank -> step -> value, of all ranks. What stands until it changes (`beta2 of group 0`): all of it."""
    out: dict[str, dict[int, dict[int, float]]] = {}
    for table in _near(ledger, "probes", cell, every_rank=True, before=cell.step, until=until):
        step, signal = table["step"], table["signal"]
        near = pc.or_(pc.greater_equal(step, cell.step - WINDOW), pc.match_substring(signal, " of group "))
        columns = (table.filter(near)[c].to_pylist() for c in ("rank", "step", "signal", "value"))
        for rank, at, name, value in zip(*columns, strict=True):
            if value is not None:
                out.setdefault(name, {}).setdefault(rank, {})[at] = value
    return out


def _rows(ledger: Path, cell: schemas.Cell, until: int) -> Iterator[ProbeRow]:
    """The probe rows of the first bad rank, of the steps up to what the bad cell leads up to."""
    for table in _near(ledger, "tensors", cell, every_rank=False, before=BEFORE, until=until):
        for r in table.to_pylist():
            yield ProbeRow(
                step=r["step"],
                kind=r["kind"],
                tensor=r["tensor"],
                order=r["order"],
                elements=r["elements"] or 0,
                norm=math.sqrt(r["sumsq"] or 0.0),
                largest=r["largest"] or 0.0,
                lowest=r["lowest"],
                n_nan=r["n_nan"] or 0,
                infinite=(r["n_posinf"] or 0) + (r["n_neginf"] or 0),
                dtype=(r["dtype"] or "").removeprefix("torch."),
                scale=r["scale"] or 1.0,
            )


# -- ranks


def one_elements(
    ledger: Ledger, segment: str, found: Iterable[Disagreement]
) -> tuple[list[OneElement], bool]:
    """Tensors whose copies differ in one element alone; and whether all that parted first were looked at.

    An odd rank is held against the lowest of the majority; where there is none, the ranks against the lowest one.
    """
    ordered = sorted(found, key=lambda d: d.step)
    first = [d for d in ordered if d.step == ordered[0].step] if ordered else []
    some = first[:MOST_ELEMENTS]
    if not some:
        return [], False
    rows = _digests(ledger.path, segment, some)
    out, looked = [], True
    for d in some:
        usual = min(d.classes[0])
        odd = d.odd or tuple(r for r in d.ranks if r != usual)
        for rank in odd[:4]:
            mine, theirs = (rows.get((d.kind, d.tensor, d.part, r)) for r in (rank, usual))
            if mine is None or theirs is None or mine["whole"] is None:
                looked = False
                continue
            one = judge.one_element(
                Copies(
                    d.tensor,
                    d.kind,
                    rank,
                    usual,
                    d.step,
                    (mine["lane1"], mine["lane2"]),
                    (theirs["lane1"], theirs["lane2"]),
                    mine["whole"],
                    mine["elements"] or 0,
                )
            )
            out += [one] if one is not None else []
    return out, looked


def _digests(
    ledger: Path, segment: str, wanted: Iterable[Disagreement]
) -> dict[tuple[str, str, str, int], dict[str, Any]]:
    """(kind, tensor, part, rank) -> the row of a digest at the step at which ranks first differed."""
    asked = list(wanted)
    names = pa.array(sorted({d.tensor for d in asked}))
    out = {}
    for table in series.of_segment(ledger, segment, "states"):
        at = pc.and_(pc.equal(table["step"], asked[0].step), pc.is_in(table["tensor"], names))
        at = pc.and_(at, pc.equal(pc.fill_null(table["moment"], "agree"), "agree"))
        for row in table.filter(at).to_pylist():
            out[row["kind"], row["tensor"], row["part"], row["rank"]] = row
    return out


def _held(ledger: Ledger, cell: schemas.Cell) -> dict[int, tuple[str, Mapping[str, str]]]:
    """rank -> (record, concept -> value in effect), the newest of each rank up to the bad step."""
    out: dict[int, tuple[str, Mapping[str, str]]] = {}
    for r in ledger.of("effective", cell.segment):
        if r.step is None or r.step <= cell.step:
            values = {k: v.value.text() for k, v in r.payload.values.items()}
            out[r.rank] = r.id, {**(out[r.rank][1] if r.rank in out else {}), **values}
    return out


def _watched(ledger: Ledger, segment: str, rank: int) -> str | None:
    """What of the machine of a rank was watched, as its node said at the end; imported events are no watch."""
    nodes = {(p.segment, p.rank): p.place.node for p in events_.places(ledger.records)}
    for r in ledger.of("coverage", segment):
        if nodes.get((segment, r.rank)) != nodes.get((segment, rank)):
            continue
        for text in r.payload.recorded:
            if text.startswith("hardware events: "):
                return str(text.removeprefix("hardware events: ").partition("; ")[0])
    return None


def _devices(graph: Graph, cells: Cells, first: schemas.FirstBad) -> list[int]:
    """Numbers of earlier segments whose first bad cell was on the same device, where it is a GPU.

    A machine's processor is the same in every segment of a small run, which shows nothing.
    """
    out = []
    if first.cell is None or first.place is None or first.place.device == "cpu":
        return []
    for uid, other in cells.first_bads.items():
        if uid == first.cell.segment:
            break
        if other.cell is not None and same_device(first.place, other.place):
            out.append(graph.number(uid))
    return out


# -- evidence and replays


def _bundle(ledger: Ledger, cell: schemas.Cell) -> str | None:
    """The folder with the evidence of the bad step: of its rank before others, the nearest step."""
    found = [
        r for r in ledger.of("bundle", cell.segment) if abs(r.payload.first_bad_step - cell.step) <= AROUND
    ]
    best = min(
        found, key=lambda r: (r.rank != cell.rank, abs(r.payload.first_bad_step - cell.step)), default=None
    )
    if best is None:
        return None
    path = Path(best.payload.location)
    return str(path if path.is_absolute() else ledger.path / path)


def _replays(ledger: Ledger, cell: schemas.Cell) -> list[tuple[str, schemas.Replay]]:
    """The replays of this incident: of a bundle of its segment, or of its step."""
    roots = {r.payload.root: r.segment for r in ledger.of("bundle")}
    return [
        (r.id, r.payload)
        for r in ledger.of("replay")
        if roots.get(r.payload.bundle, cell.segment) == cell.segment
        and abs(r.payload.first_bad_step - cell.step) <= AROUND
    ]
