"""Streams that are kept in this repository: our recordings of norms by layer and rank (see `record_norms`), and
the later steps of a public run that logs its gradient norm (its source stands in the file's metadata)."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq

from .curves import Curve

FOLDER = Path(__file__).resolve().parent / "data"
PARTS = ("tuning", "test", "last")


def table(part: str) -> dict[str, list[float]]:
    """The columns of the recording `tuning`, `test` or `last`: `loss/<rank>`, `local/<rank>`, `layer/<parameter>`."""
    found: dict[str, list[float]] = pq.read_table(FOLDER / f"norms-{part}.parquet").to_pydict()
    return found


def family(columns: dict[str, list[float]], prefix: str) -> list[dict[str, float]]:
    """One dict per step of the columns under a prefix."""
    names = [c for c in columns if c.startswith(f"{prefix}/")]
    rows = zip(*(columns[c] for c in names), strict=True)
    return [dict(zip((n.partition("/")[2] for n in names), row, strict=True)) for row in rows]


@cache
def recorded() -> dict[str, Curve]:
    """Rank 0's loss and the reduced norm of the recordings, as `recorded-<part>/<signal>`, and `llmc-rest/...`."""
    rest = pq.read_table(FOLDER / "llmc-rest.parquet").to_pydict()
    out = {
        f"llmc-rest/{signal}": Curve(f"llmc-rest/{signal}", signal, rest["step"], rest[signal])
        for signal in ("loss", "grad_norm")
    }
    for part in PARTS:
        columns = table(part)
        reduced = [math.hypot(*row.values()) for row in family(columns, "layer")]
        steps = list(range(1, len(reduced) + 1))
        out[f"recorded-{part}/grad_norm"] = Curve(f"recorded-{part}/grad_norm", "grad_norm", steps, reduced)
        out[f"recorded-{part}/loss"] = Curve(f"recorded-{part}/loss", "loss", steps, columns["loss/0"])
    return out
