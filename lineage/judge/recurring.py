"""What first bad cells of several segments have in common: the device, under whichever rank it ran."""

from __future__ import annotations

from collections.abc import Mapping

from .._rooms import schemas
from .graph import Graph
from .seen import RankSeen, same_device


def recurring(
    graph: Graph, found: Mapping[str, schemas.FirstBad], ranks: Mapping[str, Mapping[int, RankSeen]]
) -> dict[str, schemas.FirstBad]:
    """Add to each first bad cell where its device stood in the other segments.

    Ranks are numbered anew at a restart, devices are not. Said where a device bears the first bad cell again, and
    where the segment before it knew the device as another rank.
    """
    order = list(graph.segments)
    out = {}
    for uid, bad in found.items():
        lines = _again(graph, uid, bad, found) or _before(graph, uid, bad, order, ranks)
        if lines and bad.symptoms:
            first, *rest = bad.symptoms
            told = first.model_copy(update={"evidence": [*first.evidence, *lines]})
            bad = bad.model_copy(update={"symptoms": [told, *rest]})  # noqa: PLW2901 - the one that is told
        out[uid] = bad
    return out


def _again(graph: Graph, uid: str, bad: schemas.FirstBad, found: Mapping[str, schemas.FirstBad]) -> list[str]:
    out = []
    for other, earlier in found.items():
        if other == uid:
            break
        if earlier.cell is not None and same_device(bad.place, earlier.place):
            out.append(
                f"the same device had the first bad cell of segment {graph.number(other)}, as rank {earlier.cell.rank}"
            )
    return out


def _before(
    graph: Graph,
    uid: str,
    bad: schemas.FirstBad,
    order: list[str],
    ranks: Mapping[str, Mapping[int, RankSeen]],
) -> list[str]:
    """As which rank the device ran in the segment before, where that is another number."""
    at = order.index(uid)
    if at == 0 or bad.place is None or bad.cell is None:
        return []
    before = ranks.get(order[at - 1], {})
    same = [r for r, s in before.items() if same_device(bad.place, s.place)]
    number = graph.number(order[at - 1])
    if same and bad.cell.rank not in same:
        return [f"ranks were numbered anew: this device was rank {same[0]} in segment {number}"]
    if before and not same and all(s.place is not None for s in before.values()):
        return [f"this device was not there in segment {number}"]
    return []
