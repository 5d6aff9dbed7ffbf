"""nvidia-resiliency-ext's note of the faults that its tests injected (`fault_injection.log`)."""

from __future__ import annotations

import re

from .draft import Draft, Found

_RANKS = re.compile(r"^Fault ranks: \[([\d, ]*)\]\s*$")
_DELAY = re.compile(r"^Fault delay: (\d+(?:\.\d+)?)\s*$")
_FAULT = re.compile(r"^Rank (\d{1,7}), fault_type: (\w+)\s*$")


def looks_like(first: str) -> bool:
    """Whether a first line is one of such a note."""
    return bool(_RANKS.match(first) or _FAULT.match(first))


def read(text: str) -> Found:
    """One event for each rank into which a fault was injected. The note has no time."""
    found = Found("nvrx")
    announced: set[int] = set()
    delay: float | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        found.read += 1
        if m := _RANKS.match(line):
            announced = {int(r) for r in m[1].split(",") if r.strip()}
        elif m := _DELAY.match(line):
            delay = float(m[1])
        elif m := _FAULT.match(line):
            values = {} if delay is None else {"delay_s": delay}
            text_ = f"a fault of type {m[2]} was injected into rank {m[1]} on purpose"
            found.drafts.append(
                Draft("process", "fault", text_, code=m[2], rank=int(m[1]), values=values, line=number)
            )
        else:
            found.problems.append(f"line {number} is none of a fault injection's: left out")
    missing = announced - {d.rank for d in found.drafts}
    if missing:
        found.problems.append(
            f"LIN-E006: ranks {', '.join(map(str, sorted(missing)))} are announced, and the file has no line of them"
        )
    if found.drafts:
        found.problems.append("LIN-E002: the file has no times; --at says when the faults were injected")
    return found
