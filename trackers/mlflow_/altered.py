"""What MLflow made of the user's own values: params and tags that it cut, values that its page hides or alters."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..base import PREFIX
from .limits import fit_text, key
from .store import RunFacts, Store

LONGEST_PARAM, LONGEST_PARAM_BEFORE, LONGEST_TAG = 6000, 500, 8000
"""Characters after which MLflow cuts without a word (`MLFLOW_TRUNCATE_LONG_VALUES`); before 2.8 params at 500."""
INFINITE = 1.7976931348623157e308
"""What a database keeps for an infinity: the largest number that it knows."""
MOST_NAMES = 8


def say(store: Store, facts: RunFacts, asked: Mapping[str, str]) -> None:
    """Say on the page what MLflow cut, hides or alters of the user's own values, as far as the run shows it now."""
    said = {
        "LIN-T002": cut(facts.params, facts.tags, asked),
        "LIN-T003": hidden(facts.metrics),
    }
    tags = {key("note", code): fit_text(words) for code, words in said.items() if words}
    if tags:
        store.log(tags)


def cut(params: Mapping[str, str], tags: Mapping[str, str], asked: Mapping[str, str]) -> str | None:
    """Return which of the run's params and tags MLflow cut, in words; None where none was.

    Args:
        params, tags: what the run holds.
        asked: the config of the newest segment that this process has shown, key -> value as text.

    A value of exactly the limit's length may be whole; without its config that cannot be told, and is said so.
    """
    sure = [k for k, v in params.items() if len(v) < len(asked.get(k, "")) and asked[k].startswith(v)]
    maybe = [
        k
        for k, v in params.items()
        if k not in sure and k not in asked and len(v) in (LONGEST_PARAM, LONGEST_PARAM_BEFORE)
    ]
    maybe += [k for k, v in tags.items() if len(v) == LONGEST_TAG and not k.startswith(PREFIX)]
    parts = []
    if sure:
        parts.append(f"MLflow cut {named(sure)} without a word; the config in lineage/config_*.json is whole")
    if maybe:
        parts.append(
            f"{named(maybe)} {'is' if len(maybe) == 1 else 'are'} exactly as long as MLflow lets a value be, so "
            "the rest may have been cut"
        )
    return ". ".join(parts) or None


def hidden(metrics: Mapping[str, float]) -> str | None:
    """Return which of the run's latest metric values are not what its page shows, in words; None where all are."""
    theirs = {k: v for k, v in metrics.items() if not k.startswith(PREFIX)}
    nan = [k for k, v in theirs.items() if math.isnan(v)]
    infinite = [k for k, v in theirs.items() if math.isinf(v) or abs(v) == INFINITE]
    parts = []
    if nan:
        parts.append(f"the latest value of {named(nan)} is NaN: tables and charts of this page leave NaN out")
    if infinite:
        parts.append(
            f"the latest value of {named(infinite)} is an infinity, which this page shows as 1.797e308"
        )
    return ". ".join(parts) or None


def named(names: list[str]) -> str:
    """Some names, and how many more there are."""
    shown = ", ".join(n if len(n) <= 80 else f"{n[:79]}…" for n in sorted(names)[:MOST_NAMES])
    return shown + (f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else "")
