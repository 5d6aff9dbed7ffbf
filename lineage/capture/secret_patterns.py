"""Where credentials of a known shape stand in a text: the rules of `secret_patterns.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

Span = tuple[int, int]
"""Start and end of a piece of text, in characters, end exclusive."""


_NEAR = 1500


@dataclass(frozen=True)
class Rule:
    """One shape of credential: a pattern that is tried where an anchor stands."""

    name: str
    anchors: tuple[str, ...]
    pattern: str
    any_case: bool
    inside: bool
    needs: str
    """a character that has to follow within `_NEAR`; empty: none"""

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The pattern, compiled when an anchor is first seen: most never are."""
        before = "" if self.inside else "(?<![A-Za-z0-9])"
        return re.compile(before + f"(?:{self.pattern})", re.ASCII | (re.IGNORECASE if self.any_case else 0))


@cache
def rules() -> tuple[Rule, ...]:
    """Return all rules."""
    data = tomllib.loads((Path(__file__).parent / "secret_patterns.toml").read_text(encoding="utf-8"))
    return tuple(
        Rule(
            name=r["name"],
            anchors=tuple(r["anchors"]),
            pattern=r["pattern"],
            any_case=r.get("case") == "any",
            inside=r.get("inside", False),
            needs=r.get("needs", ""),
        )
        for r in data["rule"]
    )


def places(text: str, anchor: str) -> Iterator[int]:
    """Yield where `anchor` stands in `text`."""
    at = text.find(anchor)
    while at >= 0:
        yield at
        at = text.find(anchor, at + 1)


def find(text: str, lowered: str) -> list[Span]:
    """Return the spans of all credentials of a known shape.

    `lowered` is `text` in lower case with every character in its place.
    """
    spans: list[Span] = []
    for rule in rules():
        where = lowered if rule.any_case else text
        for anchor in rule.anchors:
            if anchor not in where:
                continue
            end = -1
            for at in places(where, anchor):
                if at < end or (rule.needs and text.find(rule.needs, at, at + _NEAR) < 0):
                    continue
                match = rule.compiled.match(text, at)
                if match:
                    group = match.lastindex or 0
                    spans.append(match.span(group))
                    end = match.end(group)
    return spans
