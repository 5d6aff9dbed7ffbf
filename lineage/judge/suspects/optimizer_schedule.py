"""Optimizer and schedule: state that was not restored, moments that no update makes, a rate that nobody asked for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from statistics import median

from . import sources
from .known import Known, ProbeRow
from .rules import Family, Next, Said

family = Family("optimizer", "optimizer and schedule")

STATE = ("optimizer_state", "optimizer_step", "lr_scheduler", "grad_scaler", "master_weights")
"""Components of the optimizer and what moves it."""
RATES = ("learning_rate", "lr_schedule", "warmup", "horizon", "decay_horizon", "min_lr")
SETTINGS = (*RATES, "optimizer", "betas", "eps", "weight_decay", "param_groups", "grad_clip", "update_clip")
COUNTERS = ("LIN-C020", "LIN-C021", "LIN-P002", "LIN-P003")
"""The scheduler moves another optimizer, the counter stands still, tensors of no model, or held twice."""
BELOW = 0.98
"""Of the bound of a second moment: what rounding of a moment in 16 bits may take away over some updates."""


@family.rule("state-not-restored", "for", "exact", sources.IDEFICS)
def state_not_restored(known: Known) -> Iterable[Said]:
    """Moments, step counter, scheduler, scaler or master weights are not as at the save that the segment "
    "resumed from."""
    if known.restarted is None:
        return
    rates = any(asked_for(c) for b, c in known.changes(*RATES, within=known.restarted))
    for o in known.outcomes:
        if o.component == "lr_scheduler" and o.status == "differs" and rates:
            continue  # a rate that is asked for otherwise stands in the scheduler's state
        if o.component in STATE and o.status in ("differs", "absent"):
            yield Said(
                f"{o.text}; the bad step is {known.restarted:,} update{'' if known.restarted == 1 else 's'} after",
                tuple(known.restores),
            )


@family.rule("impossible-moment", "for", "exact", sources.ADAM)
def impossible_moment(known: Known) -> Iterable[Said]:
    """A second moment below zero, or below beta2^k times what it was k updates before: no gradient makes it so."""
    yield from (Said(text, records) for text, records in impossible(known))


@family.rule("moment-first", "for", "exact", sources.ADAM)
def moment_first(known: Known) -> Iterable[Said]:
    """A moment is not finite at a step whose gradients are all finite."""
    if known.cell.signal not in ("moment1", "moment2") or known.cell.abnormal != "non_finite":
        return
    good = known.cell.last_good or 0
    gradients = [r for r in known.rows if r.kind == "gradient" and good < r.step <= known.step]
    if gradients and not any(r.broken for r in gradients):
        yield Said(
            f"{known.cell.text}; all gradients of rank {known.rank} from step {good + 1:,} to "
            f"{known.step:,} are finite",
            (known.series("tensors"),),
        )


@family.rule("edited", "for", "exact", sources.OPT)
def edited(known: Known) -> Iterable[Said]:
    """Optimizer or scheduler were written to beside the updates while the run went on, by their counters."""
    for b, c in known.changes(*STATE):
        if b.drift.moment == "in_run":
            yield Said(f"before step {b.step:,}: {c.text}; the bad step is {known.after(b)}", (b.record,))


@family.rule("counters", "for", "exact", sources.DEEP)
def counters(known: Known) -> Iterable[Said]:
    """The scheduler moves another optimizer than the one that steps, the step counter stands still, or tensors are
    held twice or belong to no model.
    """
    for f in known.said(*COUNTERS):
        yield Said(f.finding.text, known.refs(f))


@family.rule("rate-unasked", "for", "timing", sources.OPT)
def rate_unasked(known: Known) -> Iterable[Said]:
    """Rate, betas, decay or clipping in effect changed in the updates before, and no config key asks for it."""
    for b, c in known.changes(*SETTINGS):
        with_others = c.concept in RATES and any(asked_for(o) for o in b.drift.changes if o.concept in RATES)
        if not asked_for(c) and not with_others:
            yield Said(
                f"since step {b.step:,}: {c.text}; the bad step is {known.after(b)}", (b.record, *c.evidence)
            )


