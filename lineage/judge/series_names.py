"""What a logged series is by its name: a training loss, a norm of gradients, or neither."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Kind = Literal["loss", "norm", "update"]


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


LOSS = frozenset(("loss", "losses", "nll", "crossentropyloss", "mse"))
GRADIENT = frozenset(("grad", "grads", "gradient", "gradients"))
FILLERS = _set(
    "train training trainer step steps total avg average mean global reduced all local rank batch micro metrics "
    "metric optim optimizer lm model nll ce cross entropy crossentropy l2 norm norms loss losses grad grads gradient "
    "gradients gnorm before after pre post clip clipping clipped unclipped raw log perf stats iter iteration"
)
"""Words that leave a name the run's own loss or norm; with any other one it is of a part, a task or a layer."""
NOT_TRAINING = _set("eval evaluation val valid validation test dev holdout heldout best ema smooth smoothed")
NO_VALUE = _set(
    "scale scaler weight weights coef coeff coefficient factor target limit threshold max maximum min minimum lr rate "
    "ratio std var variance count num number nan nans skipped skip time tokens ppl perplexity"
)
"""Words that make a setting, a count or a statistic of it."""
REWARDED = _set("reward rewards advantage advantages kl policy actor critic return returns grpo ppo dpo")
"""Words of a run whose loss may well be zero: a policy's loss is, until the policy moves."""
GLOBAL = _set("global total reduced all")
LOCAL = _set("local rank")


@dataclass(frozen=True)
class Name:
    """What a key says of its series."""

    kind: Kind
    main: bool
    """of the whole model and task, not of a part"""
    scope: Literal["global", "local"] | None
    """what the name says of the ranks it is of"""


@lru_cache(maxsize=8192)
def words(key: str) -> tuple[str, ...]:
    """The words of a key, in lower case: `optim/GradNorm.total` -> optim, grad, norm, total."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", key)
    return tuple(p.lower() for p in parts)


@lru_cache(maxsize=8192)
def of(key: str) -> Name | None:
    """What a key names; None where it is no training loss and no norm of gradients."""
    found = words(key)
    said = frozenset(found)
    if "rank" in said:
        said = frozenset(w for w in said if not w.isdigit())
    if said & NOT_TRAINING or said & NO_VALUE:
        return None
    gradient = bool(said & GRADIENT and said & {"norm", "norms"}) or "gnorm" in said
    loss = bool(said & LOSS) or {"cross", "entropy"} <= said or "crossentropy" in said
    if gradient == loss:  # neither, or a name that says both
        return None
    scope: Literal["global", "local"] | None = (
        "local" if said & LOCAL else "global" if said & GLOBAL else None
    )
    return Name("norm" if gradient else "loss", said <= FILLERS, scope)


def shows_rewards(key: str) -> bool:
    """Whether a key shows that its run learns from rewards."""
    return bool(frozenset(words(key)) & REWARDED)
