"""How people name training conditions in logbooks: data, and the look-up that reads it.

A logbook's word is no config key. It stands for a concept, and it behaves in one of a few ways: somebody sets
it, a run carries it along, or it concerns the operation of the job only. `reported.toml` says which.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

Nature = Literal[
    "lever",
    "state",
    "course",
    "code",
    "topology",
    "hardware",
    "part",
    "branch",
    "operations",
    "ambiguous",
    "unknown",
]
"""What an entry that names a word may be read as; see the head of `reported.toml`."""


@dataclass(frozen=True)
class Word:
    """A word of a logbook: the concept it stands for and how it behaves."""

    name: str
    concept: str
    nature: Nature


@dataclass(frozen=True)
class Vocabulary:
    """All words, the words of operation, and the patterns of accelerator models."""

    words: Mapping[str, Word]
    operational: frozenset[str]
    aside: frozenset[str]
    accelerators: re.Pattern[str]

    def word(self, name: str) -> Word:
        """Return what a word stands for.

        The whole name is looked up first, then the longest known name all of whose parts occur in it
        (`embedding_grad_shrink_alpha` holds `embedding_grad_shrink`). A word that is not known has the nature
        `unknown`, and nothing is concluded from it.
        """
        plain = plain_name(name)
        found = self.words.get(plain)
        if found is None:
            parts = set(plain.split("_"))
            inside = [w for w in self.words if len(w) > 2 and set(w.split("_")) <= parts]
            longest = max(inside, key=lambda w: (w.count("_"), len(w)), default=None)
            found = self.words[longest] if longest else Word(plain, "unclassified", "unknown")
        return Word(plain, found.concept, found.nature)


def plain_name(name: str) -> str:
    """Bring a name to lower case with single underscores."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


@cache
def vocabulary() -> Vocabulary:
    """Read the shipped vocabulary, once."""
    table = tomllib.loads((Path(__file__).parent / "reported.toml").read_text(encoding="utf-8"))
    words: dict[str, Word] = {}
    for row in table["word"]:
        for name in row["names"]:
            if name in words:
                raise ValueError(
                    f"reported.toml: {name} stands under {words[name].concept} and {row['concept']}"
                )
            words[name] = Word(name, row["concept"], row["nature"])
    return Vocabulary(
        words,
        frozenset(table["operational"]["words"]),
        frozenset(table["operational"]["aside"]),
        re.compile("|".join(table["accelerators"]["models"])),
    )
