"""The class of a symptom: where it shows (all ranks, some, one; one tensor), and when (after a restart).

A class says what was seen. It is no cause, and several can hold together: a tensor of one rank, soon after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._rooms import schemas
from . import execution
from .execution import EVALUATION, LOCAL, listed, ranks
from .graph import Graph
from .seen import Seen, nodes
from .symptom_checks import CHECKS

RESTART = 20
"""Updates after a restart within which what begins is called one after a restart: the detectors need eight healthy
values of a segment, and what a resume leaves wrong (moments, schedule, data position) shows within a few more."""

TITLES = {
    "global": "on all ranks",
    "one_rank": "on one rank",
    "some_ranks": "on some ranks",
    "one_tensor": "in one tensor or layer",
    "after_restart": "soon after a restart",
    "evaluation_only": "in evaluation only",
    "unknown": "not known",
}


def classify(
    graph: Graph, found: schemas.FirstBad, ordered: Sequence[schemas.Cell], seen: Seen
) -> list[schemas.Symptom]:
    """The classes of a first bad cell: first over which ranks, then in which tensor, then after what.

    `ordered`: the cells of its segment from the first bad one on. Empty where there is no first bad cell.
    """
    first = found.cell
    if first is None:
        return []
    out = [_over_ranks(first, ordered, seen)]
    return [*out, *filter(None, (_tensor(first, ordered), _restart(graph, first)))]


def _symptom(cls: str, reason: str, evidence: Sequence[str] = ()) -> schemas.Symptom:
    return schemas.Symptom.model_validate(
        {"class": cls, "reason": reason, "evidence": list(evidence), "checks": list(CHECKS[cls])}
    )


def _over_ranks(first: schemas.Cell, ordered: Sequence[schemas.Cell], seen: Seen) -> schemas.Symptom:
    if first.signal.startswith(EVALUATION):
        return _evaluation(first, ordered, seen)
    began = _began(first, ordered)
    what = execution.name(first.signal)
    if seen.count() == 0:
        return _symptom(
            "unknown", f"how many ranks there are, and what they recorded, is not at hand beside {what}"
        )
    if seen.count() == 1 and seen.world is None:
        return _symptom(
            "unknown",
            f"the source names one rank alone, and how many there were it does not say, beside {what}",
        )
    if seen.count() == 1:
        return _symptom(
            "global", f"the run has one rank, so {what} of rank {first.rank} is all there is to see"
        )
    if first.signal == "grad_norm":
        return _reduced(first, seen)
    known = _recorded(first, began, seen)
    absent = sorted({*range(seen.world or 0), *seen.ranks} - {*known})
    if len(known) < 2:
        return _symptom(
            "unknown",
            f"only {ranks(known)} of {seen.count():,} recorded {what} at step {first.step:,}: whether "
            "it is on all ranks "
            "or on one is not shown",
        )
    evidence = [f"not recorded at that step on {ranks(absent)}"] if absent else []
    fine = sorted({*known} - {*began})
    if not fine:
        return _symptom(
            "global",
            f"abnormal at step {first.step:,} on all {len(known):,} ranks that recorded it, before "
            "anything is reduced "
            "over ranks"
            if first.signal in LOCAL
            else f"abnormal at step {first.step:,} on all {len(known):,} ranks that recorded it",
            evidence,
        )
    evidence += _shared(began, seen)
    where = (
        f"abnormal at step {first.step:,} on {ranks(began)}; "
        f"{len(fine):,} of {len(known):,} ranks that recorded {what} are in range"
    )
    return _symptom("one_rank" if len(began) == 1 else "some_ranks", where, evidence)


def _began(first: schemas.Cell, ordered: Sequence[schemas.Cell]) -> list[int]:
    """The ranks that are abnormal at the step where it began, before ranks are mixed."""
    same = [c for c in ordered if c.step == first.step]
    if first.signal in LOCAL:
        return sorted({c.rank for c in same if c.signal in LOCAL})
    return sorted({c.rank for c in same if c.signal == first.signal})


def _recorded(first: schemas.Cell, began: Sequence[int], seen: Seen) -> list[int]:
    """The ranks that recorded something at that step by which they would have shown it."""
    kinds = {first.signal} if first.signal not in LOCAL else {*LOCAL}
    there = {r for r, s in seen.ranks.items() if s.signals & kinds and s.has(first.step)}
    if first.signal.startswith(execution.REPLICA):
        there = {r for r, s in seen.ranks.items() if s.has(first.step)}
    return sorted(there | {*began})


def _reduced(first: schemas.Cell, seen: Seen) -> schemas.Symptom:
    """The reduced gradient is the same on all ranks, so by itself it tells of none."""
    read = [r for r in seen.has_values("grad_norm_local") if seen.ranks[r].has(first.step)]
    blind = sorted({*range(seen.world or 0), *seen.ranks} - {*read})
    if read and not blind:
        return _symptom(
            "unknown",
            f"the reduced gradient is abnormal at step {first.step:,}, and those of all {len(read):,} "
            "ranks are in range "
            "before the reduction: it is neither on one rank nor in what the ranks computed; the "
            "reduction lies between",
        )
    return _symptom(
        "unknown",
        "the reduced gradient is the same on every rank, and before the reduction nothing is "
        f"recorded of {ranks(blind)}",
    )


def _shared(began: Sequence[int], seen: Seen) -> list[str]:
    """Which node the ranks have in common, where their places are known."""
    out = []
    for node, members in nodes(seen.ranks).items():
        if set(began) <= set(members) and len(members) < len(seen.ranks):
            of = "all" if len(began) == len(members) else f"{len(began):,}"
            place = seen.ranks[began[0]].place
            device = f", device {place.device}" if len(began) == 1 and place and place.device != "cpu" else ""
            out.append(f"on node {node}{device} ({of} of its {len(members):,} ranks)")
    return out


def _tensor(first: schemas.Cell, ordered: Sequence[schemas.Cell]) -> schemas.Symptom | None:
    name = first.tensor or first.layer
    if name is None and first.signal.startswith(execution.REPLICA):
        name = first.signal.removeprefix(execution.REPLICA)
    if name is None:
        return None
    same = [c for c in ordered if (c.step, c.rank) == (first.step, first.rank)]
    names = list(dict.fromkeys(c.tensor or c.layer or "" for c in same if _kind(c) == _kind(first)))
    layers = {c.layer for c in same if _kind(c) == _kind(first)}
    what = execution.name(_kind(first))
    if len(names) == 1 or (len(layers) == 1 and None not in layers):
        return _symptom(
            "one_tensor",
            f"at step {first.step:,} on rank {first.rank} the {what} of {listed(names)} is abnormal, "
            "and of no other " + ("tensor" if len(names) == 1 else "layer"),
        )
    if first.order and first.signal in ("gradient", "activation") and first.abnormal == "non_finite":
        before = "outputs" if first.signal == "activation" else "gradients"
        return _symptom(
            "one_tensor",
            f"at step {first.step:,} on rank {first.rank} {name} is the first of {len(names):,} "
            f"abnormal {before}, and the "
            f"{first.order:,} {before} before it are finite: it begins there, and goes through what "
            "is executed after it",
        )
    return None


def _kind(c: schemas.Cell) -> str:
    """The kind of a cell; an alarm's cell names the gradient that is not finite."""
    if c.signal.startswith(execution.REPLICA):
        return "replica"
    return "gradient" if c.signal == "grad_norm_local" and c.tensor else c.signal


