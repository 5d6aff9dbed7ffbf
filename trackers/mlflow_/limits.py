"""What MLflow accepts: keys, lengths, and shortening that says that it shortened.

MLflow cuts a tag value of more than 8,000 characters without a word (`MLFLOW_TRUNCATE_LONG_VALUES`), which
would leave broken JSON. Limits: `mlflow/utils/validation.py` (keys 250, tag values 8,000).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from ..base import PREFIX

TAG_LIMIT = 7900
"""UTF-8 bytes of a tag value of ours; MLflow's own limit is 8,000 characters."""

KEY_LIMIT = 250
"""Characters of a key."""

_NOT_ALLOWED = re.compile(r"[^\w\-.:/ ]")


def key(*parts: str) -> str:
    """Return a key under our prefix that MLflow accepts, the same for the same parts.

    MLflow allows word characters and `_ - . : /` and space, and refuses keys that are not a plain relative
    path. A key that is too long, or has characters that are refused, ends in a digest of what was asked for, so
    that no two keys become one.
    """
    asked = PREFIX + "/".join(parts)
    cleaned = [_NOT_ALLOWED.sub("_", p).strip() for p in parts]
    names = [n for p in cleaned for n in p.split("/") if n not in ("", ".", "..")]
    whole = PREFIX + "/".join(names)
    if whole == asked and len(whole) <= KEY_LIMIT:
        return whole
    return whole[: KEY_LIMIT - 9] + "-" + hashlib.sha256(asked.encode()).hexdigest()[:8]


def size(text: str) -> int:
    """Return the length of a text in UTF-8 bytes."""
    return len(text.encode())


def dumps(data: Any) -> str:
    """Write JSON as it stands in a tag. NaN must already be a string: raises `ValueError` otherwise."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False)


def fit_text(text: str, limit: int = TAG_LIMIT) -> str:
    """Return a text that fits into `limit` bytes; a shortened one says so and where the whole is."""
    if size(text) <= limit:
        return text
    end = f" … (shortened from {len(text):,} characters; the whole text: `lineage show`)"
    return text.encode()[: limit - size(end)].decode(errors="ignore") + end


def fit_json(data: Mapping[str, Any], whole: str, limit: int = TAG_LIMIT) -> tuple[str, bool]:
    """Return JSON of at most `limit` bytes, and whether anything was left out.

    Long strings go first, then items from the end of the largest list or mapping. What is left out is
    counted under `left_out`, and `whole` (the artifact that holds everything) stands under `whole`.
    """
    text = dumps(data)
    if size(text) <= limit:
        return text, False
    for longest in (1000, 300, 100):
        shorter = {**_shorten(dict(data), longest), "whole": whole}
        text = dumps(shorter)
        if size(text) <= limit:
            return text, True
    left_out: dict[str, int] = {}
    while size(text) > limit:
        holders = [k for k, v in shorter.items() if isinstance(v, list | dict) and v and k != "left_out"]
        if not holders:
            raise ValueError(f"{size(text)} bytes of JSON cannot be brought under {limit}: {text[:200]}")
        largest = max(holders, key=lambda k: size(dumps(shorter[k])))
        # half of what an even spread would need, so that few too many go and thousands go quickly
        items = len(shorter[largest])
        excess = (size(text) - limit) / size(dumps(shorter[largest]))
        count = min(items, max(1, int(items * excess / 2)))
        shorter[largest] = _without_last(shorter[largest], count)
        left_out[largest] = left_out.get(largest, 0) + count
        shorter["left_out"] = left_out
        text = dumps(shorter)
    return text, True


def _without_last(value: Any, count: int) -> Any:
    return value[:-count] if isinstance(value, list) else dict(list(value.items())[:-count])


def _shorten(value: Any, longest: int) -> Any:
    if isinstance(value, str) and len(value) > longest:
        return f"{value[:longest]}… ({len(value):,} characters)"
    if isinstance(value, dict):
        return {_shorten(k, longest): _shorten(v, longest) for k, v in value.items()}
    if isinstance(value, list):
        return [_shorten(v, longest) for v in value]
    return value
