"""What a source says of one concept over a span of an imported run: the values that its changes name, in order.

Where a change gives no step, only the earliest possible one is known: the value before it and the value after it
both held in the span, and no number follows from either alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from .._rooms import schemas
from . import reported_values as values

How = Literal["effective", "measured", "predicted", "requested", "reported", "before", "computed"]
"""effective: a live object held it; measured: a series did; predicted: by the schedule at a save or a start;
requested: a config asks for it; reported: a source says so; before: a later change says that it was so until
then; computed: from other cells."""

NOT_STATED = "not stated"
_BECAME = re.compile(r"\s(?:then|->|\u2192|=>)\s")
_FIRST_NUMBER = re.compile(r"^([+-]?[\d.][\d.,_]*(?:e[+-]?\d+)?)\s*(?:on|at|with|for|over|@|,|;|$)", re.I)


@dataclass(frozen=True)
class Value:
    """A cell and how it is known."""

    text: str
    how: How
    at: int | None = None
    """for before: the step of the change that says so"""
    one: schemas.Scalar | None = None
    """the one value that held over the whole span, where it is known to be one"""
    earliest: bool = False
    """for before: `at` is only the earliest step at which that change can have come"""


@dataclass(frozen=True)
class Step:
    """One change of a concept: what it names, and what is known of its step."""

    change: schemas.Change
    record: schemas.Record

    @property
    def loose(self) -> str | None:
        """What is known instead of its step; None where the step is known."""
        found: str | None = self.record.payload.lower_bound
        return found

    @property
    def before(self) -> schemas.Scalar | None:
        """The value before, as far as the source states one."""
        found = self.change.effective_before or self.change.requested_before
        return found if values.stated(found) else None

    @property
    def after(self) -> schemas.Scalar | None:
        """The value after, as far as the source states one."""
        found = self.change.effective_after or self.change.requested_after
        return found if values.stated(found) else None

    def said(self, value: schemas.Scalar, words: Callable[[schemas.Scalar], str]) -> str:
        """A value of it under its key, or as one that the source gives for several concepts at once."""
        keys = self.change.keys
        text = keyed(keys, explained(keys[0], value, words)) if keys else words(value)
        return f"told with others: {text}" if _others(self) else text


@dataclass(frozen=True)
class _Held:
    """One value of a sequence, and when it came."""

    value: schemas.Scalar | None
    step: Step | None
    when: str = ""


def told(
    carried: Sequence[Step],
    own: Sequence[Step],
    later: Step | None,
    words: Callable[[schemas.Scalar], str],
) -> Value | None:
    """The cell of a concept: what held when the span began, and each value that came at a step not stated.

    `carried` are the changes before the span, `own` those of its beginning, both oldest first; `later` is the next
    one on the path. `words` says a value. None where nothing names the concept.
    """
    exact = [i for i, s in enumerate(own) if s.loose is None]
    begun, open_ = ([own[exact[-1]]], own[exact[-1] + 1 :]) if exact else (list(carried[-1:]), own)
    if not begun and not open_:
        if later is None or later.before is None:
            return None
        one = later.before if _single(later) else None
        at = later.record.payload.from_step
        return Value(later.said(later.before, words), "before", at, one, later.loose is not None)
    held = [_Held(s.after, s) for s in begun] or [_Held(open_[0].before, None)]
    for s in open_:
        if s.before is not None and not goes_on(held[-1].value, s.before):
            held.append(_Held(s.before, None))
        held.append(_Held(s.after, s, _when(s)))
    if len(held) == 1 and held[0].value is None:
        return told([], [], later, words)
    others = [] if exact else _other_accounts(carried)
    last = [held[-1].value, *([s.after for s in others] if len(held) == 1 else [])]
    end = None if any(_same_account(v, later) for v in last) else later
    text = _text(held, end, words)
    for s in others:
        if s.after is not None:
            text += f"; or {s.said(s.after, words)}{_when(s)}"
    return Value(text, "reported", one=None if others else _one(held, end))


def _other_accounts(carried: Sequence[Step]) -> list[Step]:
    """Changes of the newest moment that lead elsewhere than its last: which of them held at its end is not known.

    Two changes of one day of which neither starts from what the other made are two accounts.
    """
    if not carried or carried[-1].loose is None:
        return []
    day = [s for s in carried if s.record.id == carried[-1].record.id]
    return [a for a, b in pairwise(day) if b.before is not None and not goes_on(a.after, b.before)]


def goes_on(a: schemas.Scalar | None, b: schemas.Scalar | None) -> bool:
    """Tell whether what was `a` at last may be the `b` from which the next change starts.

    `1536` goes on as `1536 on 384 GPUs`, `2700 then 2688` as 2688.
    """
    if a is None or b is None:
        return False
    if values.equal(a, b):
        return True
    x, y = (schemas.Scalar.of(_BECAME.split(values.plain_text(v))[-1].strip()) for v in (a, b))
    if values.equal(x, y):
        return True
    m, n = (_FIRST_NUMBER.match(v.text()) for v in (x, y))
    if m is None or n is None or not (m.end() == len(x.text()) or n.end() == len(y.text())):
        return False
    return values.equal(schemas.Scalar.of(m[1]), schemas.Scalar.of(n[1]))


def _same_account(last: schemas.Scalar | None, later: Step | None) -> bool:
    """Whether the next change starts from the last value; if not, it changed unrecorded somewhere between."""
    return later is None or later.before is None or goes_on(last, later.before)


def _one(held: Sequence[_Held], end: Step | None) -> schemas.Scalar | None:
    if len(held) != 1 or end is not None or held[0].step is None or not _single(held[0].step):
        return None
    return held[0].value


def _single(step: Step) -> bool:
    """Whether a change names the value of its concept, and of nothing else."""
    return not _others(step) and is_main(step.change.keys, step.change.concept)


def is_main(keys: Sequence[str], concept: str) -> bool:
    """Tell whether keys carry the main value of a concept in its own unit; a person's entry has none."""
    if len(keys) > 1:
        return False
    found = [schemas.catalogue().meaning(k) for k in keys]
    return all(
        m is not None
        and m.concept.id == concept
        and m.setting == ""
        and (m.key is None or m.key.unit == "samples")
        for m in found
    )


