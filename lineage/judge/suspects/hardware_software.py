"""Hardware and software: one damaged element, events of the machine, ranks or sides with other software."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .. import agreement, rank_sets
from ..execution import LOCAL
from . import sources
from .known import Known
from .rules import Family, Next, Said

family = Family("hardware", "hardware and software")

SOFTWARE = ("software", "hardware", "fused_kernels", "attn_kernel", "compile", "determinism", "offload")
MACHINE = ("ecc", "xid", "remap", "throttle", "driver", "node", "nvlink", "process")
MANY = 64
"""Elements of a tensor from which one alone stands out."""
KERNELS = ("fused_kernels", "attn_kernel", "compile", "determinism", "precision")
"""Concepts whose values in effect tell which kernels a rank runs."""


@family.rule("one-element", "for", "exact", sources.SDC)
def one_element(known: Known) -> Iterable[Said]:
    """Copies of a tensor differ in one element alone, by their digests: a flipped bit, or a word damaged "
    "on its way."""
    for e in known.elements[:4]:
        yield Said(
            e.text(), (known.series("states", e.step, e.rank), known.series("states", e.step, e.other))
        )


@family.rule("odd-rank-other-software", "for", "exact", sources.RANDOMNESS)
def odd_rank_other_software(known: Known) -> Iterable[Said]:
    """The ranks whose copies differ are the ones that run other kernels, by the values in effect there."""
    odd = next((p.odd for p in known.parted if p.odd), ())
    if not odd and "one_rank" in known.symptoms:
        odd = (known.rank,)
    for concept, text in _unlike(known.held, odd):
        yield Said(
            f"{rank_sets.words(odd)} run with another setting of {concept.replace('_', ' ')} than the other "
            f"ranks: {text}",
            tuple(known.held_by[r] for r in sorted(known.held_by)[:4]),
        )


@family.rule("other-forward", "for", "exact", sources.NUMERICAL)
def other_forward(known: Known) -> Iterable[Said]:
    """The same weights, restored bit for bit, gave another loss on the same batch than another branch had, and
    software or kernels are other ones.
    """
    held = {o.component: o.status for o in known.outcomes}
    changed = [c for _, c in known.changes(*SOFTWARE)]
    if known.losses is None or held.get("weights") != "restored" or held.get("rng", "restored") != "restored":
        return
    first = known.losses.steps[0]
    if first.there != first.here and changed and not known.changes("code"):
        yield Said(
            f"{known.losses.text()}, from weights that were restored bit for bit; {changed[0].text}",
            (*known.restores, f"series probes: segment {known.segment}, rank 0, step {first.step}"),
        )


@family.rule("events", "for", "timing", sources.XID)
def events(known: Known) -> Iterable[Said]:
    """Errors of the machine, its devices or its driver up to ten minutes before the bad step, on its node."""
    for n in known.events:
        e = n.placed.event
        if (
            e.category in MACHINE
            and e.severity != "note"
            and n.seconds <= 0
            and "another node" not in n.label
        ):
            yield Said(n.text(), (n.placed.record,))


@family.rule("software-changed", "for", "timing", sources.RANDOMNESS)
def software_changed(known: Known) -> Iterable[Said]:
    """Packages, builds, drivers, devices or kernel switches changed in the updates before."""
    for b, c in known.changes(*SOFTWARE):
        yield Said(f"since step {b.step:,}: {c.text}; the bad step is {known.after(b)}", (b.record,))


@family.rule("same-device-again", "for", "shape", sources.BYTEROBUST)
def same_device_again(known: Known) -> Iterable[Said]:
    """The device of the first bad cell had one before, in another segment, under whichever rank."""
    if known.devices:
        numbers = ", ".join(map(str, known.devices))
        yield Said(
            f"the same device had the first bad cell of segment {numbers} too", (known.series("probes"),)
        )


@family.rule("one-rank", "for", "shape", sources.SDC_LLM)
def one_rank(known: Known) -> Iterable[Said]:
    """It began on one rank: its device is one of the things that only it has."""
    odd = {p.odd for p in known.parted}
    if "one_rank" in known.symptoms and (not known.replicas_differ or odd == {(known.rank,)}):
        place = known.first.place
        where = f" (node {place.node}, device {place.device})" if place is not None else ""
        yield Said(f"it began on rank {known.rank} alone{where}", (known.series("probes"),))


@family.rule("single-value", "for", "shape", sources.GUIDE)
def single_value(known: Known) -> Iterable[Said]:
    """One element of a tensor is not finite, and all others of it are as usual."""
    for r in known.rows:
        here = r.step == known.step and r.kind == known.cell.signal and r.tensor == known.cell.tensor
        if here and r.broken == 1 and r.elements >= MANY:
            yield Said(
                f"1 of {r.elements:,} elements of the {r.kind} of {r.tensor} is not finite, the others up to "
                f"{r.largest:.4g}",
                (known.series("tensors"),),
            )


