"""The one place where this room imports another: schemas.

As `trackers` the sibling is `schemas`; loaded by file location as `lineage.trackers` (see
`lineage/_rooms.py`), it is `lineage.schemas`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import schemas
else:
    _home = __package__.rpartition(".")[0]
    schemas = importlib.import_module(f"{_home}.schemas" if _home else "schemas")

__all__ = ["schemas"]
