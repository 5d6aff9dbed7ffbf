"""Whether two ways of running one suite came to the same outcomes, test by test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

NOT_RUN = "not run"


@dataclass
class Observed:
    """What the observer in a session saw."""

    calls: int = 0
    runs: int = 0
    failures: int = 0
    first_failure: str = ""
    dropped: int = 0
    processes: int = 0
    """further Python processes of the session that were under observation"""


@dataclass
class Session:
    """What one pytest session came to."""

    outcomes: dict[str, str] = field(default_factory=dict)
    """test id -> outcome, in the order in which they ran"""
    why: dict[str, str] = field(default_factory=dict)
    """test id -> the first line of its failure"""
    exit: int | None = None
    """pytest's exit status; None where the process ended before it had one"""
    observed: Observed | None = None
    output: str = ""
    """the end of what the process printed"""

    def counts(self) -> Counter[str]:
        """How many tests came to each outcome."""
        return Counter(self.outcomes.values())


@dataclass
class Difference:
    """A test whose outcome was not the same in all sessions."""

    test: str
    without: tuple[str, ...]
    """its outcome in each session without the observer"""
    under: tuple[str, ...]
    """its outcome in each session under it"""
    why: str = ""

    @property
    def flaky(self) -> bool:
        """Whether it varies without the observer too, and came to nothing under it that it never came to without.

        A test that varies under the observer alone may be a race that the observer causes: that is a difference.
        """
        return len(set(self.without)) > 1 and set(self.under) <= set(self.without)


def differing(without: Session, under: Session) -> list[str]:
    """The tests whose outcomes are not the same in two sessions, in the order in which they ran."""
    names = dict.fromkeys([*without.outcomes, *under.outcomes])
    return [n for n in names if without.outcomes.get(n) != under.outcomes.get(n)]


def differences(without: Sequence[Session], under: Sequence[Session]) -> list[Difference]:
    """The tests that differ between the first sessions, with what all later sessions of both kinds say of them."""
    out = []
    for test in differing(without[0], under[0]):
        why = next((s.why[test] for s in [*under, *without] if s.why.get(test)), "")
        out.append(Difference(test, _of(test, without), _of(test, under), why))
    return out


def _of(test: str, sessions: Sequence[Session]) -> tuple[str, ...]:
    return tuple(s.outcomes.get(test, NOT_RUN) for s in sessions)


def order_differs(without: Session, under: Session) -> bool:
    """Whether the tests that both sessions ran came in another order."""
    both = without.outcomes.keys() & under.outcomes.keys()
    return [t for t in without.outcomes if t in both] != [t for t in under.outcomes if t in both]
