"""How people name training conditions in logbooks: data, and the look-up that reads it.

A logbook's word is no config key. It stands for a concept, and it behaves in one of a few ways: somebody sets
it, a run carries it along, or it concerns the operation of the job only. `reported.toml` says which.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
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

_QUIET: frozenset[Nature] = frozenset({"operations", "bitwise", "hardware"})
"""Natures of words whose changes may be no change of results."""

_ALONE = frozenset(
    [
        "backend",
        "device",
        "group",
        "host",
        "id",
        "image",
        "load",
        "name",
        "priority",
        "rank",
        "split",
        "user",
        "verbose",
    ]
)
"""Keys of a config that mean something only where they are the whole name."""

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
    heads: frozenset[str]
    attributes: frozenset[str]
    aside: frozenset[str]
    accelerators: re.Pattern[str]

    def word(self, name: str) -> Word:
        """Return what a word stands for.

        The whole name is looked up first, here and in the catalogue, then what it is about: the longest run of its
        parts that either knows, and of two the one nearer to the end, where the noun stands (`embedding_lr` is a
        learning rate). That something changes no result must be said by the noun: `communication_frequency` is not
        read as communication, whose changes are only in the bits. A word that is not known has the nature `unknown`,
        and nothing is concluded from it.
        """
        plain = plain_name(name)
        parts = plain.split("_")
        whole = self._known(plain)
        if whole is not None:
            return whole
        if parts[0] in self.operational or parts[-1] in self._operational_nouns:
            return Word(plain, "operations", "operations")  # eval_batch_size, NCCL_IB_TIMEOUT, pod_failure
        if any(p in _NUMERICS for p in parts):
            return Word(plain, "precision", "lever")
        found = self._in(parts) or self._of_key(name)
        return Word(plain, found.concept, found.nature) if found else Word(plain, "unclassified", "unknown")

    @cached_property
    def _operational_nouns(self) -> frozenset[str]:
        """What ends a name that is about the operation of the job; `diloco_workers` is not about a loader's."""
        return (self.operational | self.heads) - {n for n, w in self.words.items() if w.nature == "ambiguous"}

    def _in(self, parts: list[str]) -> Word | None:
        """The run of parts that decides, or None."""
        for length in range(len(parts) - 1, 0, -1):
            for start in range(len(parts) - length, -1, -1):
                run, rest = "_".join(parts[start : start + length]), parts[start + length :]
                found = self._known(run) if len(run) > 1 else None
                if found is not None and self._decides(found, rest):
                    return found
        return None

    def _decides(self, found: Word, rest: list[str]) -> bool:
        """Whether a run may decide, with these parts behind it.

        What is only observed must end the name (`gradient_norm_clip` is no gradient norm), and what changes no result
        must end it but for parts that say nothing by themselves. A word that is used for different things, and a
        short key such as `rank`, decide for nothing but themselves.
        """
        if found.nature == "ambiguous" or found.name in _ALONE:
            return False
        if found.concept == "none":
            return not rest
        return found.nature not in _QUIET or all(p in self.attributes for p in rest)

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
        frozenset(table["operational"]["heads"]),
        frozenset(table["operational"]["attributes"]),
        frozenset(table["operational"]["aside"]),
        re.compile("|".join(table["accelerators"]["models"])),
    )
