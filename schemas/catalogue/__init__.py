"""The concept catalogue and the validity policy: data, with the two functions that read them.

A concept is a training condition under its canonical name, whatever a framework calls its key. The policy
says, for each concept and claim, what a change does to the claim, with a reason one can read aloud.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ..judgements import ConceptClass, Status

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Claim:
    """A downstream conclusion that somebody may want to draw."""

    id: str
    title: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Concept:
    """A training condition, its class, its keys in the frameworks, and what a change of it does."""

    id: str
    title: str
    cls: ConceptClass
    reason: str
    keys: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    noise: bool = False

    def effect(self, claim: str) -> Status:
        """What a change of this concept does to a claim."""
        if claim in self.breaks:
            return "broken"
        return "caveat" if claim in self.caveats else "holds"


UNCLASSIFIED = Concept(
    id="unclassified",
    title="unclassified config key",
    cls="unclassified",
    reason="no concept is known for this key, so what it does to results is not known either",
)


@dataclass(frozen=True)
class Catalogue:
    """All concepts and claims, and the digest that a verdict records."""

    concepts: Mapping[str, Concept]
    claims: Mapping[str, Claim]
    digest: str
    _patterns: list[tuple[re.Pattern[str], str]] = field(default_factory=list, repr=False)

    @cached_property
    def _by_key(self) -> dict[str, str]:
        return {k.lower(): c.id for c in self.concepts.values() for k in c.keys}

    def concept(self, id_: str) -> Concept:
        """Return a concept; `optimizer.nesterov` falls under `optimizer`, an unknown id is unclassified."""
        return self.concepts.get(id_) or self.concepts.get(id_.partition(".")[0], UNCLASSIFIED)

    def of_key(self, key: str) -> Concept | None:
        """Return the concept that a dotted config key carries, or None where the catalogue does not know it.

        The whole key is looked up first, then ever shorter tails: `train.optim.lr`, `optim.lr`, `lr`.
        """
        parts = re.sub(r"\[\d+\]|\.\d+(?=\.|$)", "", key).lower().replace("-", "_").split(".")
        for start in range(len(parts)):
            found = self._by_key.get(".".join(parts[start:]))
            if found:
                return self.concepts[found]
        return None


def build(*tables: Mapping[str, Any]) -> Catalogue:
    """Build a catalogue from tables of concepts and claims; later ones override earlier ones by id.

    Raises `ValueError` for a claim that no table defines.
    """
    concepts: dict[str, Concept] = {}
    claims: dict[str, Claim] = {}
    sha = hashlib.sha256(b"lineage-policy-v1\n")
    for table in tables:
        for row in table.get("claim", ()):
            claims[row["id"]] = Claim(row["id"], row["title"], tuple(row.get("needs", ())))
        for row in table.get("concept", ()):
            concepts[row["id"]] = Concept(
                id=row["id"],
                title=row["title"],
                cls=row["class"],
                reason=row["reason"],
                keys=tuple(row.get("keys", ())),
                breaks=tuple(row.get("breaks", ())),
                caveats=tuple(row.get("caveats", ())),
                noise=bool(row.get("noise", False)),
            )
    for c in concepts.values():
        sha.update(repr(c).encode())
        unknown = {*c.breaks, *c.caveats} - set(claims)
        if unknown:
            raise ValueError(
                f"concept {c.id} names unknown claims {sorted(unknown)}; known: {sorted(claims)}"
            )
    sha.update(repr(sorted(claims.items())).encode())
    return Catalogue(concepts=concepts, claims=claims, digest="sha256:" + sha.hexdigest())


@cache
def catalogue() -> Catalogue:
    """Return the shipped catalogue."""
    return build(tomllib.loads((_HERE / "concepts.toml").read_text(encoding="utf-8")))


CLAIMS: tuple[str, ...] = (
    "loss_curve",
    "scaling_law",
    "ablation",
    "evaluation",
    "data_exposure",
    "bitwise",
    "throughput",
)
"""The ids of the shipped claims, in the order in which they are shown."""
