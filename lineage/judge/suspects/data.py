"""Data: what was read at the bad step, and whether it is odd, repeated, or was read without harm elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from .. import rank_sets, replay_ladder
from ..execution import STATE
from . import sources
from .known import BatchRow, Known
from .rules import Family, Next, Said

family = Family("data", "data")

REPEATED = ("LIN-B001", "LIN-B002", "LIN-B003", "LIN-B004")
LATELY = 200
"""Updates back to which a repetition or a mixture counts."""
CONCEPTS = (
    "data_mix",
    "data_filter",
    "data_order",
    "batch_skip",
    "tokenizer",
    "packing",
    "curriculum",
    "seq_len",
)
LEAST = 16
"""Batches before from which is known what is usual."""
ODD = (
    "length_max",
    "length_min",
    "mask_density",
    "padding",
    "target_tokens",
    "eos",
    "bos",
    "highest",
    "lowest",
)
"""Statistics of a batch that are held against those before it."""
FAR = 10.0


@family.rule("ids-out-of-range", "for", "exact", sources.EMBEDDING)
def ids_out_of_range(known: Known) -> Iterable[Said]:
    """Token ids that are not in the vocabulary at the bad step, and in few of the steps before."""
    here = [b for b in _at_bad(known) if b.stats.get("out_of_range", 0) > 0]
    before = {b.step for b in _before(known)}
    also = {b.step for b in _before(known) if b.stats.get("out_of_range", 0) > 0}
    if not here or 2 * len(also) > len(before):
        return
    worst = max(here, key=lambda b: b.stats["out_of_range"])
    highest = f", the highest {worst.stats['highest']:,.0f}" if "highest" in worst.stats else ""
    yield Said(
        f"{rank_sets.words(b.rank for b in here)} read {sum(b.stats['out_of_range'] for b in here):,.0f} "
        "token ids at "
        f"step {worst.step:,} that are not in the vocabulary{highest}; in {len(also):,} of the {len(before):,} steps "
        "before there were any",
        (
            *(known.series("batches", b.step, b.rank) for b in here[:4]),
            *(r for f in known.said("LIN-B007", within=LATELY) for r in known.refs(f)),
        ),
    )


@family.rule("read-again", "for", "exact", sources.REPEATED)
def read_again(known: Known) -> Iterable[Said]:
    """Samples that stand twice in a batch, were read lately, or are read by two ranks, by their digests."""
    for f in known.said(*REPEATED, within=LATELY):
        since = f" (found at step {f.step:,})" if f.step is not None else ""
        yield Said(f"{f.finding.text}{since}", known.refs(f))


@family.rule("position-not-restored", "for", "exact", sources.LIGHTNING)
def position_not_restored(known: Known) -> Iterable[Said]:
    """The loader's position was not restored, or ranks read each other's data, at the restart just before."""
    after = known.restarted
    if after is not None and after <= known.near:
        for o in known.outcomes:
            if o.component == "loader_position" and o.status in ("differs", "absent"):
                yield Said(f"{o.text}; the bad step is {after:,} updates after", tuple(known.restores))
    for f in known.said("LIN-R007", within=LATELY):
        yield Said(f.finding.text, known.refs(f))


@family.rule("same-batch-bad", "for", "exact", sources.BYTEROBUST)
def same_batch_bad(known: Known) -> Iterable[Said]:
    """The very batch of the bad step, by its digest, was read at another step and was abnormal there too."""
    for s in known.same:
        if s.abnormal and s.step != known.step:
            yield Said(
                f"the batch of the bad step was also read in segment {s.segment} at step {s.step:,} on rank "
                f"{s.rank}, "
                "and was abnormal there too: it went with the batch",
                (f"series batches: segment {s.segment}, rank {s.rank}, step {s.step}",),
            )


@family.rule("mixture", "for", "timing", sources.GUIDE)
def mixture(known: Known) -> Iterable[Said]:
    """The mixture of domains left the declared one, or a data setting changed, in the updates before."""
    for f in known.said("LIN-B005", "LIN-B006", within=LATELY):
        yield Said(f.finding.text, known.refs(f))
    for b, c in known.changes(*CONCEPTS):
        yield Said(f"since step {b.step:,}: {c.text}; the bad step is {known.after(b)}", (b.record,))


@family.rule("one-sample", "for", "shape", sources.GUIDE)
def one_sample(known: Known) -> Iterable[Said]:
    """The loss of single samples of the bad batch is abnormal, and of the others it is not."""
    for s in known.first.samples[:4]:
        yield Said(s.text, (known.series("samples"),))


@family.rule("odd-batch", "for", "shape", sources.GUIDE)
def odd_batch(known: Known) -> Iterable[Said]:
    """A statistic of the batch (lengths, mask, padding, ids) lies far from those of the batches before."""
    for name in ODD:
        usual = [b.stats[name] for b in _before(known) if name in b.stats]
        here = [b for b in _at_bad(known) if b.rank == known.rank and name in b.stats]
        if len(usual) < LEAST or not here:
            continue
        centre = median(usual)
        spread = max(median(abs(x - centre) for x in usual) * 1.4826, (max(usual) - min(usual)) / 4)
        worst = max(here, key=lambda b: abs(b.stats[name] - centre))
        away = abs(worst.stats[name] - centre)
        if away > FAR * spread and away > 0.1 * max(abs(centre), 1.0):
            yield Said(
                f"{name.replace('_', ' ')} of the batch is {worst.stats[name]:.4g}, where {centre:.4g} was usual "
                f"({min(usual):.4g} to {max(usual):.4g} in {len(usual):,} batches before)",
                (known.series("batches", worst.step),),
            )


@family.rule("one-rank", "for", "shape", sources.BYTEROBUST)
def one_rank(known: Known) -> Iterable[Said]:
    """It began on one rank, before anything is reduced: its batch is one of the things that only it has."""
    if "one_rank" in known.symptoms and not known.replicas_differ and known.cell.signal not in STATE:
        yield Said(
            f"it began on rank {known.rank} alone, before the reduction, and that rank's batch is no other rank's",
            (known.series("batches"),),
        )


@family.rule("same-batch-healthy", "against", "exact", sources.PALM)
def same_batch_healthy(known: Known) -> Iterable[Said]:
    """The very batch of the bad step, by its digest, was read elsewhere in the run without harm: not the batch by
    itself, which may still do harm in this state.
    """
    for s in known.same:
        if s.abnormal is False:
            loss = "" if s.loss is None else f" (loss {s.loss:.4g})"
            yield Said(
                f"the batch of the bad step was also read in segment {s.segment} at step {s.step:,} on rank {s.rank} "
                f"and was in its range there{loss}: not the batch by itself. What it does in this state is not "
                "shown by that",
                (f"series batches: segment {s.segment}, rank {s.rank}, step {s.step}",),
            )


@family.rule("replicas-differ", "against", "exact", sources.DDP)
def replicas_differ(known: Known) -> Iterable[Said]:
    """Copies of one tensor differ between ranks: gradients are averaged, so no batch parts them."""
    if known.replicas_differ:
        yield Said(
            f"copies of {known.cell.tensor} differ between ranks; the gradients of all batches are averaged, and the "
            "average is the same on every rank",
            (known.series("states"),),
        )


@family.rule("state-first", "against", "exact", sources.ADAM)
def state_first(known: Known) -> Iterable[Said]:
    """What the optimizer keeps is such as no gradient makes it (a second moment below zero, or below what it decays
    to).
    """
    from .optimizer_schedule import impossible

    for text, records in impossible(known):
        yield Said(f"{text}; no batch does that", records)


@family.rule("usual-batch", "against", "absence", sources.GUIDE)
def usual_batch(known: Known) -> Iterable[Said]:
    """The batch of the bad step is like those before in all that was looked at; that does not acquit it."""
    here = [b for b in _at_bad(known) if b.rank == known.rank]
    if not here or len(_before(known)) < LEAST or list(odd_batch(known)) or list(ids_out_of_range(known)):
        return
    looked = [n for n in (*ODD, "out_of_range") if n in here[0].stats]
    if looked and not list(read_again(known)):
        yield Said(
            f"in {len(looked)} statistics ({', '.join(n.replace('_', ' ') for n in looked[:4])}, ...) the "
            "batch is like "
            f"the {len(_before(known)):,} before, and no sample was read lately; its content may be odd all the same",
            (known.series("batches"),),
        )


def _at_bad(known: Known) -> list[BatchRow]:
    """The batches from after the last good step to the bad one, of all ranks."""
    good = known.first.last_good_step
    since = known.step if good is None else min(good + 1, known.step)
    return [b for b in known.batches if since <= b.step <= known.step]


def _before(known: Known) -> list[BatchRow]:
    """The batches that the rank read before."""
    good = known.first.last_good_step
    since = known.step if good is None else min(good + 1, known.step)
    return [b for b in known.batches if b.step < since and b.rank == known.rank]


@family.check
def _other_rank(known: Known) -> Next | None:
    if known.world < 2 or known.replicas_differ or known.tried("other-rank-batch"):
        return None
    other = next((r for r in known.bundled if r != known.rank), None)
    return Next(
        f"the step again with the batch of another rank in the place of rank {known.rank}'s: clean, and it went with "
        "the batch; still bad, and it stays with the state, the code or the device",
        sources.BYTEROBUST,
        None if other is None else known.replay(f"other-rank-batch:{other}"),
    )


@family.check
def _without_sample(known: Known) -> Next | None:
    if known.tried("without-sample") or known.replicas_differ:
        return None
    place = replay_ladder.sample(known.first) or "0"
    which = "the sample that stands out" if known.first.samples else "one sample after the other"
    return Next(
        f"the step again without {which}: clean, and it needs that sample (in this state)",
        sources.PALM,
        known.replay(f"without-sample:{place}"),
    )


@family.check
def _show(known: Known) -> Next | None:
    return Next(
        "the batch as it was read, beside the ones before: tokens, lengths, mask, ids",
        sources.GUIDE,
        f"lineage bundle show {known.bundle}" if known.bundle else f"lineage show {known.run}",
    )


@family.gap
def _no_fingerprint(known: Known) -> Iterable[str]:
    if not any(b.rank == known.rank for b in _at_bad(known)):
        yield (
            f"a fingerprint of rank {known.rank}'s batch at step {known.step:,}: `with rec.step(step, batch)` or "
            "`st.batch(batch)` records it"
        )


@family.gap
def _no_sample_losses(known: Known) -> Iterable[str]:
    if (
        not known.first.samples
        and known.cell.signal in ("loss", "grad_norm_local")
        and not known.replicas_differ
    ):
        yield "which sample of the batch: `st.sample_losses(losses)` records the loss of each"
