"""What a disagreement between replicas is called, and what would tell the next thing about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .._rooms import schemas
from . import agreement, rank_sets
from .agreement import Compared, Disagreement, Pattern
from .probed import MOST

CHECK = "replica-agreement/1"

_WHAT = {
    agreement.WEIGHTS: "weights differ and their moments do not",
    agreement.BARE: "weights differ, and the optimizer keeps nothing of them that would tell a flipped bit or another "
    "start from another gradient",
    agreement.FIRST: "first moments differ, and second moments do not",
    agreement.SECOND: "second moments differ, and first moments do not",
    agreement.GRADIENT: "both moments differ: the gradients that were applied were not the same",
    agreement.ALL: "all that the optimizer keeps of them differs ({state}): in that state, or in the gradients that "
    "were applied",
    agreement.BUFFER: "buffers differ",
    agreement.OTHER: "optimizer state differs ({state}), and other state of the same tensors does not",
}
_NEXT = {
    agreement.WEIGHTS: "keep both ranks' checkpoints apart (lineage incident preserve), then compare them element by "
    "element: one element is a bit flip, all of a tensor is another start, a missed broadcast, or an update of "
    "another rate, decay or step count",
    agreement.BARE: "keep both ranks' checkpoints apart (lineage incident preserve), then compare them element by "
    "element: one element is a bit flip; of all of a tensor, compare clipping and the reduction of those ranks too",
    agreement.FIRST: "look at the optimizer state of that rank element by element, and whether it was restored there",
    agreement.SECOND: "look at the optimizer state of that rank element by element, and whether it was restored there",
    agreement.GRADIENT: "compare clipping, the reduction and accumulation (no_sync) of those ranks at that step",
    agreement.ALL: "compare that state element by element: one element is a bit flip; of all of a tensor, compare "
    "clipping, the reduction and accumulation (no_sync) of those ranks at that step",
    agreement.BUFFER: "look at what writes the buffer, and whether it is broadcast",
    agreement.OTHER: "look at the optimizer state of those ranks",
}


def findings(compared: Compared) -> list[schemas.Finding]:
    """One finding per pattern, in the order of steps. Ranks that agree give none."""
    return [_said(p) for p in agreement.patterns(compared.found)]


def of_roots(
    step: int, agreed: int | None, roots: Mapping[int, str], absent: Sequence[int]
) -> schemas.Finding:
    """Ranks that must hold the same do not, by the roots over all they hold; `absent`: whose rows are not here."""
    by_root: dict[str, list[int]] = {}
    for rank in sorted(roots):
        by_root.setdefault(roots[rank], []).append(rank)
    classes = tuple(sorted((tuple(c) for c in by_root.values()), key=lambda c: (-len(c), c)))
    d = Disagreement("", "", "", step, agreed, classes, declared=True)
    whose = _whose(Pattern(step, agreed, d.odd, d.ranks, (d,), ""))
    values: dict[str, object] = {
        "first_step": step,
        "agreed_at": agreed,
        "rank": d.odd[0] if len(d.odd) == 1 else None,
        "odd_ranks": rank_sets.text(d.odd),
        "ranks": rank_sets.text(d.ranks),
        "declared": True,
    }
    return schemas.Finding(
        code="LIN-R001" if d.odd else "LIN-R002",
        check=CHECK,
        severity="fault",
        subject="replicas",
        text=f"{whose}; they must hold the same. In which tensors is not told while the run goes on: the rows of "
        f"{rank_sets.words(absent)} were not in this ledger within some seconds",
        values={k: schemas.Scalar.of(v) for k, v in values.items() if v is not None},
        remedy="lineage ranks names the tensors when the rows are there; where ranks write to folders of their own, "
        "put those together first, or set LINEAGE_DIR to one for all",
    )


def _whose(p: Pattern) -> str:
    """Who differs from whom, and since when."""
    whose = f"{rank_sets.words(p.odd)} {_hold(p.odd)} other bits than {_others(p)}" if p.odd else _nobody(p)
    if p.agreed is None:
        return f"{whose} at step {p.step:,}, the first that was compared"
    return f"{whose} at step {p.step:,}, and agreed at step {p.agreed:,}"


def _said(p: Pattern) -> schemas.Finding:
    declared = all(d.declared for d in p.found)
    must = "must hold the same" if declared else "held the same before, or nearly all do"
    back = [d.until for d in p.found]
    again = f"; they agree again from step {max(u for u in back if u):,} on" if all(back) else ""
    what = _WHAT[p.holds].format(state=_state(p))
    if p.agreed is None and p.holds in (agreement.GRADIENT, agreement.ALL):
        of = "both moments" if p.holds == agreement.GRADIENT else _state(p)
        what = f"weights and {of} differ: another state was loaded, or gradients are not the same"
    text = f"{_whose(p)}; they {must}. {what[0].upper()}{what[1:]}{again}"
    values: dict[str, object] = {
        "first_step": p.step,
        "agreed_at": p.agreed,
        "rank": p.odd[0] if len(p.odd) == 1 else None,
        "odd_ranks": rank_sets.text(p.odd),
        "ranks": rank_sets.text(p.ranks),
        "differs": p.holds,
        "declared": declared,
    }
    names = p.tensors
    return schemas.Finding(
        code="LIN-R001" if p.odd else "LIN-R002",
        check=CHECK,
        severity="fault" if declared else "warning",
        subject="replicas",
        text=text,
        names=names[:MOST],
        count=len(names),
        values={k: schemas.Scalar.of(v) for k, v in values.items() if v is not None},
        remedy=_NEXT[p.holds],
    )


def _state(p: Pattern) -> str:
    """What of the optimizer's state differs, in its own words where it has any."""
    words = {"moment1": "first moment", "moment2": "second moment"}
    kinds = sorted({d.kind for d in p.found} - {"weight", "buffer"})
    return ", ".join(words.get(k, k.removeprefix("state:")) for k in kinds)


def _hold(ranks: tuple[int, ...]) -> str:
    return "holds" if len(ranks) == 1 else "hold"


def _others(p: Pattern) -> str:
    return rank_sets.words(set(p.ranks) - set(p.odd))


def _nobody(p: Pattern) -> str:
    if len(p.ranks) == 2:
        return f"{rank_sets.words(p.ranks)} differ (which of the two is odd cannot be told)"
    return f"{rank_sets.words(p.ranks)} differ, without a majority that holds one thing"