@family.rule("all-ranks-at-once", "against", "shape", sources.GUIDE)
def all_ranks_at_once(known: Known) -> Iterable[Said]:
    """All ranks show it at one step before anything is reduced: one device alone does not do that."""
    if known.world > 1 and len(known.bad_ranks) == known.world and known.cell.signal in LOCAL:
        yield Said(
            f"all {known.world:,} ranks show it at step {known.step:,}, before the reduction: no single "
            "device does that; "
            "software that all of them run may",
            (known.series("probes"),),
        )


@family.rule("it-repeats", "against", "exact", sources.MEGATRON)
def it_repeats(known: Known) -> Iterable[Said]:
    """Another segment made this step on the same batch and was abnormal there too: no passing fault of a device."""
    for s in known.same:
        if s.abnormal and s.step == known.step and s.segment != known.segment:
            yield Said(
                f"segment {s.segment} made step {s.step:,} on the same batch, and it was abnormal there too: nothing "
                "that passes",
                (f"series batches: segment {s.segment}, rank {s.rank}, step {s.step}",),
            )


@family.rule("whole-tensor", "against", "shape", sources.SDC)
def whole_tensor(known: Known) -> Iterable[Said]:
    """Copies differ in more than one element: more than a single flipped bit."""
    alone = {e.tensor for e in known.elements}
    for p in known.parted:
        if known.looked_at_elements and p.holds != agreement.GRADIENT and not alone & {*p.tensors}:
            yield Said(
                f"at step {p.step:,} the copies of {p.tensors[0]} differ in more than one element: more "
                "than one flipped "
                "bit",
                (known.series("states", p.step),),
            )


@family.rule("nothing-happened", "against", "absence", sources.LLAMA)
def nothing_happened(known: Known) -> Iterable[Said]:
    """The machine was watched, and nothing of it is on record near the bad step."""
    if known.watched and not any(n.placed.event.severity != "note" for n in known.events):
        yield Said(
            f"watched on its node: {known.watched}; no error is on record within ten minutes of the bad step"
        )


@family.rule("same-software", "against", "absence", sources.RANDOMNESS)
def same_software(known: Known) -> Iterable[Said]:
    """No change of packages, drivers, devices or kernels is on record in the updates before."""
    if known.compared_configs and not known.changes(*SOFTWARE) and not known.events:
        yield Said(
            f"no change of packages, drivers, devices or kernels is on record in the {known.near} updates before"
        )


def _unlike(held: Mapping[int, Mapping[str, str]], odd: tuple[int, ...]) -> Iterable[tuple[str, str]]:
    """(concept, in words) of each setting of kernels that the odd ranks share, and no other rank has."""
    others = [r for r in held if r not in odd]
    if not odd or not others or any(r not in held for r in odd):
        return
    for concept in KERNELS:
        mine = {held[r].get(concept, "none recorded") for r in odd}
        theirs = {held[r].get(concept, "none recorded") for r in others}
        if len(mine) == 1 and not mine & theirs:
            yield concept, f"{next(iter(mine))}, and {next(iter(theirs))} on {rank_sets.words(others)}"


@family.check
def _other_device(known: Known) -> Next | None:
    if known.replicas_differ or any(r.runs > 1 and not r.changes for _, r in known.replays):
        return None
    return Next(
        "the step again on the same device, then on another: a result that differs on the same device is "
        "transient, one "
        "that repeats there and not elsewhere is the device",
        sources.MEGATRON,
        known.replay(repeat=5),
    )


@family.check
def _elements(known: Known) -> Next | None:
    if not known.replicas_differ:
        return None
    return Next(
        "the odd rank's device with a memory test, and the same kernels on another device: digests tell "
        "that bits differ, "
        "and not what made them so",
        sources.SDC,
        f"lineage ranks {known.run} --segment {known.segment}",
    )


@family.check
def _import(known: Known) -> Next | None:
    return Next(
        "errors of its node and device around the step",
        sources.XID,
        f"lineage events import KERNEL_LOG --into {known.run}",
    )


@family.gap
def _not_watched(known: Known) -> Iterable[str]:
    if known.watched is None and not known.events:
        how = f"`lineage events import FILE --into {known.run}` reads kernel logs and monitors"
        yield f"what its machine reported: {how}"


@family.gap
def _environments(known: Known) -> Iterable[str]:
    if known.world > 1 and known.environments < known.world:
        yield (
            f"packages and drivers of {known.world - known.environments:,} of {known.world:,} ranks: the "
            "environment of "
            f"{known.environments:,} is on record"
        )
