"""Finding a concept: by its name, by what people call it, and by a config key of any framework."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from .human import Part, read_value
from .model import UNCLASSIFIED, Claim, Concept, Framework, Key, Override, Pattern, Versions

_INDEX = re.compile(r"\[\d+\]|\.\d+(?=\.|$)|#\d+$")
_NEUTRAL = frozenset(
    re.findall(
        r"\w+",
        "config cfg conf args arguments params hparams hyperparameters hyper_parameters settings"
        " training train trainer training_args run exp job command env model_args",
    )
)
"""Sections that say nothing about what is in them."""
_SEVERITY = {cls: i for i, cls in enumerate(("R", "C", "B", "H", "O", "unclassified"))}


@dataclass(frozen=True)
class Meaning:
    """What a config key stands for: a concept, which of its settings, and the key of the catalogue that says so."""

    concept: Concept
    setting: str
    key: Key | None = None


@lru_cache(maxsize=65_536)
def plain_key(key: str) -> str:
    """Bring a config key to the form in which it is looked up: lower case, dotted, without list indices.

    `--lr` and `lr` are one key, `env:SEQ_LEN` and `seq_len` too; a scheduler's directive keeps its prefix
    (`sbatch.nodes`).
    """
    key = _INDEX.sub("", key).lower().replace("-", "_")
    space, colon, rest = key.partition(":")
    if colon and space.isalpha() and rest:
        key = f"sbatch.{rest}" if space == "sbatch" else rest
    if "_" not in key:
        return key
    return ".".join(p for p in (part.lstrip("_") or part for part in key.split(".")) if p)


def plain_word(word: str) -> str:
    """Bring what a person wrote to the form in which it is looked up: lower case, single spaces."""
    return re.sub(r"[^a-z0-9]+", " ", word.lower()).strip()


@dataclass(frozen=True)
class Catalogue:
    """All concepts, claims and keys, and the digest that a verdict records."""

    concepts: Mapping[str, Concept]
    claims: Mapping[str, Claim]
    digest: str
    frameworks: Mapping[str, Framework] = field(default_factory=dict)
    keys: tuple[Key, ...] = ()
    overrides: tuple[Override, ...] = ()
    patterns: tuple[Pattern, ...] = ()

    @property
    def flagging(self) -> tuple[str, ...]:
        """The claims whose verdicts flag a run: all but those of bits and of speed."""
        return tuple(c.id for c in self.claims.values() if c.flags)

    @property
    def weakened(self) -> tuple[Override, ...]:
        """Overrides that let pass what the shipped policy does not."""
        return tuple(o for o in self.overrides if o.weaker)

    @cached_property
    def _rows(self) -> dict[str, list[Key]]:
        out: dict[str, list[Key]] = {}
        for key in self.keys:
            out.setdefault(plain_key(key.name), []).append(key)
        return out

    @cached_property
    def _last_names(self) -> frozenset[str]:
        return frozenset(name.rpartition(".")[2] for name in self._rows)

    @cached_property
    def _sections(self) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        owns: dict[str, str] = {}
        under: dict[str, str] = {}
        top: dict[str, str] = {}
        for concept in self.concepts.values():
            owns |= dict.fromkeys(concept.owns, concept.id)
            under |= dict.fromkeys(concept.under, concept.id)
            top |= dict.fromkeys(concept.top, concept.id)
        return owns, under, top

    @cached_property
    def _words(self) -> dict[str, str]:
        words: dict[str, str] = {}
        for key in reversed(self.keys):
            if not key.framework and key.beside is None:
                words[plain_word(key.name)] = key.concept
        for concept in self.concepts.values():
            for name in (*concept.words, *concept.top, concept.title):
                words[plain_word(name)] = concept.id
        for id_ in self.concepts:
            words[plain_word(id_)] = id_
        return words

    def concept(self, id_: str) -> Concept:
        """Return a concept; `optimizer.nesterov` falls under `optimizer`, an unknown id is unclassified."""
        return self.concepts.get(id_) or self.concepts.get(id_.partition(".")[0], UNCLASSIFIED)

    def find(self, word: str) -> Concept | None:
        """Return the concept that a person means: its id, a word such as "clip" or "wd", or a config key."""
        plain = plain_word(word)
        for form in (plain, plain.removesuffix("s"), f"{plain}s"):
            if form in self._words:
                return self.concepts[self._words[form]]
        return self.of_key(word.strip())

    def find_all(self, words: str) -> list[Concept]:
        """Return the concepts of a compound such as "weight_decay+adam_beta2", in order, each once."""
        whole = self.find(words)
        parts = [words] if whole else re.split(r"\s*(?:\+|,|;|&|\band\b)\s*", words)
        found = [self.find(p) for p in parts if p]
        return list({c.id: c for c in found if c is not None}.values())

    def read_value(self, text: str) -> list[Part]:
        """Read a value that a person wrote: "wd .05, beta2 .98", "13251-14000", "48 nodes"; the rest stays text."""
        return read_value(text, self.find)

    def of_key(self, key: str, frameworks: Sequence[str] = ()) -> Concept | None:
        """Return the concept that a dotted config key carries, or None where the catalogue does not know it."""
        found = self.meaning(key, frameworks)
        return found.concept if found else None

    def meaning(
        self, key: str, frameworks: Sequence[str] = (), present: Collection[str] = ()
    ) -> Meaning | None:
        """Return what a config key stands for, or None.

        The whole key is looked up first, then sections that own what is in them (`evaluators`), then ever shorter
        tails (`train.optim.lr`, `optim.lr`, `lr`), then patterns (`wandb_*`), then the nearest section that says what
        its keys are about (`dataset`). Among frameworks that use one name for different things those in `frameworks`
        come first, then what any script means by it, then the gravest. `present` names the concepts that the config
        has keys of.
        """
        full = plain_key(key)
        parts = full.split(".")
        while len(parts) > 1 and parts[0] in _NEUTRAL and ".".join(parts) not in self._rows:
            parts = parts[1:]
        whole = self._choose(self._rows.get(".".join(parts), ()), frameworks, present)
        if whole:
            return whole
        owns, under, top = self._sections
        for i, part in enumerate(parts[:-1]):
            if part in owns:
                return Meaning(self.concepts[owns[part]], ".".join(parts[i:]))
        if "callbacks" in parts[:-1] and parts[-1] in owns:  # `callbacks.lr_monitor: {}`
            return Meaning(self.concepts[owns[parts[-1]]], parts[-1])
        for start in range(1, len(parts)) if parts[-1] in self._last_names else ():
            rows = self._rows.get(".".join(parts[start:]), ())
            if start == len(parts) - 1:
                rows = [r for r in rows if not r.framework or r.framework in frameworks]
            found = self._choose(rows, frameworks, present)
            if found:
                return found
        by_pattern = self._by_pattern(full, frameworks)
        if by_pattern is not None:
            return Meaning(self.concepts[by_pattern.concept], ".".join(parts))
        for i in range(len(parts) - 2, -1, -1):
            if parts[i] in under:
                return Meaning(self.concepts[under[parts[i]]], ".".join(parts[i:]))
        if len(parts) == 1 and parts[0] in top:
            return Meaning(self.concepts[top[parts[0]]], parts[0])
        return None

    def _by_pattern(self, key: str, frameworks: Sequence[str]) -> Pattern | None:
        if not self._any_pattern.match(key):
            return None
        for pattern, regex in self._regexes:
            if (not pattern.framework or pattern.framework in frameworks) and regex.match(key):
                return pattern
        return None

    @cached_property
    def _any_pattern(self) -> re.Pattern[str]:
        """All patterns in one, so that a key which fits none costs one look."""
        return re.compile("|".join(r.pattern for _, r in self._regexes) or r"(?!)")

    @cached_property
    def _regexes(self) -> list[tuple[Pattern, re.Pattern[str]]]:
        return [(p, p.regex()) for p in self.patterns]

    def depends(self, key: str) -> bool:
        """Tell whether the meaning of a key depends on what else the config has."""
        return plain_key(key).rpartition(".")[2] in self._dependent

    @cached_property
    def _dependent(self) -> frozenset[str]:
        return frozenset(plain_key(k.name) for k in self.keys if k.beside is not None)

    def _choose(
        self, rows: Iterable[Key], frameworks: Sequence[str], present: Collection[str]
    ) -> Meaning | None:
        fitting = [r for r in rows if r.beside is None or r.beside in present]
        if not fitting:
            return None

        def rank(row: Key) -> tuple[int, int, int]:
            if row.framework in frameworks:
                return 0, frameworks.index(row.framework), 0
            grave = _SEVERITY[self.concepts[row.concept].cls]
            return (1, 0 if row.beside else 1, grave) if not row.framework else (2, 0, grave)

        best = min(fitting, key=rank)
        return Meaning(self.concepts[best.concept], best.setting, best)

    @cached_property
    def _own_names(self) -> dict[str, str]:
        """Names that only one framework has, and the framework."""
        out: dict[str, str] = {}
        for name, rows in self._rows.items():
            frameworks = {r.framework for r in rows}
            if "" in frameworks:
                continue  # any training script may have it
            family = {self.frameworks[f].extends or f for f in frameworks if f in self.frameworks}
            if len(family) == 1:
                children = [f for f in frameworks if self.frameworks[f].extends]
                out[name] = children[0] if len(frameworks) == 1 and children else family.pop()
        return out

    def frameworks_of(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Return the frameworks to which a config's keys belong, the likeliest first.

        A framework counts where at least two keys are names that no other framework has. What it extends follows
        it; launchers are beside the framework and come last.
        """
        seen: Counter[str] = Counter()
        for key in keys:
            parts = plain_key(key).split(".")
            for start in range(len(parts)) if parts[-1] in self._last_names else ():
                owner = self._own_names.get(".".join(parts[start:]))
                if owner:
                    seen[owner] += 1
                    break
        found = [f for f, n in seen.most_common() if n >= 2 and f != "launchers"]
        found = sorted(found, key=lambda f: self.frameworks[f].extends not in found)
        out: list[str] = []
        for f in found:
            parent = self.frameworks[f].extends
            out += [x for x in (f, parent) if x is not None and x not in out]
        return (*out, "launchers") if seen["launchers"] else tuple(out)

    def default(
        self,
        concept: str,
        setting: str,
        frameworks: Sequence[str],
        versions: Mapping[str, str],
        possible: Mapping[str, Versions] | None = None,
    ) -> tuple[object, Key] | None:
        """Return a setting's default in the first of the frameworks that has one, with the key that says so.

        `versions` maps distributions to versions, `possible` frameworks to the versions that a config may belong to,
        where its own is not known. Where these differ in the default, there is none.
        """
        for id_ in frameworks:
            version = versions.get(self.frameworks[id_].distribution or "")
            may = Versions() if version is not None or possible is None else possible.get(id_, Versions())
            rows = [r for r in self._settings.get((id_, concept, setting), ()) if r.applies(version)]
            rows = [r for r in rows if r.within(may)]
            stated = {repr(r.present(r.default)): r for r in rows if r.has_default}
            if len(stated) == 1:
                row = next(iter(stated.values()))
                return row.present(row.default), row
            if rows:
                return None
        return None

    def off_by_default(self, key: str, framework: str) -> bool:
        """Tell whether a key of a framework, such as a whole section, is None where it is not stated."""
        rows = [r for r in self._rows.get(plain_key(key), ()) if r.framework == framework]
        return any(r.has_default and r.default in (None, "none") for r in rows)

    @cached_property
    def _settings(self) -> dict[tuple[str, str, str], list[Key]]:
        out: dict[tuple[str, str, str], list[Key]] = {}
        for key in self.keys:
            out.setdefault((key.framework, key.concept, key.setting), []).append(key)
        return out
