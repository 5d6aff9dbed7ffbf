"""How well judgements of reported entries agree with marks that a person made: precision, recall, each miss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .._rooms import schemas
from .reported_words import words

MARK = "regime_change"
"""The field of an entry that holds a person's mark. The judge never reads it."""


@dataclass(frozen=True)
class Marked:
    """An entry with its run, its judgement, and a person's mark: changed, not changed, or None for undecidable."""

    run: str
    entry: schemas.Reported
    judgement: schemas.ReportedJudgement
    mark: bool | None


@dataclass
class Score:
    """Counts over entries that a person could decide; `cannot_tell` counts as not flagged."""

    name: str
    hits: int = 0
    false_alarms: int = 0
    misses: int = 0
    rightly_silent: int = 0

    @property
    def precision(self) -> float | None:
        """Of the flagged ones, the share marked as changed. None where nothing was flagged."""
        flagged = self.hits + self.false_alarms
        return self.hits / flagged if flagged else None

    @property
    def recall(self) -> float | None:
        """Of those marked as changed, the share flagged. None where none is marked."""
        marked = self.hits + self.misses
        return self.hits / marked if marked else None


@dataclass
class Report:
    """Three scores over the same entries, each disagreement by name, and the undecidable ones apart."""

    scores: list[Score]
    disagreements: list[Marked] = field(default_factory=list)
    undecided_by_judge: list[Marked] = field(default_factory=list)
    """marked by a person, `cannot_tell` to the judge"""
    undecidable: list[Marked] = field(default_factory=list)
    """a person could not decide either"""

    @property
    def decided(self) -> int:
        """How many entries a person could decide."""
        s = self.scores[0]
        return s.hits + s.false_alarms + s.misses + s.rightly_silent


def mark_of(entry: schemas.Reported) -> tuple[bool, bool | None]:
    """Whether an entry carries a mark, and the mark."""
    found = entry.extra.get(MARK)
    if found is None:
        return False, None
    return True, found.value if found.type == "bool" else None


def score(marked: Sequence[Marked]) -> Report:
    """Score the judge beside two baselines: flag everything, and look up the class of the concept alone."""
    rules: dict[str, Callable[[Marked], bool]] = {
        "this judge": lambda m: m.judgement.regime_change == "yes",
        "the concept alone": lambda m: by_concept(m.entry),
        "flag everything": lambda _: True,
    }
    decided = [m for m in marked if m.mark is not None]
    wrong = [m for m in decided if (m.judgement.regime_change == "yes") != m.mark]
    return Report(
        scores=[_count(name, decided, rule) for name, rule in rules.items()],
        disagreements=[m for m in wrong if m.judgement.regime_change != "cannot_tell"],
        undecided_by_judge=[m for m in decided if m.judgement.regime_change == "cannot_tell"],
        undecidable=[m for m in marked if m.mark is None],
    )


def by_concept(entry: schemas.Reported) -> bool:
    """The baseline: class R or C of any concept that the entry names, whatever its values."""
    catalogue = schemas.catalogue()
    return any(catalogue.concept(w.concept).cls in ("R", "C") for w in words(entry.concept))


def _count(name: str, decided: Sequence[Marked], flags: Callable[[Marked], bool]) -> Score:
    out = Score(name)
    for m in decided:
        flagged = flags(m)
        out.hits += bool(flagged and m.mark)
        out.false_alarms += bool(flagged and not m.mark)
        out.misses += bool(not flagged and m.mark)
        out.rightly_silent += bool(not flagged and not m.mark)
    return out
