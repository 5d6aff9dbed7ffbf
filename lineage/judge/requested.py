"""What two configs ask for, compared: by concept and setting, whatever a framework calls the key.

A renamed key with the same value is no change, and neither is a key that is left out on one side and stands at its
framework's default on the other. What one side states and the other does not, with no default known, is not a
change either: it is not shown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .._rooms import schemas
from .asked import Asked, Entry, Setting, form_of, read
from .values import arrow, close, is_number, same_content, word

_ITEM = re.compile(r"^(.+?)\.(\d+)\.(.+)$")
MOST = 6
"""Keys that a line of text names; all of them stand in `Change.keys`."""


@dataclass
class Requested:
    """What differs between two configs."""

    changes: dict[str, schemas.Change] = field(default_factory=dict)
    """concept -> what is asked for otherwise"""
    one_sided: dict[str, schemas.Change] = field(default_factory=dict)
    """concept -> what only one side states, where no default is known"""
    unclassified: list[schemas.Change] = field(default_factory=list)
    aside: list[schemas.Change] = field(default_factory=list)
    """changes that have no part in the update: names, saving, logging, time limits, hosts"""
    not_shown: dict[str, str] = field(default_factory=dict)
    """concept -> why the configs cannot tell"""
    why: dict[str, str] = field(default_factory=dict)
    """concept -> why what one side states cannot be compared, where that is not that the other side is silent"""
    sides: tuple[Asked | None, Asked | None] = (None, None)


@dataclass(frozen=True)
class _Difference:
    """One setting that differs."""

    keys: tuple[str, ...]
    before: schemas.Scalar | None
    after: schemas.Scalar | None
    text: str
    one_sided: bool = False
    why: str = ""
    unresolved: bool = False
    moved: bool = False
    order: bool = False


def compare(
    before: schemas.Config | None,
    after: schemas.Config | None,
    versions: Sequence[Mapping[str, str]] = (),
) -> Requested:
    """Compare two configs. `versions` are the installed packages of either side, for defaults that moved."""
    a, b = read((before, after), versions)
    found = Requested(sides=(a, b))
    if a is None or b is None:
        return found
    lists = _reordered(found, a, b)
    for place in sorted({*a.settings, *b.settings}):
        difference = _setting(place, a, b, lists)
        if difference is not None:
            _file(found, place, difference)
    found.aside += _idle(a, b)
    found.unclassified = _unknown(a, b)
    return found


def _reordered(found: Requested, a: Asked, b: Asked) -> tuple[str, ...]:
    """Return the lists of sections (`sources.0.path`, `sources.1.path`) that have the same items in another order.

    Items are compared whole, so that swapped weights are not taken for swapped places.
    """
    one, two = _items(a), _items(b)
    lists = []
    for prefix in sorted(set(one) & set(two)):
        (concept, left), (_, right) = one[prefix], two[prefix]
        if (concept.ordered and concept.id != "data_mix") or left == right:
            continue
        if Counter(map(frozenset, left)) == Counter(map(frozenset, right)):
            lists.append(f"{prefix}.")
            if concept.id == "data_mix":
                _file(found, ("data_mix", ""), _Difference((prefix,), None, None, "", order=True))
    return tuple(lists)


def _items(asked: Asked) -> dict[str, tuple[schemas.Concept, list[list[tuple[str, object]]]]]:
    out: dict[str, tuple[schemas.Concept, dict[str, list[tuple[str, object]]]]] = {}
    for entries in asked.settings.values():
        for e in entries:
            match = _ITEM.match(e.key)
            if match and e.meaning:
                items = out.setdefault(match[1], (e.meaning.concept, {}))[1]
                items.setdefault(match[2], []).append((match[3], e.normal))
    return {
        prefix: (concept, [sorted(items[i], key=repr) for i in sorted(items, key=int)])
        for prefix, (concept, items) in out.items()
    }


def _setting(place: Setting, a: Asked, b: Asked, lists: tuple[str, ...] = ()) -> _Difference | None:
    concept = schemas.catalogue().concept(place[0])
    one, two = a.entries(*place), b.entries(*place)
    if lists:
        one, two = ([e for e in side if not e.key.startswith(lists)] for side in (one, two))
    if not one and not two:
        return None
    if not one or not two:
        return _one_side(place, a, b, one, two)
    left, right = {e.key: e for e in one}, {e.key: e for e in two}
    both = [k for k in left if k in right]
    parts = [(left[k], right[k]) for k in both if not _same(left[k], right[k], concept)]
    # A key that went and a key that came with one value are one setting under another name; a further key that
    # only repeats what the other side states says nothing new.
    marks_a, marks_b = ({_mark(e, concept) for e in side} for side in (one, two))
    marks_a, marks_b = marks_a | {_NONE}, marks_b | {_NONE}
    gone = [e for e in one if e.key not in right and _mark(e, concept) not in marks_b]
    new = [e for e in two if e.key not in left and _mark(e, concept) not in marks_a]
    n = min(len(gone), len(new))
    pairs = [
        *parts,
        *zip(gone, new, strict=False),
        *((e, None) for e in gone[n:]),
        *((None, e) for e in new[n:]),
    ]
    return _difference(pairs, concept) if pairs else None


def _difference(pairs: Sequence[tuple[Entry | None, Entry | None]], concept: schemas.Concept) -> _Difference:
    keys = tuple(dict.fromkeys(e.key for pair in pairs for e in pair if e is not None))
    first = pairs[0]
    whole = [(x, y) for x, y in pairs if x is not None and y is not None]
    return _Difference(
        keys,
        first[0].value if first[0] else None,
        first[1].value if first[1] else None,
        "; ".join([_words(x, y, concept) for x, y in pairs[:MOST]] + _more(len(pairs))),
        unresolved=any(e.open for pair in pairs for e in pair if e is not None),
        moved=len(whole) == len(pairs) and all(_moved(x, y, concept) for x, y in whole),
        order=len(whole) == len(pairs) and all(same_content(x.normal, y.normal) for x, y in whole),
    )


def _more(n: int) -> list[str]:
    return [f"and {n - MOST} more keys"] if n > MOST else []


def _words(x: Entry | None, y: Entry | None, concept: schemas.Concept) -> str:
    a, b = x.value if x else None, y.value if y else None
    names = list(dict.fromkeys(e.key for e in (x, y) if e is not None))
    text = f"{' -> '.join(names)} requested {arrow(a, b)}"
    odd = [e.value.text() for e in (x, y) if e is not None and concept.numeric and _no_number(e)]
    return text + "".join(f" ({o!r} is no number, kept as written)" for o in odd)


def _no_number(entry: Entry) -> bool:
    told = entry.value.type in ("str", "repr") and entry.normal != "auto"
    return told and not entry.open and not is_number(entry.normal)


_NONE = ("NoneType", None)


def _mark(entry: Entry, concept: schemas.Concept) -> object:
    """What two entries with the same value have in common; a masked value has nothing in common with another."""
    form = entry.normal
    if entry.value.type == "masked":
        return id(entry)
    if not concept.ordered and isinstance(form, tuple) and all(isinstance(v, str) for v in form):
        return tuple(sorted(form))
    return float(f"{form:.12g}") if isinstance(form, float) else (type(form).__name__, form)


def _same(x: Entry, y: Entry, concept: schemas.Concept) -> bool:
    if "masked" in (x.value.type, y.value.type):
        return False
    return close(x.normal, y.normal) or (not concept.ordered and same_content(x.normal, y.normal))


def _moved(x: Entry, y: Entry, concept: schemas.Concept) -> bool:
    """Whether two values are paths of the same files in other folders."""
    if concept.id not in ("data_mix", "tokenizer"):
        return False
    a, b = _files(x.normal), _files(y.normal)
    return bool(a) and a == b


def _files(value: object) -> list[str]:
    entries = value if isinstance(value, tuple) else (value,)
    paths = [e for e in entries if isinstance(e, str) and "/" in e]
    return (
        [e.rstrip("/").rpartition("/")[2] if isinstance(e, str) else repr(e) for e in entries]
        if paths
        else []
    )


def _one_side(place: Setting, a: Asked, b: Asked, one: list[Entry], two: list[Entry]) -> _Difference | None:
    """A setting that only one side states: against the default of the other side's framework, if it is known."""
    stated, silent = (one, b) if one else (two, a)
    default = silent.default(*place)
    if default is None and _left_out(stated[0], silent):
        default = schemas.Scalar.of(None)
    concept = schemas.catalogue().concept(place[0])
    left = silent.left(*place)
    if any(e.keeps for e in left):
        return None
    if (
        default is None
        and all(isinstance(e.normal, bool) and e.key.startswith("--") for e in stated)
        and not left
    ):
        default = schemas.Scalar.of(False)  # a flag that is not on the command line is off
    keys = tuple(e.key for e in stated)
    if default is None and all(e.normal is None for e in stated) and not left:
        return None  # none and absent are one, as long as no default says otherwise
    if default is not None:
        form = form_of(default, concept)
        differing = [e for e in stated if not close(e.normal, form)]
        if not differing:
            return None
        pair = (differing[0].value, default) if one else (default, differing[0].value)
        text = f"{differing[0].key} requested {arrow(*pair)}"
        text += f" ({word(default)} is the default where it is not stated)" if form is not None else ""
        return _Difference(keys, *pair, text, unresolved=any(e.open for e in differing))
    other = left[0] if left else None
    pairs: list[tuple[Entry | None, Entry | None]] = [(e, other) if one else (other, e) for e in stated]
    return _Difference(
        keys,
        stated[0].value if one else None,
        None if one else stated[0].value,
        "; ".join([_words(x, y, concept) for x, y in pairs[:MOST]] + _more(len(pairs))),
        one_sided=True,
        why=f"what {left[0].value.text()!r} comes to is worked out when it runs" if left else "",
        unresolved=any(e.open for e in stated),
    )


