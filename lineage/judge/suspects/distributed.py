"""Distributed: copies that parted, gradients that were not the same, a reduction between good and bad."""

from __future__ import annotations

import math
from collections.abc import Iterable

from .. import agreement, rank_sets
from ..agreement import Pattern
from ..execution import LOCAL
from . import sources
from .known import Known
from .rules import Family, Next, Said

family = Family("distributed", "distributed")

TOPOLOGY = (
    "world_size",
    "dp_sharding",
    "tensor_parallel",
    "pipeline_parallel",
    "context_parallel",
    "expert_parallel",
    "moe_routing",
    "comm_compression",
    "local_steps",
    "communication",
    "replica_sync",
)
GRADIENTS = (agreement.GRADIENT, agreement.ALL)
LINKS = ("nccl", "network", "nvlink")


@family.rule("gradients-not-same", "for", "exact", sources.DDP)
def gradients_not_same(known: Known) -> Iterable[Said]:
    """All that the optimizer keeps of a tensor differs between its copies: the gradients that were applied were not
    the same, and the reduced norms of that step are not known to be.
    """
    for p in known.parted:
        if p.holds in GRADIENTS and reduced_alike(known, p) is not True:
            yield Said(f"{_parted(p)}: all that the optimizer keeps of them differs too", _refs(known, p))


@family.rule("whole-tensor", "for", "exact", sources.DDP)
def whole_tensor(known: Known) -> Iterable[Said]:
    """The copies of a weight differ in more than one element, and its moments agree: another start, a missed
    broadcast, a copy that stayed behind.
    """
    alone = {e.tensor for e in known.elements}
    for p in known.parted:
        names = [t for t in p.tensors if t not in alone]
        if p.holds in (agreement.WEIGHTS, agreement.BUFFER, agreement.BARE) and names and decoded(known, p):
            yield Said(
                f"{_parted(p)}: in more than one element, while what the optimizer keeps of them agrees",
                _refs(known, p),
            )


@family.rule("no-majority", "for", "exact", sources.DDP)
def no_majority(known: Known) -> Iterable[Said]:
    """Three ranks or more hold a tensor of their own each: something that makes them equal did not happen."""
    for p in known.parted:
        if not p.odd and len(p.ranks) > 2 and p.holds not in GRADIENTS:
            yield Said(_parted(p), _refs(known, p))


@family.rule("starts", "for", "exact", sources.OLMO)
def starts(known: Known) -> Iterable[Said]:
    """Ranks started from different states, or with each other's random numbers."""
    for f in known.said("LIN-R005", "LIN-R006", "LIN-C009"):
        if known.finding_here(f):
            yield Said(f.finding.text, known.refs(f))


@family.rule("made-by-the-reduction", "for", "exact", sources.GUIDE)
def made_by_the_reduction(known: Known) -> Iterable[Said]:
    """The reduced gradient is abnormal, and those of all ranks are in range before the reduction."""
    if known.cell.signal != "grad_norm":
        return
    local = known.values("grad_norm_local", known.step)
    if local and len(local) >= known.world and known.world > 1 and all(map(math.isfinite, local.values())):
        bad = {c.rank for c in known.cells if c.step == known.step and c.signal in LOCAL}
        if not bad:
            yield Said(
                f"the reduced gradient is abnormal at step {known.step:,}, and those of all {len(local):,} "
                "ranks are in "
                "their range before the reduction",
                (known.series("probes"),),
            )


@family.rule("topology-changed", "for", "timing", sources.BLOOM)
def topology_changed(known: Known) -> Iterable[Said]:
    """World size, parallelism or communication changed in the updates before."""
    for b, c in known.changes(*TOPOLOGY):
        yield Said(f"since step {b.step:,}: {c.text}; the bad step is {known.after(b)}", (b.record,))


@family.rule("links", "for", "timing", sources.LLAMA)
def links(known: Known) -> Iterable[Said]:
    """Errors of links, network or collectives at the time of the bad step."""
    for n in known.events:
        if n.placed.event.category in LINKS and n.placed.event.severity != "note" and n.seconds <= 0:
            yield Said(n.text(), (n.placed.record,))


@family.rule("settings-differ", "for", "exact", sources.BLOOM)
def settings_differ(known: Known) -> Iterable[Said]:
    """Ranks took updates with unlike rates, clipping, loss scales or counters."""
    for f in known.said("LIN-R003", "LIN-R020"):
        if known.finding_here(f):
            yield Said(f"{f.finding.subject}: {f.finding.text}", known.refs(f))


@family.rule("replicas-agree", "against", "exact", sources.DDP)
def replicas_agree(known: Known) -> Iterable[Said]:
    """Copies agreed, bit for bit, whenever they were compared up to the bad step."""
    if known.agreed is None or known.parted:
        return
    count, last = known.agreed
    yield Said(
        f"{known.compared.tensors:,} tensors agreed bit for bit at {count:,} steps up to step {last:,}"
        + ("" if last == known.step else f"; between it and step {known.step:,} they were not compared"),
        (f"series states: segment {known.segment}, step {last}",),
    )