@family.rule("update-first", "for", "timing", sources.MARIN)
def update_first(known: Known) -> Iterable[Said]:
    """The update's size for its learning rate grew while gradients stayed in their range."""
    rates = dict(known.course("lr"))
    sizes = [
        (s, v / rates[s])
        for s, v in known.course("update_norm")
        if rates.get(s, 0.0) > 0 and math.isfinite(v)
    ]
    if len(sizes) < 5:
        return
    usual, (last, size) = median(v for _, v in sizes[:-1]), sizes[-1]
    bad = {c.step for c in known.cells if c.signal in ("gradient", "grad_norm_local", "grad_norm")}
    if usual > 0 and size > 3 * usual and last not in bad and known.step - last <= 20:
        yield Said(
            f"the update of step {last:,} has {size / usual:.3g} times the usual size for its learning rate, and the "
            "gradients of that step are in their range",
            (known.series("probes", last),),
        )
    for f in known.said("LIN-C013", within=known.near):
        yield Said(f.finding.text, known.refs(f))


@family.rule("always-clipped", "for", "shape", sources.CLIPPING)
def always_clipped(known: Known) -> Iterable[Said]:
    """Nearly every step was clipped before: the threshold decides the size of each update."""
    for f in known.said("LIN-P008", within=known.near):
        yield Said(f.finding.text, known.refs(f))


@family.rule("state-restored", "against", "exact", sources.IDEFICS)
def state_restored(known: Known) -> Iterable[Said]:
    """Everything of the optimizer is, bit for bit, what the save held that the segment resumed from."""
    held = {o.component: o.status for o in known.outcomes if o.component in STATE}
    if held.get("optimizer_state") == "restored" and not {"differs", "absent"} & {*held.values()}:
        what = ", ".join(c.replace("_", " ") for c, s in held.items() if s == "restored")
        yield Said(f"restored bit for bit at the start of the segment: {what}", tuple(known.restores))


@family.rule("as-asked", "against", "exact", sources.OPT)
def as_asked(known: Known) -> Iterable[Said]:
    """Rate and clipping that changed are in effect as the config asks for them: optimizer and schedule did what they
    were told.
    """
    for b, c in known.changes(*SETTINGS):
        if asked_for(c):
            yield Said(f"in effect as it is asked for since step {b.step:,}: {c.text}", (b.record,))


@family.rule("same-on-all", "against", "exact", sources.DDP)
def same_on_all(known: Known) -> Iterable[Said]:
    """Copies of a weight differ between ranks and the moments of it agree bit for bit."""
    for p in known.parted:
        if known.replicas_differ and known.cell.tensor in p.tensors and p.holds == "weights alone":
            yield Said(
                f"at step {p.step:,} weights of {_few(p.tensors)} differ between ranks, and all moments of "
                "them are equal",
                (known.series("states", p.step),),
            )


@family.rule("no-restart", "against", "absence", sources.GUIDE)
def no_restart(known: Known) -> Iterable[Said]:
    """The segment is a fresh start, so no state was loaded, and nothing of optimizer or schedule changed in it."""
    if known.start == "fresh" and known.compared_configs and not known.changes(*SETTINGS, *STATE):
        yield Said(
            "no state was loaded in this segment, and no change of rate, betas, decay or clipping is on "
            "record in the "
            f"{known.near} updates before"
        )


def asked_for(change: object) -> bool:
    """Whether a config asks for what a change brought."""
    return (
        getattr(change, "requested_after", None) is not None
        or getattr(change, "requested_before", None) is not None
    )


