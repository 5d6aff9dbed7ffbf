"""What a segment restored, from everything that the ledger holds of it: digests, batches, losses, first updates."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .._rooms import schemas
from ..judge import (
    batches,
    drift,
    first_updates,
    graph,
    loss_continued,
    restored_from,
    restored_whole,
    same_bytes,
    saved_ranks,
    starts_ranks,
)
from ..judge.first_updates import Lost, Sizes, Update
from ..judge.loss_continued import Continued
from ..judge.resharded import Resharded
from ..judge.restored_whole import Outcome
from . import series, tables, whole_states
from .reader import Ledger, SegmentView


@dataclass
class Resumed:
    """One segment that went on from a checkpoint."""

    segment: str
    number: int
    checkpoint: str | None
    path: str | None
    step: int | None
    saved_on: int | None
    """ranks"""
    world: int
    outcomes: list[Outcome] = field(default_factory=list)
    findings: list[schemas.Finding] = field(default_factory=list)
    losses: Continued | None = None
    sizes: Sizes | None = None
    lost: Lost | None = None
    """a step counter that was lost while Adam's moments were kept"""
    not_in_effect: list[str] = field(default_factory=list)
    """what the config asks for since this resume, and the live objects do not hold"""

    @property
    def faithful(self) -> bool | None:
        """Whether all that was recorded was restored; None where nothing was compared."""
        decided = [o for o in self.outcomes if o.status != "not_recorded"]
        if any(o.status != "restored" for o in decided):
            return False
        return True if decided else None


def saves(ledger: Ledger, segment: str) -> list[schemas.Finding]:
    """What the saves of a segment show beside each other, whether or not anything resumed from them."""
    return [*saved_ranks.findings(ledger.records, segment), *same_bytes.findings(ledger.records, segment)]


def look(ledger: Ledger, segment: SegmentView, saved_in: Path | None = None) -> Resumed | None:
    """What a segment restored; None where it did not go on from anything.

    `saved_in`: the ledger that holds the save, where that is another run's.
    """
    info = segment.info
    if info.start == "fresh":
        return None
    home = ledger if saved_in is None else Ledger(saved_in)
    g = graph.build([*home.records, *(ledger.records if home is not ledger else [])], reached=home.reached)
    node = g.nodes.get(info.parent_checkpoint or "")
    saved_by = g.segments.get(node.segment) if node else None
    out = Resumed(
        segment.uid,
        segment.number,
        info.parent_checkpoint,
        node.checkpoint.path if node else None,
        node.checkpoint.step if node else info.parent_step,
        saved_by.world_size if saved_by else None,
        info.world_size,
    )
    changes = _changes(ledger, segment.uid)
    out.outcomes = _with_first_batch(
        outcomes(ledger, segment.uid, whole_states.of_resume(ledger, segment.uid, saved_in)), changes
    )
    out.not_in_effect = [c.text for c in changes if c.keys and drift.requested_only(c)]
    records = ledger.records if home is ledger else [*home.records, *ledger.records]
    out.findings += restored_from.findings(records, segment.uid)
    out.findings += starts_ranks.findings(records, segment.uid)
    out.findings += _stale(ledger, out)
    if node is not None:
        _first_steps(out, ledger, home, g, node)
    return out


def outcomes(ledger: Ledger, segment: str, found: Resharded | None) -> list[Outcome]:
    """Each component: what all ranks show together, and on which ranks it is otherwise."""
    restores = [r for r in ledger.of("restore", segment) if r.payload.scope == "rank"]
    newest: dict[int, schemas.Restore] = {r.rank: r.payload for r in restores}
    first = newest.get(0) or next(iter(newest.values()), None)
    told = restored_whole.whole(first, found) if first is not None and found is not None else None
    return restored_whole.outcomes(newest, told)


def _stale(ledger: Ledger, out: Resumed) -> list[schemas.Finding]:
    """That the optimizer holds tensors of no model, where its state is not that of the save."""
    if all(o.status == "restored" for o in out.outcomes if o.component == "optimizer_state"):
        return []
    recorded = [r.payload for r in ledger.of("finding", out.segment) if r.payload.code == "LIN-P002"]
    return recorded[:1]


def _changes(ledger: Ledger, segment: str) -> list[schemas.Change]:
    """What changed at the resume, as rank 0 told it after the first update."""
    found = [r.payload for r in ledger.of("drift", segment) if r.payload.moment == "resume"]
    return [c for d in found for c in d.changes]


def _with_first_batch(found: list[Outcome], changes: list[schemas.Change]) -> list[Outcome]:
    """With what the first batch of rank 0 shows: it decides where a loader's position could not be compared."""
    shown = [c for c in changes if c.read_from == batches.SOURCE and c.concept in DATA]
    left = [
        Outcome(o.found, ranks)
        for o in found
        if (ranks := tuple(r for r in o.ranks if not (shown and r == 0 and _open_position(o)))) or not o.ranks
    ]
    told = [
        schemas.ComponentRestore(
            component="data_order" if c.concept == "data_order" else "loader_position",
            status="differs",
            text=c.text,
        )
        for c in shown
    ]
    return left + [Outcome(t, (0,)) for t in told]


