"""A run's configs, one file after the other: what changed from each to the next, as machine facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uuid6 import uuid7

from .._rooms import schemas
from ..capture import config as config_
from ..judge import drift as drift_
from ..judge.requested import compare
from .entries import Book, ImportTrouble


def read_configs(paths: Sequence[Path], run: str | None = None) -> Book:
    """Read config files (YAML, JSON, TOML) of one run in the order in which they were in use.

    Raises `ImportTrouble` for a file that is missing or malformed.
    """
    book = Book(run or paths[0].stem)
    for path in paths:
        try:
            after = config_.capture(path)
        except (OSError, ValueError, TypeError, RecursionError) as e:
            raise ImportTrouble(f"{path} cannot be read as a config: {e}") from None
        if book.configs:
            source = schemas.Source(
                name=path.name, place=f"against {_before(paths, path)}", authority="machine"
            )
            book.entries += changes(book.configs[-1][1], after, len(book.entries), source, None)
        book.configs.append((len(book.entries), after))
    return book


def _before(paths: Sequence[Path], path: Path) -> str:
    return paths[list(paths).index(path) - 1].name


def changes(
    before: schemas.Config, after: schemas.Config, order: int, source: schemas.Source, when: str | None
) -> list[schemas.Reported]:
    """What differs between two configs, one entry per concept; keys of no known concept are entries as well."""
    asked = compare(before, after)
    told = dict(asked.not_shown)
    drift = drift_.drift(drift_.Side(config=before), drift_.Side(config=after), from_step=1, asked=asked)
    pair = _Pair(str(uuid7()), source, when)
    out: list[schemas.Reported] = []
    for change in [*drift.changes, *drift.unclassified]:
        out.append(pair.entry(change, change.cls, order + len(out), []))
    known = {c.concept for c in drift.changes}
    for concept, change in asked.one_sided.items():
        if concept not in known:
            why = told.get(concept, "only one config states it, and its default is not known")
            out.append(pair.entry(change, "unclassified", order + len(out), [why]))
    for concept, why in asked.not_shown.items():
        if concept not in known | asked.one_sided.keys():
            out.append(pair.open(concept, why, order + len(out)))
    return out


@dataclass(frozen=True)
class _Pair:
    """Two configs that were compared: what all their differences have in common."""

    comparison: str
    source: schemas.Source
    when: str | None

    def entry(
        self, change: schemas.Change, cls: schemas.ConceptClass, order: int, problems: list[str]
    ) -> schemas.Reported:
        keys = ", ".join(change.keys) or change.concept
        return schemas.Reported(
            uid=str(uuid7()),
            order=order,
            date=self.when,
            concept=change.concept if change.concept != "unclassified" else keys,
            cls=cls,
            comparison=self.comparison,
            keys=change.keys,
            difference=change.text,
            before=change.requested_before,
            after=change.requested_after,
            problems=problems,
            source=self.source.model_copy(update={"place": f"{self.source.place}, {keys}"}),
        )

    def open(self, concept: str, why: str, order: int) -> schemas.Reported:
        """What the two configs leave open, of which they state no two values."""
        change = schemas.Change(concept=concept, **{"class": "unclassified"}, title=concept, text=why)
        return self.entry(change, "unclassified", order, []).model_copy(update={"problems": [why]})
