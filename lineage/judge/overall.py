"""From the claims to one status: the worst of those that flag a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .._rooms import schemas


def overall(statuses: Mapping[str, schemas.Status]) -> schemas.Status:
    """The status of a whole verdict: the worst of the claims that flag a run.

    Bits and speed are no conclusion about results: a swapped node must not flag a run, or people mute the flag.
    """
    flagging = schemas.catalogue().flagging
    return worst(status for claim, status in statuses.items() if claim in flagging)


def broken_since(claims: Sequence[schemas.ClaimVerdict]) -> int | None:
    """The first step from which a claim that flags a run is broken."""
    flagging = schemas.catalogue().flagging
    steps = [k.step for c in claims if c.claim in flagging for k in c.chain if k.effect == "broken"]
    return min(steps, default=None)


def worst(statuses: Iterable[schemas.Status]) -> schemas.Status:
    """The worst of several statuses; `holds` for none."""
    return max(statuses, key=schemas.STATUS_ORDER.index, default="holds")
