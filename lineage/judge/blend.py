"""A data mix as trainers write it on one line: weights and sources in turn, `0.7 web 0.3 code`."""

from __future__ import annotations

from typing import Any

from .._rooms import schemas


def blend(form: Any) -> Any:
    """Bring the normal form of a data mix to one text per source, its share of the whole in front.

    The list ["0.7", "web", "0.3", "code"], the text "0.7 web 0.3 code" and the weights 7 and 3 are one mix. A list
    of one source is that source. What is no mix of weights and sources is given back as it is.
    """
    if isinstance(form, tuple) and len(form) == 1:
        return form[0]
    parts = form.split() if isinstance(form, str) else list(form) if isinstance(form, tuple) else []
    if len(parts) < 2 or len(parts) % 2:
        return form
    weights = [_number(p) for p in parts[::2]]
    sources = parts[1::2]
    whole = sum(w for w in weights if w is not None)
    if None in weights or whole <= 0 or not all(isinstance(s, str) and _number(s) is None for s in sources):
        return form
    if len(sources) == 1:
        return sources[0]
    return tuple(f"{(w or 0) / whole:.9g} {s}" for w, s in zip(weights, sources, strict=True))


def _number(part: Any) -> float | None:
    if isinstance(part, float):
        return part
    found = schemas.number_of(part) if isinstance(part, str) else None
    return float(found) if found is not None else None
