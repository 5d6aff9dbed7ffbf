"""The tensors in a checkpoint's files against the live state at its save, or against another checkpoint's.

Tensors are matched by name. Files prefix names (`model.`, `module.`), so a prefix that most of them bear is left out on
either side. Optimizers number their parameters: what is left without a name is matched by its content, which tells
that it is there, bit for bit, and not that it stands in the right place.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from . import whole_state
from .whole_state import Whole

Status = Literal["equal", "differs", "absent", "cannot_tell"]
_WORST: tuple[Status, ...] = ("differs", "cannot_tell", "absent", "equal")
Key = tuple[str, str]
"""kind and name"""


@dataclass(frozen=True)
class Held:
    """A tensor in the files."""

    kind: str
    """`weight` for weights and buffers, `moment1`, `moment2`, `state:<key>`, or another word"""
    name: str
    head: str
    """type and shape, such as `float32[4,8]`"""
    digest: str | None
    why: str | None = None
    """why there is no digest"""
    numbered: bool = False
    """whether the name is a number that the optimizer gave to its parameter"""


@dataclass
class Component:
    """One component on both sides."""

    equal: int = 0
    by_content: int = 0
    """of the equal ones: without a name in the files"""
    differing: list[str] = field(default_factory=list)
    retyped: dict[str, str] = field(default_factory=dict)
    """tensor -> its type and shape on both sides"""
    absent: list[str] = field(default_factory=list)
    """not in the files"""
    new: list[str] = field(default_factory=list)
    """in the files alone"""
    unknown: dict[str, str] = field(default_factory=dict)
    """tensors that cannot be compared -> why"""

    @property
    def status(self) -> Status:
        """`absent` where the files hold nothing of it at all."""
        if self.differing or self.retyped:
            return "differs"
        if self.absent:
            return "differs" if self.equal else "absent"
        return "equal" if self.equal else "cannot_tell"


@dataclass
class AtRest:
    """What the comparison came to."""

    components: dict[str, Component] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        """The worst of the components; those of which the files hold nothing do not count, but for weights."""
        weights = self.components.get("weights")
        if weights is not None and weights.status == "absent":
            return "absent"
        found = {c.status for c in self.components.values()}
        if "differs" in found or "equal" not in found:
            return next((s for s in _WORST if s in found), "cannot_tell")
        return "equal"

    @property
    def equal(self) -> int:
        """Tensors that are equal."""
        return sum(c.equal for c in self.components.values())

    def lines(self, most: int = 4, here: str = "in the files", there: str = "on record") -> list[str]:
        """A line for each component, in words."""
        order = ("weights", "buffers", "optimizer_state")
        named = sorted(
            self.components.items(), key=lambda kv: (kv[0] not in order, (*order, kv[0]).index(kv[0]))
        )
        return [f"{name}: {_said(c, most, here, there)}" for name, c in named]


def _said(c: Component, most: int, here: str, there: str) -> str:
    parts = [
        f"{c.equal:,} tensors equal" + (f", {c.by_content:,} of them by content" if c.by_content else "")
    ]
    if c.differing:
        parts.append(f"{len(c.differing):,} differ ({_some(c.differing, most)})")
    if c.retyped:
        parts.append(f"{len(c.retyped):,} of another type or shape ({_some(c.retyped.values(), most)})")
    if c.absent:
        parts.append(f"{len(c.absent):,} not {here} ({_some(c.absent, most)})")
    if c.new:
        parts.append(f"{len(c.new):,} not {there} ({_some(c.new, most)})")
    if c.unknown:
        first, why = next(iter(c.unknown.items()))
        parts.append(f"{len(c.unknown):,} cannot be compared ({first}: {why})")
    return ", ".join(parts)


def _some(names: Iterable[str], most: int) -> str:
    every = list(names)
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def compare(
    held: Sequence[Held],
    live: Mapping[Key, Whole],
    untold: Mapping[str, str] | None = None,
    unsaved: Iterable[str] = (),
) -> AtRest:
    """Compare what files hold with a state.

    Args:
        live: (kind, name) -> digest; of weights the kind is `weight` or `buffer`.
        untold: component -> why its tensors in the files cannot be matched. Live tensors of it that are found nowhere
            are then not said to be absent.
        unsaved: buffers that no file holds by design, as a save records them; numbers in them stand for
            any number.
    """
    untold = untold or {}
    out = AtRest()
    left = dict(live)
    rest = [h for h in held if placed(h.kind, h.name)[0] in untold]
    named = [h for h in held if placed(h.kind, h.name)[0] not in untold]
    for kinds in _groups(named, live):
        mine = [h for h in named if _group(h.kind) == kinds]
        theirs = {k for k in live if _group(k[0]) == kinds}
        renamed = _align([h.name for h in mine], {name for _, name in theirs})
        seen: set[Key] = set()
        for h, name in zip(mine, renamed, strict=True):
            key = _key(h, name, theirs)
            if key is None:
                rest.append(h)
            elif key in seen:
                _twice(out, h, key, live[key])
            else:
                seen.add(key)
                _one(out, h, key, left.pop(key))
    over = _by_content(out, rest, left)
    copies = {(_group(kind), w.digest) for (kind, _), w in live.items()}
    over = [
        h for h in over if h.digest is None or (h.kind, h.digest) not in copies
    ]  # else tied to one on record
    _over(out, [h for h in over if placed(h.kind, h.name)[0] not in untold], left)
    by_design = {_pattern(name) for name in unsaved}
    for key, whole in left.items():
        component, name = placed(*key)
        if key[0] == "buffer" and _pattern(name) in by_design:
            continue
        c = _component(out, component)
        if whole.digest is None:
            c.unknown[name] = whole.why or ""
        elif component in untold:
            c.unknown[name] = untold[component]
        else:
            c.absent.append(name)
    return out


def _pattern(name: str) -> str:
    return re.sub(r"\d+", "*", name)


def placed(kind: str, name: str) -> Key:
    """(component, name within it) of a tensor; what is of no component of the live state is its own."""
    if kind in ("weight", "buffer", "moment1", "moment2") or kind.startswith("state:"):
        return whole_state.placed(kind, name)
    return kind, name


def _groups(held: Sequence[Held], live: Mapping[Key, Whole]) -> list[str]:
    return sorted({_group(h.kind) for h in held} | {_group(kind) for kind, _ in live})


def _group(kind: str) -> str:
    """Weights and buffers lie together in files."""
    return "weight" if kind == "buffer" else kind


def _component(out: AtRest, name: str) -> Component:
    return out.components.setdefault(name, Component())


def _key(h: Held, name: str, theirs: set[Key]) -> Key | None:
    for kind in (h.kind, "buffer"):
        if (kind, name) in theirs:
            return kind, name
    return None


def _one(out: AtRest, h: Held, key: Key, whole: Whole) -> None:
    """Compare two tensors of one name."""
    component, name = placed(*key)
    c = _component(out, component)
    if h.digest is None or whole.digest is None:
        c.unknown[name] = (h.why if h.digest is None else whole.why) or ""
    elif h.digest == whole.digest:
        c.equal += 1
    elif whole.head is not None and whole.head != h.head:
        c.retyped[name] = f"{name} {whole.head} -> {h.head}"
    else:
        c.differing.append(name)


def _twice(out: AtRest, h: Held, key: Key, whole: Whole) -> None:
    """A name that stands in the files once more: the same bits are one tensor, others cannot be told apart."""
    component, name = placed(*key)
    if h.digest != whole.digest:
        _component(out, component).unknown[name] = "it stands in the files more than once, with other values"


def _by_content(out: AtRest, rest: Sequence[Held], left: dict[Key, Whole]) -> list[Held]:
    """Match what no name matched by its bits; give what is over."""
    wanted: dict[tuple[str, str], list[Key]] = defaultdict(list)
    for key, whole in left.items():
        if whole.digest is not None:
            wanted[_group(key[0]), whole.digest].append(key)
    over: list[Held] = []
    for h in rest:
        keys = wanted.get((h.kind, h.digest or ""))
        if not keys:
            over.append(h)
            continue
        key = keys.pop(0)
        c = _component(out, placed(*key)[0])
        c.equal += 1
        c.by_content += 1
        del left[key]
    return over


def _over(out: AtRest, over: Sequence[Held], left: dict[Key, Whole]) -> None:
    """Tensors of the files that were matched with none.

    Where numbered ones are over, a live tensor of their type and shape that is in no file as it was differs: which of
    the numbers is its own need not be known.
    """
    numbered = {(h.kind, h.head) for h in over if h.numbered and h.digest is not None}
    lost = [k for k, w in left.items() if w.digest is not None and (_group(k[0]), w.head) in numbered]
    told = {(_group(k[0]), left[k].head) for k in lost}
    for key in lost:
        component, name = placed(*key)
        _component(out, component).differing.append(name)
        del left[key]
    for h in over:
        component, name = placed(h.kind, h.name)
        if h.digest is None:
            _component(out, component).unknown[name] = h.why or ""
        elif not h.numbered or (h.kind, h.head) not in told:
            _component(out, component).new.append(name)


def _align(names: Sequence[str], known: set[str]) -> list[str]:
    """Names as the other side has them: without the prefix, or with the one, that lets most of them be found there."""
    strip, add = _prefixes(names, known), _prefixes(known, set(names))
    best = strip.most_common(1) or [("", 0)]
    longer = add.most_common(1) or [("", 0)]
    plain = sum(n in known for n in names)
    if max(best[0][1], longer[0][1]) <= plain:
        return list(names)
    if best[0][1] >= longer[0][1]:
        return [n if n in known else n.removeprefix(best[0][0] + ".") for n in names]
    return [n if n in known else f"{longer[0][0]}.{n}" for n in names]


def _prefixes(names: Iterable[str], known: set[str]) -> Counter[str]:
    """Prefix -> names of which the rest is known."""
    found: Counter[str] = Counter()
    for name in names:
        at = name.find(".")
        while at >= 0:
            if name[at + 1 :] in known:
                found[name[:at]] += 1
                break
            at = name.find(".", at + 1)
    return found
