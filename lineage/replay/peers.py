"""The other ranks of a run, where one device makes an update again that all of them made together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bundle.reading import Bundle, within

if TYPE_CHECKING:
    from .building import Built
    from .step import Inputs, Step


class _Nothing:
    """Stands for a rank without a bundle of the step."""

    def steps(self) -> list[int]:
        """It holds no batches."""
        return []


NOTHING: Any = _Nothing()


def of(bundle: Bundle) -> list[Bundle | None]:
    """The bundles of all ranks at this step, in the order of ranks; None where a rank has none."""
    found = {b.manifest.rank: b for b in within(Path(bundle.path).parent) if b.step == bundle.step}
    found[bundle.manifest.rank] = bundle
    return [found.get(r) for r in range(bundle.manifest.world_size)]


def passes(
    built: Built, ranks: Sequence[Inputs], mine: Inputs, one: Callable[[Inputs, Step], None], out: Step
) -> None:
    """Forward and backward passes of each rank in turn; the averaged gradients are left for the update.

    Each rank's gradient is multiplied by one over their number, and the products are added up: for two ranks bit for
    bit what DistributedDataParallel makes, for more the order of additions may be another. `mine` comes last, so that
    what the probes have read in the end is of it.
    """
    from .step import Step

    share = 1.0 / len(ranks)
    totals: dict[int, Any] = {}
    parameters = [p for p in built.model.parameters() if p.requires_grad]
    for given in [*(g for g in ranks if g is not mine), mine]:
        one(given, out if given is mine else Step(given.step))
        for p in parameters:
            if p.grad is not None:
                part = p.grad * share
                totals[id(p)] = totals[id(p)] + part if id(p) in totals else part
    for p in parameters:
        p.grad = totals.get(id(p))
