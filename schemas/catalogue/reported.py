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

from .load import catalogue
from .model import Concept

Nature = Literal[
    "lever",
    "state",
    "course",
    "code",
    "topology",
    "hardware",
    "part",
    "branch",
    "bitwise",
    "operations",
    "ambiguous",
    "unknown",
]
"""What an entry that names a word may be read as; see the head of `reported.toml`."""

_NUMERICS = frozenset({"dtype", "precision", "bits"})
"""A word with one of these is about number formats, whatever else it names."""

_BY_CLASS: dict[str, Nature] = {
    "R": "lever",
    "C": "code",
    "B": "bitwise",
    "O": "operations",
    "H": "operations",
}


@dataclass(frozen=True)
class Word:
    """A word of a logbook: the concept it stands for and how it behaves."""

    name: str
    concept: str
    nature: Nature


@dataclass(frozen=True)
class Vocabulary:
    """How concepts behave, the words that mean no concept of their own, and the patterns of accelerator models."""

    natures: Mapping[str, Nature]
    words: Mapping[str, Word]
    operational: frozenset[str]
    aside: frozenset[str]
    accelerators: re.Pattern[str]

    def word(self, name: str) -> Word:
        """Return what a word stands for.

        The whole name is looked up first, here and in the catalogue, then the longest run of its parts that either
        knows (`embedding_gradient_shrink_alpha` holds `embedding_gradient_shrink`). A word that is not known has the
        nature `unknown`, and nothing is concluded from it.
        """
        plain = plain_name(name)
        parts = plain.split("_")
        whole = self._known(plain)
        if whole is not None:
            return whole
        if any(p in _NUMERICS for p in parts):
            return Word(plain, "precision", "lever")
        if any(p in self.operational for p in parts):
            return Word(plain, "operations", "operations")
        found = self._in(parts) or self._of_key(name)
        return Word(plain, found.concept, found.nature) if found else Word(plain, "unclassified", "unknown")

    def _in(self, parts: list[str]) -> Word | None:
        """The longest run of parts that is known; of two, the later: `embedding_lr` is a learning rate.

        What is only observed must end the name: `gradient_norm_clip` is no gradient norm.
        """
        for length in range(len(parts) - 1, 0, -1):
            for start in range(len(parts) - length, -1, -1):
                run = "_".join(parts[start : start + length])
                found = self._known(run) if len(run) > 1 else None
                if found is not None and (found.concept != "none" or start + length == len(parts)):
                    return found
        return None

    def _known(self, plain: str) -> Word | None:
        if plain in self.words:
            return self.words[plain]
        concept = catalogue().find(plain)
        return self._behaving(plain, concept) if concept else None

    def _of_key(self, name: str) -> Word | None:
        concept = catalogue().of_key(name)
        return self._behaving(plain_name(name), concept) if concept else None

    def _behaving(self, name: str, concept: Concept) -> Word:
        return Word(name, concept.id, self.natures.get(concept.id) or _BY_CLASS.get(concept.cls, "unknown"))


def plain_name(name: str) -> str:
    """Bring a name to lower case with single underscores."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


@cache
def vocabulary() -> Vocabulary:
    """Read the shipped vocabulary, once."""
    table = tomllib.loads((Path(__file__).parent / "reported.toml").read_text(encoding="utf-8"))
    natures: dict[str, Nature] = {c: nature for nature, concepts in table["nature"].items() for c in concepts}
    words: dict[str, Word] = {}
    for row in table["word"]:
        for name in row["names"]:
            if name in words:
                raise ValueError(
                    f"reported.toml: {name} stands under {words[name].concept} and {row['concept']}"
                )
            words[name] = Word(name, row["concept"], row["nature"])
    return Vocabulary(
        natures,
        words,
        frozenset(table["operational"]["words"]),
        frozenset(table["operational"]["aside"]),
        re.compile("|".join(table["accelerators"]["models"])),
    )