def _left_out(entry: Entry, silent: Asked) -> bool:
    """Whether a side that does not state a key has nothing there: a variable that is not set, or a key of a
    section that is off by default and not on that side."""
    meaning = entry.meaning
    if meaning is None:
        return False
    if _stated_as_none(entry, silent):
        return True
    section = meaning.setting.partition(".")[0]
    if meaning.key is None:
        return meaning.concept.id == "software" and section in meaning.concept.under
    names = meaning.key.name.split(".")
    return any(silent.without(".".join(names[:i]), meaning.key.framework) for i in range(1, len(names)))


def _stated_as_none(entry: Entry, silent: Asked) -> bool:
    """Whether the silent side says none for a section that the key stands in: `rope_scaling: null`."""
    parts = schemas.plain_key(entry.key).split(".")
    return any(silent.without(".".join(parts[:i]), "") for i in range(1, len(parts)))


def _file(found: Requested, place: Setting, d: _Difference) -> None:
    """Put a difference where it belongs."""
    concept = schemas.catalogue().concept(place[0])
    if d.order and concept.id == "data_mix":
        concept = schemas.catalogue().concept("data_order")
        d = _Difference(d.keys, d.before, d.after, f"{d.keys[0]} names the same data in another order")
    change = schemas.Change(
        concept=concept.id,
        cls=concept.cls,
        title=concept.title,
        keys=list(d.keys),
        requested_before=d.before,
        requested_after=d.after,
        text=d.text,
    )
    if concept.noise:
        found.aside.append(change)
    elif d.unresolved:
        _open(found, concept, f"{d.text}: what it refers to is not in the config")
    elif d.moved:
        _open(
            found,
            concept,
            f"{d.text}: other folders, the same file names; that they hold the same is not shown",
        )
    elif d.one_sided:
        if d.why:
            found.why[concept.id] = d.why
        _join(found.one_sided, change)
    else:
        _join(found.changes, change)


