"""The mixture of domains that was declared, wherever that was, and the test that follows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .._rooms import schemas
from ..judge import mixture

if TYPE_CHECKING:
    from .recorder import Recorder

PARENTS = (
    "data_mix",
    "mix",
    "mixture",
    "mixture_weights",
    "domain_weights",
    "dataset_weights",
    "data_weights",
)
"""Tables of a config whose numbers are weights of domains."""
UNSEEN = "mixture of domains: declared, but the batches name none; add st.batch(batch, domains=...)"
"""Said where a declared mixture cannot be followed."""
MOST = 256
"""Domains that a declared mixture may have."""


class Followed:
    """Tests the samples of a run against the mixture that stands, each declared mixture with a test of its own."""

    def __init__(self, rec: Recorder) -> None:
        self._rec = rec
        self._standing: Mapping[str, float] | None = None
        self._test: mixture.MixTest | None = None
        self._tests = 0
        self._undeclared_told = False
        self._looked = False

    def look(
        self, step: int, counts: Mapping[str, int], given: Mapping[str, float] | None
    ) -> list[schemas.Finding]:
        """Take a step's samples by domain. `given` is the mixture that the loop declared, above all others."""
        if not counts:
            if not self._looked:
                self._looked = True
                if self._find(given) is not None:
                    self._rec.gaps.append(UNSEEN)
            return []
        self._declared(given)
        if self._standing is None:
            return []
        known = {k: n for k, n in counts.items() if k in self._standing}
        others = {k: n for k, n in counts.items() if k not in self._standing}
        found = []
        if others and not self._undeclared_told:
            self._undeclared_told = True
            found.append(mixture.undeclared(step, others, self._standing))
        if known and self._test is not None:
            shift = self._test.look(step, known)
            if shift is not None:
                found.append(shift)
                self._test = None  # told; a mixture that is declared anew is tested anew
        return found

    def _declared(self, given: Mapping[str, float] | None) -> None:
        """Begin a test where another mixture stands than before. The odds of a false finding are shared out."""
        mix = self._find(given)
        if mix is None or mix == self._standing:
            return
        try:
            # half of what may be spent goes to the first test, a quarter to the second, ...
            error = mixture.ERROR / max(1, self._rec.world.world_size) / 2 ** (self._tests + 1)
            self._test = mixture.MixTest(mix, error)
        except ValueError as e:
            self._test = None
            self._rec.trouble("mixture", e, "the mixture of domains is not compared with what was declared")
        self._tests += 1
        self._standing, self._undeclared_told = mix, False

    def _find(self, given: Mapping[str, float] | None) -> Mapping[str, float] | None:
        for found in (given, *self._of_loader(), *self._of_config()):
            weights = _weights(found)
            if weights:
                return weights
        return None

    def _of_loader(self) -> Iterator[Any]:
        described = getattr(self._rec.watched.loader, "lineage_data", None)
        if callable(described):
            yield described().get("data_mix")

    def _of_config(self) -> Iterator[dict[str, Any]]:
        config = self._rec.now.config
        tables: dict[str, dict[str, Any]] = {}
        for key, value in config.values.items() if config is not None else ():
            parent, _, name = key.rpartition(".")
            if parent.rpartition(".")[2] in PARENTS and value.type in ("int", "float"):
                tables.setdefault(parent, {})[name] = value.value
        yield from tables.values()


def _weights(found: Any) -> dict[str, float] | None:
    """Weights by domain, where what was found is that: at least two numbers by name."""
    if not isinstance(found, Mapping) or not 2 <= len(found) <= MOST:
        return None
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in found.values()):
        return None
    return {str(k): float(v) for k, v in found.items()}
