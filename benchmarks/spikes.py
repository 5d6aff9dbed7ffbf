"""Known spikes of big public runs: which rule says something, and from which step on.

The logs of these runs are public as excerpts of a few rows. Before each stand 256 healthy values of another real
run (llm.c, kept in `data/`), multiplied to the level of the excerpt's first row, so that every rule is warm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import curves
from .detectors import OURS, Ours
from .faults import Judge
from .norms import recorded
from .spike_rules import OTHERS
from .table import Column, Table, Target

NAME = "spikes"
LEAD, BEGIN = 256, 8000
COLUMNS = (
    Column("case", "run and first row"),
    Column("signal", "signal"),
    Column("sick", "sick from"),
    Column("rows", "sick rows", "count"),
    *(Column(name, name) for name in (OURS, *OTHERS)),
)
RUN = "moe8x7b/loss"


def run() -> Table:
    """One row per excerpt and signal: the first flagged step, how many sick rows are flagged, false flags."""
    table = Table(NAME, "known spikes of public runs: first flagged row, flagged of the sick rows", COLUMNS)
    for excerpt in curves.excerpts():
        for signal in ("loss", "grad_norm"):
            if excerpt[signal] is not None:
                table.add(**_row(excerpt, signal))
    if curves.FILES.is_dir():
        table.add(**_moe(curves.curves()[RUN]))
    table.targets = _targets(table.rows)
    table.notes = [
        f"before each excerpt stand {LEAD} healthy values of the llm.c run, multiplied to the level of the "
        "excerpt's first row: the excerpts' own past is not public",
        "'false' counts flagged rows that are neither sick nor disputed; rows are those of the source, some of "
        "them one in ten steps",
        f"{RUN} is a tuning run: its line shows what the parameters were chosen on",
    ]
    return table


def lead_in(signal: str, level: float) -> list[float]:
    """Healthy values of a real run, at a level."""
    values = recorded()[f"llmc-rest/{signal}"].values[BEGIN : BEGIN + LEAD]
    return [v * level / values[-1] for v in values]


def flagged(rule: Judge, excerpt: Mapping[str, Any], signal: str) -> list[int]:
    """The steps of the excerpt's rows that a rule flags, after the lead-in."""
    for value in lead_in(signal, excerpt[signal][0]):
        rule(value)
    return [s for s, v in zip(excerpt["step"], excerpt[signal], strict=True) if rule(v)]


def _row(excerpt: Mapping[str, Any], signal: str) -> dict[str, Any]:
    sick = excerpt["spikes"].get(signal, [])
    disputed = excerpt["spikes"].get("disputed", {}).get(signal, [])
    rows = [s for s in excerpt["step"] if _within(s, sick)]
    said = {
        name: _said(flagged(rule, excerpt, signal), sick, disputed) for name, rule in _rules(signal).items()
    }
    return {
        "case": excerpt["name"],
        "signal": signal,
        "sick": str(sick[0][0]) if sick else "healthy",
        "rows": len(rows),
        **said,
    }


def _moe(curve: curves.Curve) -> dict[str, Any]:
    spikes = curve.sick["spikes"]
    said = {}
    for name, rule in _rules("loss").items():
        steps = [s for s, v in zip(curve.steps, curve.values, strict=True) if rule(v)]
        found = sum(any(a <= s <= b for s in steps) for a, b in spikes)
        healthy = {curve.steps[i] for i in curve.healthy()}
        said[name] = f"{found} of {len(spikes)} spikes" + _false(sum(s in healthy for s in steps))
    return {"case": RUN, "signal": "loss", "sick": str(spikes[0][0]), "rows": None, **said}


def _rules(signal: str) -> dict[str, Judge]:
    return {OURS: Ours(signal), **{n: rule().flags for n, rule in OTHERS.items()}}


def _said(steps: Sequence[int], sick: Sequence[Sequence[int]], disputed: Sequence[Sequence[int]]) -> str:
    hits = [s for s in steps if _within(s, sick)]
    wrong = sum(not _within(s, [*sick, *disputed]) for s in steps)
    return (f"{hits[0]}: {len(hits)}" if hits else "-") + _false(wrong)


def _false(n: int) -> str:
    return f", {n} false" if n else ""


def _within(step: int, spans: Sequence[Sequence[int]]) -> bool:
    return any(a <= step <= b for a, b in spans)


def _targets(rows: Sequence[Mapping[str, Any]]) -> list[Target]:
    cases = [r for r in rows if r["sick"] != "healthy" and r["case"] != RUN]
    at_once = [r for r in cases if str(r[OURS]).startswith(f"{r['sick']}:")]
    clean = all("false" not in str(r[OURS]) for r in rows)
    return [
        Target(
            "every labelled spike of the excerpts is flagged at its first row",
            f"{len(at_once)} of {len(cases)}",
            len(at_once) == len(cases),
        ),
        Target("no healthy row is flagged", "none" if clean else "some, see the table", clean),
    ]