def _restart(graph: Graph, first: schemas.Cell) -> schemas.Symptom | None:
    info = graph.segments.get(first.segment)
    if info is None or info.start == "fresh":
        return None
    node = graph.nodes.get(info.parent_checkpoint or "")
    parent = node.checkpoint.step if node else info.parent_step
    if parent is None:
        return None
    after = first.step - parent
    if not 0 < after <= RESTART:
        return None
    evidence = []
    if node is not None and node.marks:
        evidence.append(
            f"its parent checkpoint is marked: {listed(m.mark.replace('_', ' ') for m in node.marks)}"
        )
    of = f"segment {graph.number(first.segment)}, which is a {info.start} from the checkpoint at step {parent:,}"
    if info.start == "unknown":
        of = f"segment {graph.number(first.segment)}, which goes on from step {parent:,}"
    plural = "" if after == 1 else "s"
    return _symptom("after_restart", f"{after:,} update{plural} into {of}", evidence)


def _evaluation(first: schemas.Cell, ordered: Sequence[schemas.Cell], seen: Seen) -> schemas.Symptom:
    name = first.signal.removeprefix(EVALUATION)
    training = [c for c in ordered if not c.signal.startswith(EVALUATION) and execution.is_certain(c)]
    signals = sorted({s for r in seen.ranks.values() for s in r.signals if s in execution.SIGNALS})
    if training:
        c = training[0]
        return _symptom(
            "unknown",
            f"{name} is abnormal at step {first.step:,}, and training is too from step {c.step:,} on "
            f"({execution.name(c.signal)} on rank {c.rank}): it is not in evaluation only",
        )
    if not signals:
        return _symptom(
            "unknown",
            f"{name} is abnormal at step {first.step:,}, and no loss or gradient norm of training is "
            "recorded: whether it "
            "is in evaluation only is not shown",
        )
    what = listed([execution.name(s) for s in signals], 4)
    return _symptom(
        "evaluation_only",
        f"{name} is abnormal at step {first.step:,}, while {what} lie in their range on "
        f"{len(seen.ranks):,} "
        f"rank{'' if len(seen.ranks) == 1 else 's'} to step {seen.end():,}",
    )
