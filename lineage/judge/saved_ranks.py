"""What the ranks held at one save, beside each other: step counters, buffers, and which of them the files have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from .._rooms import schemas
from . import rank_sets

CHECK = "saved-over-ranks/1"
MOST = 4
"""Groups of ranks that a text lists."""

Held = Mapping[int, schemas.ComponentDigest]
"""rank -> a component as it held it"""


def findings(records: Sequence[schemas.Record], segment: str) -> list[schemas.Finding]:
    """What differs between the ranks at the saves of a segment, each at the first save that shows it."""
    saves: dict[str, dict[str, dict[int, schemas.ComponentDigest]]] = {}
    steps: dict[str, int] = {}
    for r in records:
        if r.kind == "checkpoint" and r.segment == segment:
            steps[r.payload.uid] = r.payload.step
            of = saves.setdefault(r.payload.uid, defaultdict(dict))
            for c in r.payload.live:
                of[c.component][r.rank] = c
    out: dict[str, schemas.Finding] = {}
    for uid, components in saves.items():
        for found in (
            _counters(components.get("optimizer_step", {}), steps[uid]),
            _buffers(components, steps[uid]),
        ):
            if found is not None:
                out.setdefault(found.code, found)
    return list(out.values())


def _counters(held: Held, step: int) -> schemas.Finding | None:
    """The optimizer's own step counter is one number on all ranks, or moments are corrected in different ways."""
    by: dict[str, list[int]] = defaultdict(list)
    for rank, c in held.items():
        said = ", ".join(v.text() for k, v in c.detail.items() if k in ("step", "lowest", "highest"))
        if said:
            by[said].append(rank)
    if len(by) < 2:
        return None
    said = "; ".join(f"{rank_sets.words(ranks)}: {counter}" for counter, ranks in _by_size(by)[:MOST])
    return _finding(
        "LIN-C011",
        "fault",
        "optimizer",
        f"step counters differ between ranks at the save of step {step:,}: {said}",
        step,
        held,
        "look at which parameters each rank's optimizer holds: a group without any may not count its steps",
    )


def _buffers(components: Mapping[str, Held], step: int) -> schemas.Finding | None:
    """Buffers of plain data parallelism: each rank has its own, and a file has one rank's."""
    held = components.get("buffers", {})
    whole = {rank: c for rank, c in held.items() if c.digest is not None and "layout" not in c.detail}
    by: dict[str, list[int]] = defaultdict(list)
    for rank, c in whole.items():
        by[c.digest or ""].append(rank)
    if len(by) < 2:
        return None
    given = any("from_rank" in c.detail for c in whole.values())
    after = (
        "; before each forward pass rank 0's are given to all (broadcast_buffers), so that training reads one set"
        if given
        else ""
    )
    said = " | ".join(rank_sets.words(ranks) for _, ranks in _by_size(by)[:MOST])
    more = f" and {len(by) - MOST} more" if len(by) > MOST else ""
    return _finding(
        "LIN-C010",
        "note",
        "buffers",
        f"buffers differ between ranks at the save of step {step:,} (alike: {said}{more}): a file that one rank writes "
        f"holds that rank's, usually rank 0's{after}",
        step,
        whole,
        "where evaluation reads them, average or synchronise them before the save (SyncBatchNorm), or save each rank's",
    )


def _by_size(by: Mapping[str, list[int]]) -> list[tuple[str, list[int]]]:
    return sorted(by.items(), key=lambda item: (-len(item[1]), item[1]))


def _finding(
    code: str, severity: str, subject: str, text: str, step: int, held: Held, remedy: str
) -> schemas.Finding:
    values: dict[str, object] = {"first_step": step, "ranks": rank_sets.text(held)}
    return schemas.Finding(
        code=code,
        check=CHECK,
        severity=severity,
        subject=subject,
        text=text,
        values={k: schemas.Scalar.of(v) for k, v in values.items()},
        remedy=remedy,
    )
