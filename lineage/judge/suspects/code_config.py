"""Code and config: what was changed, by whom it was asked for, and how long before the bad step."""

from __future__ import annotations

from collections.abc import Iterable

from ..._rooms import schemas
from . import sources
from .known import Boundary, Known
from .optimizer_schedule import STATE, asked_for
from .rules import Family, Next, Said

family = Family("code", "code and config")

RESTORED = (*STATE, "weights", "buffers", "ema", "rng", "loader_position")
"""Components of a resume: what is not restored is no change that a config asks for."""
OWN = ("software", "hardware", "determinism")
"""Of the machine, and no config's."""


@family.rule("config-changed", "for", "timing", sources.GUIDE)
def config_changed(known: Known) -> Iterable[Said]:
    """A setting that results depend on was asked for otherwise, and came into effect, in the updates before."""
    for b, c in _asked(known):
        yield Said(
            f"since step {b.step:,}: {c.text}{_declared(b, c)}; the bad step is {known.after(b)}",
            (b.record, *c.evidence),
        )


@family.rule("code-changed", "for", "timing", sources.BLOOM)
def code_changed(known: Known) -> Iterable[Said]:
    """The code that runs is other than before, in the updates before."""
    for b, c in known.changes("code"):
        yield Said(
            f"since step {b.step:,}: {c.text}{_declared(b, c)}; the bad step is {known.after(b)}", (b.record,)
        )


@family.rule("edited", "for", "timing", sources.OPT)
def edited(known: Known) -> Iterable[Said]:
    """The training code wrote to weights, optimizer or loader beside the updates while the run went on."""
    for b, c in known.changes(*RESTORED, "state_edit"):
        if b.drift.moment == "in_run":
            yield Said(f"before step {b.step:,}: {c.text}; the bad step is {known.after(b)}", (b.record,))


@family.rule("unclassified-changed", "for", "shape", sources.GUIDE)
def unclassified_changed(known: Known) -> Iterable[Said]:
    """Keys changed of which it is not known what they do to results."""
    for b in known.boundaries:
        if 0 <= known.step - b.step <= known.near and b.drift.unclassified:
            names = [k for c in b.drift.unclassified for k in c.keys or [c.concept]]
            more = f" and {len(names) - 4} more" if len(names) > 4 else ""
            yield Said(
                f"since step {b.step:,}: keys of which it is not known what they do: "
                f"{', '.join(names[:4])}{more}; the bad "
                f"step is {known.after(b)}",
                (b.record,),
            )


@family.rule("clip-would-have-cut", "for", "shape", sources.CLIPPING)
def clip_would_have_cut(known: Known) -> Iterable[Said]:
    """Clipping changed in the updates before, and the gradient of the bad step would have been cut under the old
    threshold.
    """
    for b, c in known.changes("grad_clip"):
        old = c.effective_before.plain() if c.effective_before is not None else None
        course = {s: v for s, v in known.course("grad_norm") if s >= b.step} or {
            s: v for s, v in known.course("grad_norm_local") if s >= b.step
        }
        if not isinstance(old, int | float) or not course:
            continue
        above = [s for s, v in course.items() if v > old]
        if above:
            step = max(above, key=lambda s: course[s])
            yield Said(
                f"{len(above):,} of the {len(course):,} updates since step {b.step:,} had a gradient norm "
                f"above {old:g}, the "
                f"largest {course[step]:.4g} at step {step:,}: they would have been cut before",
                (b.record, known.series("probes", step)),
            )


@family.rule("nothing-changed", "against", "absence", sources.GUIDE)
def nothing_changed(known: Known) -> Iterable[Said]:
    """No change of code or config is on record in the updates before."""
    if known.compared_configs and not _asked(known) and not known.changes("code"):
        older = [b for b in known.boundaries if any(_own(c) for c in b.drift.changes)]
        last = f"; the last one is {known.step - older[0].step:,} updates before" if older else ""
        yield Said(f"no change of code or config is on record in the {known.near} updates before{last}")


@family.rule("replicas-differ", "against", "shape", sources.DDP)
def replicas_differ(known: Known) -> Iterable[Said]:
    """Copies differ between ranks that run one code with one config."""
    settings = known.said("LIN-R003", "LIN-R020")
    if known.replicas_differ and not settings and not known.changes("code") and not _asked(known):
        yield Said(
            "copies differ between ranks, and no setting that is on record is another one on some rank",
            (known.series("states"),),
        )


def _asked(known: Known) -> list[tuple[Boundary, schemas.Change]]:
    return [(b, c) for b, c in known.changes() if _own(c)]


def _own(c: schemas.Change) -> bool:
    """Whether a change is one of config or code, of a class that results depend on."""
    if c.concept in (*RESTORED, *OWN, "code"):
        return False
    return asked_for(c) and c.cls in ("R", "C", "B")


def _declared(b: Boundary, c: schemas.Change) -> str:
    if c.mitigation is not None:
        return " (declared)"
    return " (undeclared)" if c.concept in b.drift.undeclared else ""


@family.check
def _diff(known: Known) -> Next | None:
    changed = [*_asked(known), *known.changes("code")]
    if not changed:
        return None
    several = len({c.concept for _, c in changed})
    what = "the change taken back, from the checkpoint before: clean, and it has a part in it"
    if several > 1:
        what = (
            f"the {several} changes taken back one at a time, from the checkpoint before: they are confounded"
        )
    return Next(what, sources.BLOOM, f"lineage diff {known.run}")


@family.check
def _before(known: Known) -> Next | None:
    return Next(
        "what differs from the last stretch that was good: code, config, environment, requested and in effect",
        sources.GUIDE,
        f"lineage diff {known.run}",
    )


@family.gap
def _no_config(known: Known) -> Iterable[str]:
    if not known.compared_configs:
        yield "what was asked for and what was in effect: `lineage.attach(..., config=config)` records it"
