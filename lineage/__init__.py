"""Lineage of training runs: what was restored, what changed, and what may still be concluded.

run = wandb.init(...)                      # or mlflow.start_run(), or no tracker
rec = lineage.attach(run, model=model, optimizer=optimizer, scheduler=scheduler, loader=loader)
for step, batch in enumerate(loader, start=done + 1):
    with rec.step(step, batch) as st:
        loss = train_step(batch)
        st.loss(loss)
    run.log({"loss": loss}, step=step)     # the tracker's own call, untouched
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _rooms
from ._build import VERSION

if TYPE_CHECKING:
    from .capture.in_worker import fingerprinted
    from .ledger.reader import Ledger, LedgerNotFound, open_ledger
    from .recorder.attach import attach
    from .recorder.recorder import Recorder

__version__ = VERSION
DamagedInstallation = _rooms.DamagedInstallation

_LAZY = {
    "attach": ".recorder.attach",
    "fingerprinted": ".capture.in_worker",
    "Recorder": ".recorder.recorder",
    "Ledger": ".ledger.reader",
    "LedgerNotFound": ".ledger.reader",
    "open_ledger": ".ledger.reader",
}

__all__ = [
    "DamagedInstallation",
    "Ledger",
    "LedgerNotFound",
    "Recorder",
    "__version__",
    "attach",
    "fingerprinted",
    "open_ledger",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name == "observe":
        return importlib.import_module(".observe", __name__)
    if name in ("schemas", "trackers"):  # for who writes an adapter: ours, whatever else bears these names
        return getattr(_rooms, name)
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name], __name__), name)
    raise AttributeError(f"module 'lineage' has no attribute {name!r}")
