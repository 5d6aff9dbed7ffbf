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
    drift = drift_.drift(drift_.Side(config=before), drift_.Side(config=after), from_step=1)
    found = compare(before, after)
    pair = _Pair(str(uuid7()), source, when)
    out: list[schemas.Reported] = []
    for change in [*drift.changes, *drift.unclassified]:
        out.append(pair.entry(change, change.cls, order + len(out), []))
    known = {c.concept for c in drift.changes}
    for change in found.one_sided.values():
        if change.concept not in known:
            why = found.not_shown.get(
                change.concept, "only one config states it, and its default is not known"
            )
            out.append(pair.entry(change, "unclassified", order + len(out), [why]))
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
            before=change.requested_before,
            after=change.requested_after,
            problems=problems,
            source=self.source.model_copy(update={"place": f"{self.source.place}, {keys}"}),
        )
