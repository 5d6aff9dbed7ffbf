"""Several changes in the run at one step: the verdict has all of them."""

from __future__ import annotations

import schemas
from lineage.judge import validity

from .builders import History, uid


def in_run(concept_id: str, text: str) -> schemas.Drift:
    """A change while the run goes on, at step 5."""
    concept = schemas.catalogue().concept(concept_id)
    change = schemas.Change(concept=concept_id, cls=concept.cls, title=concept.title, text=text)
    return schemas.Drift(moment="in_run", from_step=5, changes=[change], confounded=False)


def test_a_change_that_another_rank_records_at_the_same_step_hides_none() -> None:
    """Rank 0 sees the decay, rank 1 its own loader: both stand in the chain, in whatever order they came."""
    for order in ((0, 1), (1, 0)):
        h = History()
        h.segment(1)
        drifts = (in_run("weight_decay", "decay"), in_run("batch_skip", "rank 1: skipped"))
        for rank in order:
            h.drift(1, drifts[rank], rank=rank)
        verdict = validity.verdict(h.records, segment=uid(1))
        told = {k.text for c in verdict.claims for k in c.chain}
        assert told == {"decay", "rank 1: skipped"}