def impossible(known: Known) -> list[tuple[str, tuple[str, ...]]]:
    """Second moments that no update makes, up to the bad step, each with what shows it."""
    rows = [r for r in known.rows if r.kind == "moment2" and r.step <= known.step]
    out: list[tuple[str, tuple[str, ...]]] = []
    for r in rows:
        if r.lowest is not None and r.lowest < 0:
            out.append(
                (
                    f"the second moment of {r.tensor} has an element of {r.lowest:.4g} at step {r.step:,}, "
                    "and it is a mean "
                    "of squares",
                    (known.series("tensors", r.step),),
                )
            )
            break
    beta2 = _beta2(known)
    if beta2 is not None:
        out += _decayed(known, rows, beta2)
    if not out:
        out += [(f.finding.text, known.refs(f)) for f in known.said("LIN-P006", within=known.near)]
    return out


def _decayed(known: Known, rows: list[ProbeRow], beta2: float) -> list[tuple[str, tuple[str, ...]]]:
    """v(t) >= beta2 * v(t-1) element by element, so its norm cannot fall faster either."""
    by_tensor: dict[str, list[ProbeRow]] = {}
    for r in rows:
        by_tensor.setdefault(r.tensor, []).append(r)
    worst: tuple[float, str, tuple[str, ...]] | None = None
    for tensor, found in by_tensor.items():
        found.sort(key=lambda r: r.step)
        for a, b in pairwise(found):
            least = a.norm * beta2 ** (b.step - a.step) * BELOW
            if a.broken or b.broken or least <= 0 or b.norm >= least:
                continue
            text = (
                f"the second moment of {tensor} fell from a norm of {a.norm:.4g} (step {a.step:,}) to "
                f"{b.norm:.4g} (step "
                f"{b.step:,}); with beta2 = {beta2:g} no gradients let it fall below {least / BELOW:.4g}"
            )
            if worst is None or b.norm / least < worst[0]:
                worst = (
                    b.norm / least,
                    text,
                    (known.series("tensors", a.step), known.series("tensors", b.step)),
                )
    return [worst[1:]] if worst else []


def _beta2(known: Known) -> float | None:
    """The least beta2 of any parameter group; None where none is on record."""
    found = [
        v
        for signal, of in known.signals.items()
        if signal.startswith("beta2 of group")
        for v in of.get(known.rank, {}).values()
    ]
    return min(found, default=None)


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


@family.check
def _resume(known: Known) -> Next | None:
    if known.restarted is None or any(o.status in ("differs", "absent") for o in known.outcomes):
        return None
    if any(o.component == "optimizer_state" and o.status == "restored" for o in known.outcomes):
        return None
    return Next(
        "what the resume restored: moments, step counter, schedule, scaler; a component that is not as "
        "saved comes first",
        sources.IDEFICS,
        f"lineage resume {known.run} --segment {known.segment}",
    )


@family.check
def _reset(known: Known) -> Next | None:
    if known.tried("optimizer-reset"):
        return None
    return Next(
        "the step again with a fresh optimizer state, with nothing else changed: clean, and what the "
        "optimizer held has a "
        "part in it",
        sources.GUIDE,
        known.replay("optimizer-reset"),
    )


@family.check
def _course(known: Known) -> Next | None:
    return Next(
        "rate, clip rate and the norms of moments and updates over the steps before, beside the schedule",
        sources.DEEP,
        f"lineage report {known.run}",
    )


@family.gap
def _unrestored(known: Known) -> Iterable[str]:
    if known.restarted is not None:
        told = {o.component for o in known.outcomes if o.status != "not_recorded"}
        if "optimizer_state" not in told:
            yield (
                "whether the optimizer's state was restored: `rec.checkpoint(path, step)` at each save records its "
                "digests"
            )


@family.gap
def _no_moments(known: Known) -> Iterable[str]:
    if not any(r.kind == "moment2" for r in known.rows):
        yield (
            f"the moments of rank {known.rank} before the bad step: `lineage.attach(..., optimizer=optimizer, "
            "state_every=1)` reads them at each"
        )
