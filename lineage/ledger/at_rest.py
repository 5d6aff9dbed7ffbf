"""The live states at the saves of a run, to hold a checkpoint's files against."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .. import digest_text
from .._rooms import schemas
from ..judge import at_rest, graph, whole_state
from ..judge.at_rest import AtRest, Held
from ..judge.whole_state import Part, WholeState
from . import series, whole_states
from .reader import Ledger
from .whole_states import Moment


def live(ledger: Ledger, node: graph.Node) -> WholeState:
    """The state of all ranks at a save."""
    return whole_states.state(Moment(ledger.path, node.segment, "save", node.checkpoint.step))


def against(node: graph.Node, state: WholeState, held: Sequence[Held], untold: Mapping[str, str]) -> AtRest:
    """Compare what files hold with the state at a save."""
    return at_rest.compare(held, state.tensors, untold, unsaved(node.checkpoint))


def unsaved(checkpoint: schemas.Checkpoint) -> list[str]:
    """Buffers that no file holds by design, as far as the save recorded them."""
    details = [c.detail.get("not_saved") for c in checkpoint.live if c.component == "buffers"]
    return [name for d in details if d is not None for name in str(d.value).split(", ")]


def others(
    ledger: Ledger, node: graph.Node, held: Sequence[Held], untold: Mapping[str, str]
) -> Iterator[tuple[graph.Node, AtRest]]:
    """Other saves of the run whose live state the files hold: of each all that could be matched is equal."""
    nodes = graph.build(ledger.records).nodes.values()
    by_segment: dict[str, list[graph.Node]] = defaultdict(list)
    for other in nodes:
        if other.uid != node.uid and (other.segment, other.checkpoint.step) != (
            node.segment,
            node.checkpoint.step,
        ):
            by_segment[other.segment].append(other)
    for segment, mine in by_segment.items():
        world = max((r.payload.world_size for r in ledger.of("segment", segment)), default=0)
        parts = _saved(ledger, segment, {n.checkpoint.step for n in mine})
        for other in mine:
            state = whole_state.add_up(parts.get(other.checkpoint.step, ()), world)
            found = against(other, state, held, untold)
            if found.status == "equal":
                yield other, found


def _saved(ledger: Ledger, segment: str, steps: Iterable[int]) -> dict[int, list[Part]]:
    """Step -> what ranks wrote down at its save; the files of a segment are read once."""
    wanted = set(steps)
    out: dict[int, list[Part]] = defaultdict(list)
    for table in series.of_segment(ledger.path, segment, "states"):
        saves = whole_states.of_moment(table, "save")
        for step, part in zip(saves["step"].to_pylist(), whole_states.parts(saves), strict=True):
            if step in wanted:
                out[step].append(part)
    return out


def by_roots(checkpoint: schemas.Checkpoint, held: Sequence[Held]) -> dict[str, tuple[str, str]]:
    """Component -> (`equal` or `cannot_tell`, why), from the one digest that a sidecar has for all of its tensors.

    Equal is certain. Otherwise it is not known whether a tensor differs or a name does, so that no difference is told.
    """
    known = {c.component: c for c in checkpoint.live if c.digest is not None}
    out: dict[str, tuple[str, str]] = {}
    weights = {h.name: h.digest for h in held if h.kind == "weight" and h.digest is not None}
    parameters: list[str] = []
    for component in ("weights", "buffers", "optimizer_state"):
        c = known.get(component)
        if c is None:
            continue
        if "layout" in c.detail:
            out[component] = "cannot_tell", "the sidecar has digests of each rank's own parts"
            continue
        moments = component == "optimizer_state"
        mine = _moments(held, parameters) if moments else weights
        count = int(str(c.detail["tensors"].value)) if "tensors" in c.detail else len(mine)
        found = next((s for s in _sets(mine, count) if digest_text.root(s) == c.digest), None)
        if found is not None:
            out[component] = "equal", f"{count:,} tensors have the digest that was recorded at the save"
            parameters = list(found) if component == "weights" else parameters
        elif component == "buffers" and unsaved(checkpoint):
            out[component] = (
                "cannot_tell",
                "the one digest on record covers buffers that no file holds by design",
            )
        else:
            out[component] = (
                "cannot_tell",
                f"{len(mine):,} tensors in the files and {count:,} on record do not come to one digest: a tensor "
                "differs, or is called otherwise; the run's ledger tells which",
            )
    return out


def _moments(held: Sequence[Held], parameters: Sequence[str]) -> dict[str, str]:
    """Name within the component -> digest. Numbers stand for parameters in their order, as one group has them."""
    out = {}
    for h in held:
        if h.digest is None or whole_state.placed(h.kind, h.name)[0] != "optimizer_state":
            continue
        at = int(h.name) if h.numbered else -1
        name = parameters[at] if 0 <= at < len(parameters) else h.name
        out[whole_state.placed(h.kind, name)[1]] = h.digest
    return out


MOST_SETS = 20_000
"""Sets of names that are tried: buffers and weights lie together in files, and which are which is not told."""


def _sets(mine: dict[str, str], count: int) -> Iterator[dict[str, str]]:
    """Sets of as many names as were recorded, as the files have them and without a prefix that all bear."""
    leads = {n.partition(".")[0] for n in mine}
    for names in (mine, {n.partition(".")[2]: d for n, d in mine.items()} if len(leads) == 1 else {}):
        over = len(names) - count
        if over < 0 or math.comb(len(names), over) > MOST_SETS:
            continue
        for left_out in itertools.combinations(reversed(names), over):
            yield {n: d for n, d in names.items() if n not in left_out}