DATA = ("loader_position", "batch_skip", "data_order")


def _open_position(o: Outcome) -> bool:
    return o.component == "loader_position" and o.status == "not_recorded"


def _first_steps(out: Resumed, ledger: Ledger, home: Ledger, g: graph.Graph, node: graph.Node) -> None:
    """The first updates and losses, of rank 0, beside those before the save and on another branch."""
    step = node.checkpoint.step
    before = [s for s in g.path_to(node.uid) if s.segment]
    tables = [_signals(home.path, s.segment, s.after, min(s.upto or step, step)) for s in before]
    earlier = _by_step(pa.concat_tables(tables)) if tables else {}
    after = _by_step(_signals(ledger.path, out.segment, step, step + 12))
    out.sizes = first_updates.sizes(_updates(earlier), _updates(after))
    out.lost = _lost(out, _betas(ledger, out.segment))
    found = first_updates.finding(out.sizes, out.lost)
    out.findings += [found] if found else []
    other = _branch(ledger, home, g, node, out.segment)
    if other is not None:
        there_path, segment = other
        there = _with_batches(there_path, segment, _by_step(_signals(there_path, segment, step, step + 12)))
        here = _with_batches(ledger.path, out.segment, after)
        losses = [v["loss"] for _, v in sorted(earlier.items()) if "loss" in v]
        out.losses = loss_continued.continued(there, here, losses, step + 1)
        odd = loss_continued.finding(out.losses)
        out.findings += [odd] if odd else []


def _signals(ledger: Path, segment: str, after: int, upto: int) -> pa.Table:
    """Rows of rank 0's loss, update norm and rate, of the updates `after` < step <= `upto`."""
    names = ["rank", "step", "signal", "value"]
    empty = tables.TABLES["probes"].empty_table().select(names)
    found = [empty]
    for table in series.of_segment(ledger, segment, "probes"):
        t = table.select(names)
        near = pc.and_(pc.greater(t["step"], after), pc.less_equal(t["step"], upto))
        wanted = pc.is_in(t["signal"], pa.array(["loss", "update_norm", "lr"]))
        found.append(t.filter(pc.and_(pc.and_(near, wanted), pc.equal(t["rank"], 0))))
    return pa.concat_tables(found)


def _by_step(table: pa.Table) -> dict[int, dict[str, float]]:
    out: dict[int, dict[str, float]] = {}
    columns = (table[name].to_pylist() for name in ("step", "signal", "value"))
    for step, signal, value in zip(*columns, strict=True):
        out.setdefault(step, {})[signal] = value
    return out


def _updates(values: dict[int, dict[str, float]]) -> list[Update]:
    return [
        Update(s, v["update_norm"], v["lr"]) for s, v in values.items() if "update_norm" in v and "lr" in v
    ]


def _with_batches(
    ledger: Path, segment: str, values: dict[int, dict[str, float]]
) -> dict[int, tuple[list[str], float]]:
    """step -> (digests of rank 0's micro-batches in order, loss)."""
    digests: dict[int, dict[int, str]] = {}
    for table in series.of_segment(ledger, segment, "batches"):
        t = table.filter(pc.and_(pc.equal(table["rank"], 0), pc.is_in(table["step"], pa.array(list(values)))))
        columns = (t[name].to_pylist() for name in ("step", "micro", "digest"))
        for step, micro, digest in zip(*columns, strict=True):
            digests.setdefault(step, {})[micro] = digest
    return {
        s: ([d for _, d in sorted(digests.get(s, {}).items())], v["loss"])
        for s, v in values.items()
        if "loss" in v
    }


def _branch(
    ledger: Ledger, home: Ledger, g: graph.Graph, node: graph.Node, segment: str
) -> tuple[Path, str] | None:
    """The segment that shows what came after the save: the one that saved it, else one that resumed before this."""
    if g.last_step.get(node.segment, 0) > node.checkpoint.step:
        return home.path, node.segment
    for other in g.children(node.uid):
        if other == segment:
            return None
        of = ledger if any(s.uid == other for s in ledger.segments) else home
        return of.path, other
    return None


def _betas(ledger: Ledger, segment: str) -> tuple[float, float] | None:
    for r in reversed(ledger.of("effective", segment)):
        held: Any = r.payload.values.get("betas")
        value = held.value.plain() if held is not None else None
        if isinstance(value, list) and len(value) == 2 and all(isinstance(v, int | float) for v in value):
            return float(value[0]), float(value[1])
    return None


def _lost(out: Resumed, betas: tuple[float, float] | None) -> Lost | None:
    """The counter of rank 0's optimizer, where it alone was lost, or of all ranks' together."""
    by = {o.component: o for o in out.outcomes if 0 in o.ranks or not o.ranks}
    counter, moments = by.get("optimizer_step"), by.get("optimizer_state")
    if betas is None or counter is None or moments is None or moments.status != "restored":
        return None
    found = re.search(r"\bstep (\d+) -> (\d+)", counter.text) if counter.status == "differs" else None
    return Lost(betas, int(found[1]), int(found[2])) if found else None
