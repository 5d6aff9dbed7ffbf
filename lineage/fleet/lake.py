"""The fleet's queries as Ibis expressions, for a ledger that lies in a lake and an engine that is there already.

The same questions as `sql.py` asks of DuckDB, with what Ibis means alike on DuckDB and on Spark: filter, group,
window, median. No `isinf` (Ibis makes a constant false of it on Spark): values are broken by their counts. Rows are
filtered before windows. A lake does not tell which process wrote a row, so twins of a rank are one stream here.

    con = ibis.duckdb.connect()                              # or ibis.pyspark.connect(session)
    lake.odd_values(lake.table(con, "/lake/run", "probes")).to_pyarrow()
"""

from __future__ import annotations

from typing import Any

from ..judge.detect_ranks import RANKS
from ..judge.detectors import RULES
from .sql import SLACK

INSTALL = "pip install 'runlineage[fleet]'"
STREAM = ["segment", "rank", "signal"]


def table(connection: Any, ledger: str, name: str) -> Any:
    """The sealed files of a table of a ledger, by the path or URL that the engine reads."""
    return connection.read_parquet(f"{ledger.rstrip('/')}/series/*/*.{name}.parquet")


def _ibis() -> Any:
    try:
        import ibis
    except ImportError as e:
        raise ImportError(f"Ibis is not installed ({e}): {INSTALL}") from None
    return ibis


def _counted(t: Any) -> Any:
    """How many elements, or values, of a row are not finite."""
    return t.n_nan.fill_null(0) + t.n_posinf.fill_null(0) + t.n_neginf.fill_null(0)


def broken_tensors(tensors: Any) -> Any:
    """Every row of a tensor with an element that is not finite."""
    bad = tensors.filter(_counted(tensors) > 0)
    return bad.select(
        "segment", "rank", "step", "kind", "tensor", "order", "elements", "n_nan", "n_posinf", "n_neginf"
    )


def broken_values(probes: Any) -> Any:
    """Every judged value that is not finite."""
    return probes.filter(probes.signal.isin([*RULES]) & (_counted(probes) > 0)).select(*STREAM, "step")


def spans(probes: Any) -> Any:
    """Of each rank the first and the last step with a value, and how many steps there are."""
    return probes.group_by("segment", "rank").aggregate(
        first=probes.step.min(), last=probes.step.max(), steps=probes.step.nunique()
    )


def odd_values(probes: Any) -> Any:
    """Streams with a value that may be the first to be flagged, and where it is: see `sql.odd_values`."""
    ibis = _ibis()
    logs = [signal for signal, rule in RULES.items() if rule.log]
    finite = probes.filter(probes.signal.isin([*RULES]) & (_counted(probes) == 0) & probes.value.notnull())
    judged = finite.filter(~finite.signal.isin(logs) | (finite.value > 0))
    judged = judged.mutate(
        x=ibis.cases((judged.signal.isin(logs), judged.value.abs().nullif(0.0).ln()), else_=judged.value)
    )
    (centre,), (warmup,) = {r.centre for r in RULES.values()}, {r.warmup for r in RULES.values()}
    stream = ibis.window(group_by=STREAM, order_by=judged.step)
    last = ibis.window(group_by=STREAM, order_by=judged.step, preceding=(centre, 1))
    placed = judged.mutate(nth=ibis.row_number().over(stream) + 1, centre=judged.x.median().over(last))
    bounds = [
        (
            placed.signal == signal,
            placed.centre + ibis.greatest(placed.centre.abs() * rule.relative, ibis.literal(rule.absolute)),
        )
        for signal, rule in RULES.items()
    ]
    odd = placed.filter((placed.nth > warmup) & (placed.x > ibis.cases(*bounds) - SLACK))
    return odd.group_by(STREAM).aggregate(nth=odd.nth.min(), step=odd.step.min())


def far_ranks(probes: Any) -> Any:
    """Values of a rank that lie above the median of the ranks of their step by the least factor of its rule.

    What `lineage.judge.detect_ranks` can call odd is among them.
    """
    ibis = _ibis()
    t = probes.filter(probes.signal.isin([*RANKS]) & (_counted(probes) == 0) & (probes.value > 0))
    middle = t.group_by("segment", "step", "signal").aggregate(
        middle=t.value.median(), ranks=t["rank"].nunique()
    )
    t = t.join(middle, ["segment", "step", "signal"])
    factor = ibis.cases(
        *((t.signal == signal, ibis.literal(rule.least_factor)) for signal, rule in RANKS.items())
    )
    least = min(rule.minimum for rule in RANKS.values())
    far = t.filter((t.ranks >= least) & (t.value > t.middle * factor * (1 - SLACK)))
    return far.select(*STREAM, "step", "value", "middle")


def layer_norms(tensors: Any) -> Any:
    """The largest and the smallest norm of each tensor's gradient of a rank, without the loss scale: what it spans."""
    t = tensors.filter((tensors.kind == "gradient") & (_counted(tensors) == 0) & (tensors.sumsq > 0))
    t = t.mutate(norm=t.sumsq.sqrt() / t.scale.fill_null(1.0))
    return t.group_by("segment", "rank", "tensor").aggregate(
        smallest=t.norm.min(), largest=t.norm.max(), middle=t.norm.median(), steps=t.step.nunique()
    )


QUERIES = {
    "broken_tensors": ("tensors", broken_tensors),
    "broken_values": ("probes", broken_values),
    "spans": ("probes", spans),
    "odd_values": ("probes", odd_values),
    "far_ranks": ("probes", far_ranks),
    "layer_norms": ("tensors", layer_norms),
}
"""Name -> the table that it is asked of, and the query."""
