"""Capture of a config: flattened to dotted leaves, typed, masked, digested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from .._rooms import schemas
from . import canonical, documents, plain, secrets, sources

DEEPEST = 64
"""Levels that are followed; what lies deeper is cut with a `repr` that says so."""
MOST = 100_000
"""Values that are kept, those inside lists too; the rest is cut, and `Config.problems` says so."""
MOST_TEXT = 32 * 2**20
"""Characters of keys and values that are kept; the rest is cut likewise."""
_MOST_PROBLEMS = 20
_LONGEST = 512
"""Characters of a text that is looked through for secrets together with all others; a longer one by itself."""


def capture(source: object, argv: Sequence[str] | None = None, name: str | None = None) -> schemas.Config:
    """Read a config into its record.

    `source` is a dict, argparse.Namespace, dataclass, pydantic model, OmegaConf, wandb.config, an MLflow run,
    an object with `to_dict()`, or the path of a YAML, JSON or TOML file. `argv` is the command line to keep
    beside it. `name` says where it came from if the object does not show it, such as "mlflow" for a mapping
    of its params.

    A config of any size takes bounded time and memory: `MOST` values and `MOST_TEXT` characters are kept, and
    `problems` of the record says what is left out. Secrets are masked in keys, values and `argv` before the digest
    is made. Raises `TypeError` for an object that holds no config, `FileNotFoundError` and `ValueError` for a file
    that is missing or malformed.
    """
    kind, tree = sources.read(source)
    walk = _Walk()
    found = list(walk.leaves(tree))
    values: dict[str, schemas.Scalar] = {}
    count = 0
    suspects = _Suspects(found)
    for key, value in found:
        if suspects.none(key, value):
            _put(values, canonical.text(key), plain.untouched(value))
            continue
        held, hit = suspects.scalar(key, value)
        shown, in_key = secrets.mask(canonical.text(key))
        count += hit or bool(in_key)
        _put(values, shown, held)
    if walk.full:
        values["..."] = schemas.Scalar(type="repr", value=f"<{walk.full}: cut>")
    masked_argv, _ = secrets.mask_argv([canonical.text(a) for a in argv or ()])
    return schemas.Config(
        source=name or kind,
        values=values,
        digest=canonical.digest_of(values),
        masked=count,
        argv=masked_argv,
        problems=[secrets.mask(canonical.text(p))[0] for p in walk.problems],
    )


def leaves(tree: object) -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) for every leaf: mappings by key, lists of mappings by index.

    Lists of plain values are leaves. A config that contains itself is cut where it comes back to itself.
    """
    yield from _Walk().leaves(tree)


def _is_plain(value: object) -> bool:
    return (
        value is None or type(value) in (bool, int, float) or (type(value) is str and len(value) <= _LONGEST)
    )


def _all_plain(value: object) -> bool:
    """Whether a value is plain, or a list of such: what can be stored as it is where it holds no secret."""
    if type(value) in (list, tuple):
        return all(_all_plain(v) for v in value)  # type: ignore[attr-defined]
    return _is_plain(value)


def _texts(value: object) -> Iterator[str]:
    if type(value) is str:
        yield value
    elif isinstance(value, list | tuple):
        for v in value:
            yield from _texts(v)


class _Suspects:
    """Which leaves may hold a secret, and which values of a list: found in one pass over all of them."""

    def __init__(self, found: Sequence[tuple[str, Any]]) -> None:
        named = secrets.announcing([key for key, _ in found])
        texts: list[str] = []
        owners: list[tuple[str, str | None]] = []
        for key, value in found:
            own = key
            if type(value) is str and len(value) <= _LONGEST:
                own = f"{key}\n{key}={value}\n{value}"
            texts.append(own)
            owners.append((key, None))
            if type(value) in (list, tuple):
                for text in dict.fromkeys(t for t in _texts(value) if len(t) <= _LONGEST):
                    texts.append(f"{key}={text}\n{text}")
                    owners.append((key, text))
        hit = secrets.suspects(texts)
        self._keys = {owners[i][0] for i in hit if owners[i][1] is None} | named
        self._in_lists = {owners[i] for i in hit if owners[i][1] is not None}
        self._lists = {key for key, _ in self._in_lists}

    def none(self, key: str, value: object) -> bool:
        """Whether a leaf can be stored as it is."""
        return key not in self._keys and key not in self._lists and _all_plain(value)

    def scalar(self, key: str, value: Any) -> tuple[schemas.Scalar, bool]:
        """The masked form of a leaf, and whether anything was masked; of a list only what may need it is looked at."""
        if isinstance(value, _Cut):
            return value.scalar(), False
        if key in self._keys or type(value) not in (list, tuple):
            return plain.scalar(key, value)
        made = [self._item(key, v) for v in value]
        return schemas.Scalar.of([s for s, _ in made]), any(hit for _, hit in made)

    def _item(self, key: str, value: Any) -> tuple[schemas.Scalar, bool]:
        if type(value) in (list, tuple):
            return self.scalar(key, value)
        if _is_plain(value) and (key, value) not in self._in_lists:
            return plain.untouched(value), False
        return plain.scalar(key, value)


def _put(values: dict[str, schemas.Scalar], key: str, held: schemas.Scalar) -> None:
    """Store a leaf. Two leaves may share a dotted name (`{"a.b": 1, "a": {"b": 2}}`): both are kept."""
    free, n = key, 2
    while free in values:
        if values[free] == held and held.type != "masked":
            return
        free, n = f"{key}#{n}", n + 1
    values[free] = held


class _Cut:
    """A place where a config was not followed further."""

    def __init__(self, why: str) -> None:
        self.why = why

    def scalar(self) -> schemas.Scalar:
        return schemas.Scalar(type="repr", value=f"<{self.why}: cut>")


