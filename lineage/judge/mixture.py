"""Whether samples come from the declared mixture of domains: a test that may be looked at after every step.

It bets. A test martingale (Ville, 1939; Robbins, "Statistical methods related to the law of the iterated
logarithm", 1970) multiplies, sample by sample, the chance that a learner who only saw earlier samples gave to the
domain that came, over the chance that the declared mixture gives it. Where samples are drawn independently from the
declared mixture, its expectation stays 1, so the odds that it ever exceeds 1/error are at most `error`, over the whole
run and however often one looks. The learner is a Dirichlet prior around the declared mixture.

A change late in a long run is drowned by what came before, so a new learner starts every `SPACING` samples, the j-th
with the stake 1 / (j (j + 1)); stakes sum to 1, and a sum of martingales is one. The number of learners that are
followed is bounded: one that is dropped leaves the table with what it has.

The bound needs independent draws. A loader that deals domains out evenly is below it, one that takes whole runs of
samples from one document or domain at a time is above it: then name the domain of the micro-batch, which counts as one
draw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from .._rooms import schemas
from .probed import finding

ERROR = 1e-3
"""Odds of a false finding in a whole run, over all its ranks."""
SPACING = 2048
FOLLOWED = 16
CONCENTRATION = 16.0
"""How sure the learner is of the declared mixture at its start, in samples."""


@dataclass
class _Learner:
    stake: float
    """log of what it was given"""
    start: int
    seen: dict[str, int] = field(default_factory=dict)
    n: int = 0
    gain: float = 0.0
    """log of what it made of it"""

    def add(self, counts: Mapping[str, int], log_p: Mapping[str, float]) -> None:
        total = 0
        for name, count in counts.items():
            prior = CONCENTRATION * math.exp(log_p[name])
            before = self.seen.get(name, 0)
            self.gain += (
                math.lgamma(prior + before + count) - math.lgamma(prior + before) - count * log_p[name]
            )
            self.seen[name] = before + count
            total += count
        self.gain += math.lgamma(CONCENTRATION + self.n) - math.lgamma(CONCENTRATION + self.n + total)
        self.n += total


class MixTest:
    """Follows one rank's samples against one declared mixture. Weights need not sum to 1."""

    def __init__(self, mix: Mapping[str, float], error: float = ERROR) -> None:
        total = sum(mix.values())
        if not mix or total <= 0 or any(not w >= 0 or math.isinf(w) for w in mix.values()):
            raise ValueError(
                f"a mixture needs weights of at least 0 that do not sum to 0; this one is {dict(mix)}"
            )
        self.mix = {name: w / total for name, w in mix.items() if w > 0}
        self.error = error
        self.samples = 0
        self._log_p = {name: math.log(p) for name, p in self.mix.items()}
        self._learners: list[_Learner] = []
        self._made = 0
        self._left = -math.inf
        """log of what learners that are no more followed had"""

    def add(self, counts: Mapping[str, int]) -> float:
        """Take the declared domains' samples of one step. Returns the log of the martingale."""
        while self._made * SPACING <= self.samples:
            self._made += 1
            self._learners.append(_Learner(-math.log(self._made) - math.log(self._made + 1), self.samples))
            self._drop()
        for learner in self._learners:
            learner.add(counts, self._log_p)
        self.samples += sum(counts.values())
        still = -math.log(self._made + 1)  # the stakes of those that have not begun
        return _log_sum([*(s.stake + s.gain for s in self._learners), self._left, still])

    def _drop(self) -> None:
        """Keep learners of all ages: of two neighbours that are old and close, the later one goes.

        Which goes depends on the numbers of samples alone, so it is no look at the result.
        """
        if len(self._learners) <= FOLLOWED:
            return
        now = self.samples + 1
        pairs = range(1, len(self._learners) - 1)
        closest = min(
            pairs, key=lambda i: (now - self._learners[i - 1].start) / (now - self._learners[i + 1].start)
        )
        gone = self._learners.pop(closest)
        self._left = _log_sum([self._left, gone.stake + gone.gain])

    def look(self, step: int, counts: Mapping[str, int]) -> schemas.Finding | None:
        """Take a step's samples; a finding where the mixture is not the declared one."""
        evidence = self.add(counts)
        if evidence < -math.log(self.error):
            return None
        best = max(self._learners, key=lambda s: s.stake + s.gain)
        parts = sorted(self.mix, key=lambda k: -abs(best.seen.get(k, 0) / best.n - self.mix[k]))
        top = parts[0]
        share = best.seen.get(top, 0) / best.n
        text = (
            f"of the last {best.n:,} samples {share:.1%} are of {top}, where {self.mix[top]:.1%} is declared: such "
            f"evidence against independent draws from the declared mixture has odds of at most {self.error:g} in a run"
        )
        found = finding(
            "LIN-B005",
            "mixture/1",
            "warning",
            "batches",
            text,
            [],
            "compare the loader's weights and shards with the declared mixture; a curriculum is declared as it changes",
        )
        values: dict[str, object] = {
            "step": step,
            "samples": best.n,
            "log_evidence": evidence,
            "error": self.error,
            **{f"share of {k}": best.seen.get(k, 0) / best.n for k in parts[:8]},
            **{f"declared of {k}": self.mix[k] for k in parts[:8]},
        }
        shown = {k: schemas.Scalar.of(v) for k, v in values.items()}
        return found.model_copy(update={"names": parts[:8], "count": len(parts), "values": shown})


def undeclared(step: int, counts: Mapping[str, int], mix: Mapping[str, float]) -> schemas.Finding:
    """Samples of domains that the declared mixture does not have."""
    found = finding(
        "LIN-B006",
        "mixture/1",
        "warning",
        "batches",
        f"domains are read at step {step:,} that the declared mixture does not have",
        sorted(counts),
        "declare them with their weight, under the names that the batches use",
    )
    values = {"step": step, "declared": ", ".join(sorted(mix))[:200]}
    return found.model_copy(update={"values": {k: schemas.Scalar.of(v) for k, v in values.items()}})


def _log_sum(values: list[float]) -> float:
    top = max(values)
    return top if math.isinf(top) else top + math.log(sum(math.exp(v - top) for v in values))
