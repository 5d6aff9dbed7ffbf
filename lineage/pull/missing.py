"""What a tracker does not have of a run, and why: one sentence each, from the records themselves."""

from __future__ import annotations

from ..judge import rank_sets
from ..ledger.reader import Ledger, SegmentView


def of(ledger: Ledger, values: int) -> list[str]:
    """Everything that is known not to be here."""
    out = [
        "the series: values of each rank and layer, batches, samples and digests of the state of every step are not "
        "sent to trackers; "
        + (
            f"the {values:,} values that the training code logged there stand in their place, as of rank 0"
            if values
            else "no value that the training code logged was found either"
        )
    ]
    for segment in ledger.segments:
        out += _ranks(segment)
        out += _tail(ledger, segment)
    return out


def _ranks(segment: SegmentView) -> list[str]:
    silent = sorted(set(range(segment.info.world_size)) - set(segment.ranks))
    if not silent:
        return []
    return [
        f"segment {segment.number}: journals of {rank_sets.words(silent)} of {segment.info.world_size:,}: rank 0 sends "
        "what it sees in its own folder when it seals, and did not see these"
    ]


def _tail(ledger: Ledger, segment: SegmentView) -> list[str]:
    if ledger.of("segment_end", segment.uid):
        return []
    seals = ledger.of("seal", segment.uid)
    last = seals[-1].step if seals else None
    at = "its last seal" if last is None else f"its last seal, of step {last:,}"
    return [
        f"segment {segment.number}: what was recorded after {at}, which is sent with the next one: the segment was "
        "killed, or still goes on"
    ]
