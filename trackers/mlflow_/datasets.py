"""What a regime was trained on, as datasets among the run's inputs: names and a digest, no data."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any

from .._rooms import schemas
from ..base import Shown, TrackerRefused
from . import layout
from .limits import dumps, fit_text
from .store import DatasetInput, Store

SOURCE_TYPE = "lineage"
_DATA = ("data_mix", "data_order")
_NAME_LIMIT, _SOURCE_LIMIT = 250, 6000
"""Characters that we use of MLflow's 500 for a name, and 65,535 bytes for a source."""


def of_regime(record: Shown, segment: int) -> DatasetInput | None:
    """Return the dataset of a regime; None where nothing tells what the data is.

    Two regimes of the same data have one digest, so MLflow shows one dataset: the first that used it.
    """
    payload: Any = record.payload
    known = {k: layout.value(v) for k, v in payload.values.items() if k in _DATA}
    if not known:
        return None
    mix: schemas.Scalar | None = payload.values.get("data_mix")
    return DatasetInput(
        name=fit_text(mix.text() if mix is not None else "data without a name", _NAME_LIMIT),
        digest=hashlib.sha256(dumps(dict(sorted(known.items()))).encode()).hexdigest()[:32],
        source_type=SOURCE_TYPE,
        source=fit_text(dumps(known), _SOURCE_LIMIT),
        context=f"segment {segment}, from step {payload.from_step:,}",
    )


def show(store: Store, record: Shown, segment: int) -> None:
    """Add the dataset of a regime to the run's inputs. A server from before datasets goes without."""
    found = of_regime(record, segment)
    if found is not None:
        with contextlib.suppress(TrackerRefused):
            store.add_dataset(found)