def _others(step: Step) -> bool:
    """Whether the source gives this value for several concepts at once."""
    c = step.change
    return any(
        o.evidence and o.evidence == c.evidence and o.concept != c.concept
        for o in step.record.payload.changes
        if o is not c
    )


def keyed(keys: Sequence[str], text: str) -> str:
    """A value under the config key that holds it; `text` alone where a person named none."""
    if not keys:
        return text
    more = f" and {', '.join(keys[1:4])}{', ...' if len(keys) > 4 else ''}" if len(keys) > 1 else ""
    return f"{keys[0]}={text}{more}"


def explained(key: str, value: schemas.Scalar, words: Callable[[schemas.Scalar], str]) -> str:
    """A value in words, with what its parts are where a framework packs several into one."""
    text = words(value)
    if schemas.plain_key(key).rpartition(".")[2] != "rampup_batch_size":
        return text
    parts = re.findall(r"\d[\d_]*", value.text())
    if len(parts) != 3:
        return text
    start, more, samples = (int(p.replace("_", "")) for p in parts)
    return f"{text} (a ramp: starts at {start:,}, grows by {more:,}, over {samples:,} samples)"


def _when(step: Step) -> str:
    loose = step.loose
    if loose is None:
        return ""
    return f" ({loose.removeprefix('dated ')})" if loose.startswith("dated ") else " (no date)"


def _text(held: Sequence[_Held], end: Step | None, words: Callable[[schemas.Scalar], str]) -> str:
    # A value that only a `before` names is that of the change that follows.
    speaker = [h.step or next((x.step for x in held[i:] if x.step), None) for i, h in enumerate(held)]
    parts = []
    for h, step in zip(held, speaker, strict=True):
        known = h.value is not None and step is not None
        parts.append((step.said(h.value, words) if known else NOT_STATED) + h.when)  # type: ignore[union-attr, arg-type]
    text = ", then ".join(parts)
    loose = sum(bool(h.when) for h in held)
    if loose:
        text += "; step not stated" if loose == 1 else "; steps not stated"
    if end is not None and end.before is not None:
        at = end.record.payload.from_step - 1
        until = f"until step {at:,}{' or later' if end.loose else ''}"
        text += f"; or {end.said(end.before, words)} ({until})"
    return text