class _Unread(_Cut):
    """A value that raised when it was read."""

    def scalar(self) -> schemas.Scalar:
        return schemas.Scalar(type="repr", value=f"<could not be read: {self.why}>")


@dataclass(frozen=True)
class _Size:
    """What a list holds, its own lists included."""

    values: int
    text: int
    named: bool
    """some entry has named values, or it holds itself: its entries are leaves of their own"""


_ONE = _Size(1, 0, named=False)
_NUMBERS = frozenset({int, float, bool, type(None)})


@dataclass
class _Walk:
    """One way through a config, with the room that is left."""

    room: int = field(default_factory=lambda: MOST)
    text: int = field(default_factory=lambda: MOST_TEXT)
    full: str = ""
    """why nothing more was taken in"""
    problems: list[str] = field(default_factory=list)
    above: dict[int, str] = field(default_factory=dict)
    sizes: dict[int, tuple[object, _Size]] = field(default_factory=dict)
    """id of a list -> the list, held so that the id stays its own, and its size"""

    def leaves(self, tree: object) -> Iterator[tuple[str, Any]]:
        """All leaves while there is room."""
        for key, value in self._walk("", tree):
            held, size = value, _ONE if type(value) in _NUMBERS else self._size(value, 0)
            if size.values > 1 and (size.values > self.room or size.text > self.text):
                room = f"{self.room:,} values and {self.text:,} characters"
                self._say(f"{key} is a list that does not fit into the {room} that are left: left out")
                held, size = _Cut("a list that is too long to be kept"), _ONE
            if size.values > self.room or size.text + len(key) > self.text:
                limit = f"{MOST:,} values" if size.values > self.room else f"{MOST_TEXT:,} characters"
                self.full = f"more than {limit}"
                self._say(
                    f"the config has {self.full}: {key} and what comes after it is left out", always=True
                )
                return
            self.room -= size.values
            self.text -= size.text + len(key)
            yield key, held

    def _say(self, problem: str, *, always: bool = False) -> None:
        """Note what is left out or odd; of very many the first, and that there are more."""
        if always or len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)
        elif len(self.problems) == _MOST_PROBLEMS:
            self.problems.append("and more of the kind")

    def _walk(self, key: str, value: object) -> Iterator[tuple[str, Any]]:
        if value is None or isinstance(value, str | int | float):
            yield key, value
            return
        try:
            entries = self._entries(value)
        except Exception as error:  # an object of the user's may do anything when it is read
            if not key:
                raise
            yield key, _Unread(type(error).__name__)
            return
        if entries is None:
            yield key, value
        elif not entries and key:
            yield key, [] if isinstance(value, list | tuple) else _Empty()
        elif id(value) in self.above:
            yield key, _Cut(f"a cycle back to {self.above[id(value)] or 'the top'}")
        elif len(self.above) >= DEEPEST:
            yield key, _Cut(f"deeper than {DEEPEST} levels")
        else:
            self._tell_doubled(key, value)
            self.above[id(value)] = key
            for name, child in entries:
                yield from self._walk(f"{key}.{name}" if key else name, child)
            del self.above[id(value)]

    def _entries(self, value: object) -> list[tuple[str, Any]] | None:
        """Return the children of a container, as many as there is room for, or None for a leaf."""
        found = sources.mapping_of(value)
        if found is not None:
            return [(_name(k), v) for k, v in islice(found[1].items(), self.room + 1)]
        if type(value).__name__ == "ListConfig":
            value = list(value)  # type: ignore[call-overload]
        if isinstance(value, list | tuple):
            if not value:
                return []
            if self._size(value, 0).named:
                return [(str(i), v) for i, v in enumerate(islice(value, self.room + 1))]
        return None

    def _size(self, value: object, depth: int) -> _Size:
        """Measure a value, no further than there is room; each list once, wherever it is shared."""
        if type(value) is str:
            return _Size(1, min(len(value), plain.LONGEST), named=False)
        if value is None or isinstance(value, str | int | float) or not _is_list(value):
            return _Size(1, 0, named=depth > 0 and _has_names(value))
        known = self.sizes.get(id(value))
        if known is not None:
            return known[1]
        if depth > 8:
            return _Size(1, 0, named=True)
        self.sizes[id(value)] = (value, _Size(1, 0, named=True))  # what a list that holds itself finds
        values, text, named = 0, 0, False
        for child in value:  # type: ignore[attr-defined]
            size = self._size(child, depth + 1)
            values, text, named = values + size.values, text + size.text, named or size.named
            if values > MOST or text > MOST_TEXT:
                break
        made = _Size(max(values, 1), text, named)
        self.sizes[id(value)] = (value, made)
        return made

    def _tell_doubled(self, key: str, value: object) -> None:
        if not isinstance(value, documents.Doubled):
            return
        others: dict[str, list[object]] = {}
        for name, earlier in value.again:
            others.setdefault(_name(name), []).append(earlier)
        for name, found in others.items():
            whole = f"{key}.{name}" if key else name
            also = ", ".join(_short(whole, v) for v in found[:3])
            self._say(
                f"the key {whole} stands {len(found) + 1} times: the last is used; also written: {also}"
            )


def _short(key: str, value: object) -> str:
    if not _is_plain(value):
        return f"a {type(value).__name__}"
    return plain.scalar(key, value)[0].text()[:100]


class _Empty:
    """A section without entries."""

    def __repr__(self) -> str:
        return "{}"


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple) and not hasattr(value, "_asdict")


def _has_names(value: object) -> bool:
    try:
        return sources.mapping_of(value) is not None
    except Exception:
        return True  # walk into the list, so that only this entry is lost


def _name(key: object) -> str:
    return key if isinstance(key, str) else plain.describe(key)