def _open(found: Requested, concept: schemas.Concept, why: str) -> None:
    said = found.not_shown.get(concept.id)
    found.not_shown[concept.id] = f"{said}; {why}" if said else why


def _join(into: dict[str, schemas.Change], change: schemas.Change) -> None:
    old = into.get(change.concept)
    if old is None:
        into[change.concept] = change
        return
    parts = old.text.count("; ")
    text = f"{old.text}; {change.text}" if parts < MOST else f"{old.text.removesuffix(' ...')} ..."
    into[change.concept] = old.model_copy(update={"keys": [*old.keys, *change.keys], "text": text})


def _idle(a: Asked, b: Asked) -> list[schemas.Change]:
    """Keys that set nothing on either side, where they differ: their switch is off."""
    out = []
    for key in sorted(set(a.idle) & set(b.idle)):
        x, y = (side.keys[schemas.plain_key(key)] for side in (a, b))
        if close(x.normal, y.normal):
            continue
        concept = x.meaning.concept if x.meaning else schemas.catalogue().concept("unclassified")
        out.append(
            schemas.Change(
                concept=concept.id,
                cls="O",
                title=concept.title,
                keys=[key],
                requested_before=x.value,
                requested_after=y.value,
                text=f"{key} requested {arrow(x.value, y.value)}; it sets nothing: {a.idle[key]}",
            )
        )
    return out


def _unknown(a: Asked, b: Asked) -> list[schemas.Change]:
    """Keys that no concept is known for, where they differ. Each is listed; none is dropped."""
    out = []
    known = schemas.catalogue().concept("unclassified")
    for key in sorted({*a.unknown, *b.unknown}):
        x, y = a.unknown.get(key), b.unknown.get(key)
        if x is not None and y is not None:
            if "masked" in (x.value.type, y.value.type) and x.value.type == y.value.type:
                continue  # both masked: a token is no training condition, and cannot be compared
            if close(x.normal, y.normal) or _same(x, y, known):
                continue
        elif (x or y).normal is None:  # type: ignore[union-attr]
            continue
        before, after = x.value if x else None, y.value if y else None
        out.append(
            schemas.Change(
                concept=known.id,
                cls=known.cls,
                title=key,
                keys=[key],
                requested_before=before,
                requested_after=after,
                text=f"{key} requested {arrow(before, after)}",
            )
        )
    return out
