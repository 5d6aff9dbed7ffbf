"""The debugging ladder: checks that make a problem small before it is an incident.

Each rung is a function that gives a `schemas.Rung`, and a command. A rung that is written down stands in the ledger, so
that a later reader sees that it was made, of which recipe, with which result.

from lineage import ladder
found = ladder.overfit(model, optimizer, loss, batch)
ladder.record(found, "lineage-runs/pretrain-7b")
ladder.require(found)              # in a team's own tests: raises AssertionError with the words of what failed
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .answers import require
    from .batch import show_batch
    from .gradients import gradient_report
    from .holding import holds
    from .normalisation import loss_normalisation
    from .one_batch import overfit
    from .precision import precision_audit
    from .recording import record
    from .reference import compare_models

_LAZY = {
    "compare_models": ".reference",
    "gradient_report": ".gradients",
    "holds": ".holding",
    "loss_normalisation": ".normalisation",
    "overfit": ".one_batch",
    "precision_audit": ".precision",
    "record": ".recording",
    "require": ".answers",
    "show_batch": ".batch",
}

__all__ = [
    "compare_models",
    "gradient_report",
    "holds",
    "loss_normalisation",
    "overfit",
    "precision_audit",
    "record",
    "require",
    "show_batch",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name], __name__), name)
    raise AttributeError(f"module 'lineage.ladder' has no attribute {name!r}")
