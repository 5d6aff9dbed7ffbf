"""The state that all ranks of a run hold between them, from what each wrote down of its own parts.

Each row has what one part of a tensor adds to the digest of the whole tensor. Distinct parts add up modulo 2^64;
replicas of one part must be equal, and one of them counts. So the result is the same however the state is cut: a save
on four ranks and a resume on two come to the same digests, bit for bit, or something is not the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

from .. import digest_text
from . import rank_sets


@dataclass(frozen=True)
class Part:
    """What one rank holds of one tensor."""

    rank: int
    kind: str
    """`weight`, `buffer`, `moment1`, `moment2`, or `state:<key>`"""
    tensor: str
    part: str
    lanes: tuple[int, int]
    """what it adds to the lanes of the whole tensor"""
    whole: str | None
    """type and shape of the whole tensor, such as `float32[4,8]`; None where the part's place is not known"""
    elements: int


@dataclass(frozen=True)
class Whole:
    """One tensor, of all ranks."""

    digest: str | None
    why: str | None = None
    """why there is no digest, in words"""
    head: str | None = None
    """type and shape"""


@dataclass
class WholeState:
    """The state of all ranks at one moment."""

    tensors: dict[tuple[str, str], Whole] = field(default_factory=dict)
    """(kind, name) -> digest"""
    ranks: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    """ranks that wrote nothing down"""

    @property
    def roots(self) -> dict[str, str | None]:
        """Component -> one digest for its tensors, as `weights` of an unsharded run has it; None where one lacks."""
        by: dict[str, dict[str, str | None]] = defaultdict(dict)
        for (kind, name), found in self.tensors.items():
            component, text = placed(kind, name)
            by[component][text] = found.digest
        return {c: _root(named) for c, named in by.items()}


def placed(kind: str, name: str) -> tuple[str, str]:
    """(component, name within it) of a tensor."""
    if kind in ("weight", "buffer"):
        return f"{kind}s", name
    return "optimizer_state", f"{name}.{kind}"


def _root(named: Mapping[str, str | None]) -> str | None:
    known = {name: digest for name, digest in named.items() if digest is not None}
    return digest_text.root(known) if len(known) == len(named) else None


def add_up(parts: Iterable[Part], world: int = 0) -> WholeState:
    """Add up what ranks hold. `world`: how many ranks there were; those without a row are named as missing.

    A tensor has a digest only where its parts are all there, none twice, and replicas are equal.
    """
    by: dict[tuple[str, str], dict[tuple[int, str], Part]] = defaultdict(dict)
    for p in parts:
        by[p.kind, p.tensor][p.rank, p.part] = p
    ranks = {rank for found in by.values() for rank, _ in found}
    missing = tuple(sorted(set(range(world)) - ranks))
    return WholeState(
        {key: _add(list(found.values()), missing) for key, found in sorted(by.items())},
        tuple(sorted(ranks)),
        missing,
    )


def _add(parts: list[Part], missing: tuple[int, ...]) -> Whole:
    """Add up the parts of one tensor."""
    heads = {p.whole for p in parts}
    head = parts[0].whole
    if head is None or None in heads:
        return Whole(None, "which part of it a rank holds is not known")
    if len(heads) > 1:
        return Whole(None, f"ranks hold tensors of different kinds: {', '.join(sorted(map(str, heads)))}")
    distinct: dict[str, list[Part]] = defaultdict(list)
    for p in parts:
        distinct[p.part].append(p)
    for part, copies in distinct.items():
        if len({c.lanes for c in copies}) > 1:
            return Whole(None, f"{_classes(copies)} hold different values of the same part ({part})")
    found = sum(copies[0].elements for copies in distinct.values())
    whole = elements(head)
    if found < whole:
        whose = f": {rank_sets.words(missing)} wrote nothing down" if missing else ""
        return Whole(None, f"{found:,} of its {whole:,} elements are on record{whose}")
    if found > whole:
        return Whole(None, f"its parts overlap: they have {found:,} elements, and it has {whole:,}")
    lanes = [sum(copies[0].lanes[n] for copies in distinct.values()) for n in (0, 1)]
    return Whole(digest_text.finish(head, lanes), head=head)


def _classes(copies: list[Part]) -> str:
    """The ranks by what they hold."""
    by: dict[tuple[int, int], list[int]] = defaultdict(list)
    for c in copies:
        by[c.lanes].append(c.rank)
    return " and ".join(
        rank_sets.words(sorted(ranks)) for ranks in sorted(by.values(), key=len, reverse=True)
    )


def elements(head: str) -> int:
    """How many elements a tensor has, by its type and shape."""
    shape = head.partition("[")[2].rstrip("]")
    return prod(int(n) for n in shape.split(",")) if shape else 1
