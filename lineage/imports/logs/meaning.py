"""Which signal of the ledger a logged key is."""

from __future__ import annotations

from collections.abc import Mapping

from ...judge import series_names
from ...observe.steps import signal

_RATE = frozenset(("lr", "learning", "rate", "train", "optimizer", "optim", "group", "0"))


class Meaning:
    """Gives each key its signal; the first key that claims one keeps it, so that two losses never mix."""

    def __init__(self) -> None:
        self.keys: dict[str, str] = {}
        """signal -> the key that it is read from"""
        self._of: dict[str, str | None] = {}

    def of(self, values: Mapping[str, float], known: Mapping[str, str]) -> dict[str, float]:
        """signal -> value of a training row. `known`: what the format says of its keys."""
        out: dict[str, float] = {}
        for key, value in values.items():
            if key not in self._of:
                self._of[key] = self._claim(key, known)
            name = self._of[key]
            if name is not None and name not in out:
                out[name] = value
        return out

    def _claim(self, key: str, known: Mapping[str, str]) -> str | None:
        name = known.get(key) or _by_words(key)
        if name is None:
            return None
        holder = self.keys.setdefault(name, key)
        # Files of other formats may log the same thing under another key; a name that a format vouches for counts.
        return name if holder == key or key in known else None


def _by_words(key: str) -> str | None:
    """The signal that a key names by itself."""
    if (found := signal(key)) is not None:
        return found
    said = frozenset(series_names.words(key))
    if said <= _RATE and ("lr" in said or {"learning", "rate"} <= said):
        return "lr"
    if said in (frozenset(("loss", "scale")), frozenset(("grad", "scale"))):
        return "loss_scale"
    name = series_names.of(key)
    if name is None or not name.main:
        return None
    return "loss" if name.kind == "loss" else "grad_norm" if name.kind == "norm" else None
