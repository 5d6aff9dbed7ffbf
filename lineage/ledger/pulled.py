"""What a ledger that was pulled out of a tracker says of itself: from where, against which anchors, and what it lacks.

The file `pulled.json` stands in the ledger's folder. It is a note of who pulled, and no record of the run: whoever can
write the folder can write it, so a root that matters is read in the tracker again (`lineage verify --anchor`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from . import layout


class Coded(Protocol):
    """Anything with the code of a rule."""

    @property
    def code(self) -> str:
        """The code."""


C = TypeVar("C", bound=Coded)
NOT_FROM_A_TRACKER: Mapping[str, str] = MappingProxyType(
    {
        "LIN-U004": "what each rank recorded before the reduction is not sent to trackers",
        "LIN-U021": "evidence and step values are not sent to trackers",
        "LIN-U043": "journals of other ranks are sent only where rank 0 sees them",
    }
)
"""Rules of the audit that look at what no tracker has -> why a pulled ledger cannot answer them."""
_BETWEEN = "lines of the journal are not on these pages, and what was done between or since may stand in them"
NOT_FROM_A_PART: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(
        (
            *("LIN-I004", "LIN-U001", "LIN-U003", "LIN-U006", "LIN-U007", "LIN-U010", "LIN-U013", "LIN-U030"),
            *("LIN-U031", "LIN-U032", "LIN-U033", "LIN-U045"),
        ),
        _BETWEEN,
    )
)
"""Findings that rest on what was not done, or on what came next -> why a ledger that lacks lines cannot tell them."""
NAME = "pulled.json"
SCHEMA = "lineage/pulled/1-0-0"


class Root(BaseModel):
    """A root as it stood in the tracker when it was read."""

    model_config = ConfigDict(extra="allow")
    root: str
    place: str


class Page(BaseModel):
    """One page of the run that was read."""

    model_config = ConfigDict(extra="allow")
    tracker: str
    id: str
    source: str
    """what `lineage pull` takes to read it again"""
    read_at: str
    """UTC, when it was read last"""
    anchors: list[Root] = []


class Pulled(BaseModel):
    """The marker: pages that were read, and what is known not to be there."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)
    format: str = SCHEMA
    run: str
    pages: list[Page] = []
    missing: list[str] = []
    """what the tracker does not have, and why, one sentence each"""
    notes: list[str] = []
    """what else a reader must know, such as where the page contradicts itself"""
    lines: dict[str, int] = {}
    """journal file -> lines that the pages had of it, from its first on"""
    values: str = ""
    """sha256 of what the training code had logged to the pages; empty where it was not read"""

    @property
    def roots(self) -> list[str]:
        """All roots that were read, each once."""
        return list(dict.fromkeys(a.root for p in self.pages for a in p.anchors))

    @property
    def places(self) -> list[str]:
        """Where these roots stand."""
        return list(dict.fromkeys(f"{p.tracker}: {a.place}" for p in self.pages for a in p.anchors))

    @property
    def since(self) -> str:
        """When the pages were read: the oldest reading counts."""
        return min((p.read_at for p in self.pages), default="")


class MarkerDamaged(ValueError):
    """The marker cannot be read."""


def read(ledger: Path) -> Pulled | None:
    """The marker of a ledger; None where it was not pulled. Raises `MarkerDamaged`."""
    path = ledger / NAME
    if not path.is_file():
        return None
    try:
        return Pulled.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as e:
        raise MarkerDamaged(f"{path} cannot be read: {str(e).splitlines()[0]}") from None


def write(ledger: Path, marker: Pulled) -> None:
    """Write the marker, whole or not at all."""
    text = json.dumps(json.loads(marker.model_dump_json()), indent=1, ensure_ascii=False)
    layout.write_durably(ledger / NAME, text.encode())


def judged(found: Sequence[C], *, pulled: bool, partial: bool = False) -> tuple[list[C], list[C]]:
    """(what stands, what a ledger that was pulled cannot answer) of an audit's findings.

    `partial`: lines that something names are not there, so that nothing is known to have been left undone.
    """
    open_ = {**(NOT_FROM_A_TRACKER if pulled else {}), **(NOT_FROM_A_PART if partial else {})}
    return [f for f in found if f.code not in open_], [f for f in found if f.code in open_]