@family.rule("one-rank-only", "against", "exact", sources.DDP)
def one_rank_only(known: Known) -> Iterable[Said]:
    """The run has one rank: nothing is reduced, and there are no copies."""
    if known.world == 1:
        yield Said("the run has one rank: nothing is reduced over ranks, and no copy can part")


@family.rule("before-the-reduction", "against", "shape", sources.GUIDE)
def before_the_reduction(known: Known) -> Iterable[Said]:
    """The first bad cell is what a rank computed by itself, before its gradient is reduced."""
    if known.world > 1 and known.cell.signal in LOCAL and not known.parted:
        yield Said(
            f"it begins in what rank {known.rank} computed at step {known.step:,} before anything was "
            "reduced; what earlier "
            "reductions left in its weights is not excluded",
            (known.series("probes"),),
        )


@family.rule("one-element", "against", "exact", sources.LEMIRE)
def one_element(known: Known) -> Iterable[Said]:
    """Copies differ in one element alone: a reduction or a broadcast moves whole buckets."""
    for e in known.elements[:2]:
        yield Said(
            f"{e.text()}; a reduction or a broadcast that goes wrong leaves more",
            (known.series("states", e.step),),
        )


@family.rule("reduced-alike", "against", "exact", sources.DDP)
def reduced_alike_line(known: Known) -> Iterable[Said]:
    """Copies parted while the reduced gradients had the same norm on all ranks, bit for bit: it came after them."""
    for p in known.parted:
        if p.holds in GRADIENTS and reduced_alike(known, p):
            steps = _apart(known, p)
            yield Said(
                f"{_parted(p)}, and the reduced gradients of steps {steps[0]:,} to {steps[-1]:,} have the same norm on "
                "all of them, to the last bit: what parted them came after the reduction (clipping, the update's "
                "kernel)",
                (*_refs(known, p), known.series("probes", steps[0])),
            )


def reduced_alike(known: Known, p: Pattern) -> bool | None:
    """Whether the reduced norm was equal on all ranks in each update of the stretch in which they parted.

    None where it is not recorded on all of them.
    """
    for step in _apart(known, p):
        found = known.values("grad_norm", step)
        if not {*p.ranks} <= {*found}:
            return None
        if len({found[r] for r in p.ranks}) > 1:
            return False
    return True


def _apart(known: Known, p: Pattern) -> range:
    """The updates in which they parted: from the last digest that agreed, else from the first of the segment."""
    agreed = p.agreed
    if agreed is None:
        agreed = known.parent_step or 0 if known.start != "fresh" else 0
    return range(agreed + 1, p.step + 1)


def decoded(known: Known, p: Pattern) -> bool:
    """Whether it was looked, for all tensors of a pattern, if one element alone differs."""
    return known.looked_at_elements and p.step <= known.step


def _parted(p: Pattern) -> str:
    since = "at the first step that was compared" if p.agreed is None else f"and agreed at step {p.agreed:,}"
    names = ", ".join(p.tensors[:3]) + (f" and {len(p.tensors) - 3} more" if len(p.tensors) > 3 else "")
    who = (
        f"{rank_sets.words(p.odd)} parted from {rank_sets.words(set(p.ranks) - set(p.odd))}"
        if p.odd
        else f"{rank_sets.words(p.ranks)} hold a thing of their own each"
    )
    return f"{who} in {names} by step {p.step:,} ({since})"


def _refs(known: Known, p: Pattern) -> tuple[str, ...]:
    rank = p.odd[0] if p.odd else p.ranks[0]
    return (known.series("states", p.step, rank), *known.groups[:1])


@family.check
def _ranks(known: Known) -> Next | None:
    if known.world < 2 or known.agreed is None:
        return None
    if not known.parted:
        return None
    return Next(
        "the odd rank's tensor beside another's, element by element, and what skipped its reduction or broadcast",
        sources.DEEP,
        f"lineage ranks {known.run} --segment {known.segment}",
    )


@family.check
def _world(known: Known) -> Next | None:
    if known.world < 2:
        return None
    if not known.made_on_one_device and not known.tried("single-device"):
        return Next(
            "the step again on one device: clean, and topology, reduction or timing may have a part in it (so may "
            "precision); still bad, and none of them is needed",
            sources.GUIDE,
            known.replay(),
        )
    return Next(
        "the step again at the original world size, twice: a result that differs between two tries is timing",
        sources.MEGATRON,
        known.replay(whole=True, repeat=2),
    )


@family.gap
def _not_compared(known: Known) -> Iterable[str]:
    if known.world > 1 and known.agreed is None:
        yield (
            "whether ranks held the same bits before it: `lineage.attach(..., model=model, "
            "agree_every=50)` on every rank "
            "digests what they hold"
        )


@family.gap
def _no_reduced(known: Known) -> Iterable[str]:
    if known.world > 1 and any(
        p.holds in GRADIENTS and reduced_alike(known, p) is None for p in known.parted
    ):
        yield (
            "whether the reduced gradient was the same on all ranks: its norm is read where "
            "`clip_grad_norm_` is called, "
            "on every rank"
        )


@family.gap
def _silent(known: Known) -> Iterable[str]:
    yield from known.first.gaps[:2]
