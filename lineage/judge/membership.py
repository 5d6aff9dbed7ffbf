"""Which parameters an optimizer updates by which rules: what moved from one parameter group to another.

Weight decay, rates and frozen layers are given to groups. A norm that lands among the matrices, because a class test
missed its class, changes no setting of any group: only who is in it. Names come as `lineage.capture.names.patterns`
writes them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .._rooms import schemas
from .values import arrow, same

MOST = 6
"""Names that a text lists."""
_GROUP = re.compile(r"^(?P<counts>\d+ tensors, \d+ values)(?: \((?P<digest>\w+): (?P<names>.*)\))?$")


def equal(before: schemas.Scalar, after: schemas.Scalar) -> bool:
    """Whether two sides have the same groups. A group whose names one side does not tell is compared by its counts."""
    a, b = _texts(before), _texts(after)
    if len(a) != len(b):
        return False
    return all(_same_group(x, y) for x, y in zip(a, b, strict=True))


def moved(
    before: schemas.Scalar, after: schemas.Scalar, decay: Sequence[schemas.Scalar | None]
) -> str | None:
    """Who moved, in words: `norm.weight from group 1 to group 0 (weight decay 0 -> 0.1)`; None where no name tells.

    `decay`: the weight decay of all groups on either side, as one value or a list of one for each group.
    """
    a, b = _members(before), _members(after)
    if not a or not b:
        return None
    out = []
    for pattern in sorted({*a, *b}):
        old, new = a.get(pattern, {}), b.get(pattern, {})
        came, left = _more(new, old), _more(old, new)
        for to, n in came.items():
            since = next(iter(left), None)
            many = f"{n} of {pattern}" if n > 1 or "*" in pattern else pattern
            where = f"from group {since} to group {to}" if since is not None else f"new in group {to}"
            out.append(f"{many} {where}{_decays(decay, since, to)}")
        if not came:
            out += [f"{pattern} left group {g}" for g in left]
    more = f" and {len(out) - MOST} more" if len(out) > MOST else ""
    return "; ".join(out[:MOST]) + more if out else None


def told(change: schemas.Change, decay: Sequence[schemas.Scalar | None]) -> schemas.Change:
    """A change of groups with who moved, where names tell it."""
    a, b = change.effective_before, change.effective_after
    found = moved(a, b, decay) if a is not None and b is not None else None
    return change if found is None else change.model_copy(update={"text": f"{change.title}: {found}"})


def _texts(value: schemas.Scalar) -> list[str]:
    plain = value.plain()
    return [str(x) for x in plain] if isinstance(plain, list) else [str(plain)]


def _same_group(a: str, b: str) -> bool:
    one, two = _GROUP.match(a), _GROUP.match(b)
    if one is None or two is None:
        return a == b
    if one["digest"] is None or two["digest"] is None:
        return one["counts"] == two["counts"]
    return a == b


def _members(value: schemas.Scalar) -> dict[str, dict[int, int]]:
    """Pattern -> group -> how many there are."""
    out: dict[str, dict[int, int]] = {}
    for g, text in enumerate(_texts(value)):
        match = _GROUP.match(text)
        for entry in match["names"].split(", ") if match and match["names"] else ():
            pattern, _, n = entry.rpartition(" x")
            name, count = (pattern, int(n)) if pattern and n.isdigit() else (entry, 1)
            out.setdefault(name, {})[g] = count
    return out


def _more(a: dict[int, int], b: dict[int, int]) -> dict[int, int]:
    """By how many a side exceeds the other, group by group."""
    return {g: n - b.get(g, 0) for g, n in a.items() if n > b.get(g, 0)}


def _decays(decay: Sequence[schemas.Scalar | None], since: int | None, to: int) -> str:
    if since is None:
        return ""
    old, new = _of_group(decay[0], since), _of_group(decay[1], to)
    if old is None or new is None or same(old, new):
        return ""
    return f" (weight decay {arrow(old, new)})"


def _of_group(decay: schemas.Scalar | None, group: int) -> schemas.Scalar | None:
    if decay is None:
        return None
    plain = decay.plain()
    if isinstance(plain, list):
        return schemas.Scalar.of(plain[group]) if group < len(plain) else None
    return decay
