"""False alarms and detections of our detectors and of others' rules on real training curves.

`run()` judges the test runs, which no parameter was chosen on. The tuning runs stand beside them for our own
detectors only.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

from lineage.judge.detect_signal import SignalDetector
from lineage.judge.detectors import RULES

from . import confidence, curves
from .faults import AFTER, BURST, BURSTS, JUMPS, RISE, RISES, Judge, Make, Outcome, judge
from .norms import recorded
from .spike_rules import OTHERS
from .table import Column, Table, Target

NAME = "detectors"
OURS = "lineage"
GOAL = 3.0
"""False alarms per 10,000 healthy steps at most."""
COLUMNS = (
    Column("signal", "signal"),
    Column("runs", "runs"),
    Column("rule", "rule"),
    Column("steps", "healthy steps", "count"),
    Column("alarms", "false alarms", "count"),
    Column("rate", "per 10,000", "number"),
    Column("interval", "95 %"),
    Column("trials", "trials of each", "count"),
    *(Column(f"x{size:g}", f"x{size:g}", "share") for size in JUMPS),
    *(Column(f"burst x{size:g}", f"{BURST} steps x{size:g}", "share") for size in BURSTS),
    *(Column(f"rise x{growth:g}", f"rise x{growth:g}", "share") for growth in RISES),
    Column("NaN", "NaN", "share"),
    Column("x10 after NaN", f"x10, {AFTER} after NaN", "share"),
    Column("blind", "flags between", "count"),
)


def ours(curve: curves.Curve) -> Judge:
    """Our detectors of one signal, as a judge."""
    return Ours(curve.signal)


class Ours:
    """Spikes and slow rises: whether either says something about the next value."""

    def __init__(self, signal: str) -> None:
        self._detector = SignalDetector(signal)

    def __call__(self, value: float) -> bool:
        return any(self._detector.update(value))


def _other(name: str) -> Make:
    def make(_curve: curves.Curve) -> Judge:
        return OTHERS[name]().flags

    return make


def run(*, trials: int = 100, only: Sequence[str] | None = None) -> Table:
    """The table. `trials` of each fault per test run; `only` names the rules (all by default)."""
    table = Table(
        NAME, "spikes and slow rises on real training curves, test runs apart from tuning runs", COLUMNS
    )
    if not curves.FILES.is_dir():
        table.notes.append(f"not measured: there are no training curves in {curves.FILES} (LINEAGE_CURVES)")
        return table
    found = curves.curves() | recorded()
    began = time.process_time()
    for signal in ("loss", "grad_norm"):
        for part in ("test", "tuning"):
            of_signal = [c for c in curves.split(found, part) if c.signal == signal]
            for rule in (OURS, *OTHERS):
                if (part == "tuning" and rule != OURS) or (only is not None and rule not in only):
                    continue
                outcome = judge(ours if rule == OURS else _other(rule), of_signal, trials)
                table.add(**_row(signal, part, rule, outcome))
                if rule == OURS:
                    table.notes.append(_where(signal, part, of_signal, outcome))
                    if part == "test":
                        table.notes.append(_delays(signal, outcome))
    table.targets = _targets(table.rows)
    table.notes += _notes(time.process_time() - began)
    return table


def _row(signal: str, part: str, rule: str, outcome: Outcome) -> dict[str, Any]:
    low, high = confidence.rate(len(outcome.alarms), outcome.steps)
    shares = {k: s.found / s.tried for k, s in outcome.faults.items()}
    return {
        "signal": signal,
        "runs": part,
        "rule": rule + ("" if rule == OURS or signal in getattr(OTHERS[rule], "meant_for", ()) else " *"),
        "steps": outcome.steps,
        "alarms": len(outcome.alarms),
        "rate": 1e4 * len(outcome.alarms) / outcome.steps,
        "interval": f"{low:.2g}-{high:.2g}",
        "trials": outcome.share("NaN").tried,
        "blind": outcome.blind,
        **shares,
    }


def _where(signal: str, part: str, of_signal: Sequence[curves.Curve], outcome: Outcome) -> str:
    count = Counter(name for name, _ in outcome.alarms)
    runs = ", ".join(
        f"{c.name} {len(c.healthy()):,}" + (f" ({count[c.name]} false)" if count[c.name] else "")
        for c in of_signal
    )
    at = "".join(f"; {name} at step {step:,}" for name, step in outcome.alarms[:12])
    return f"{OURS}, {signal}, {part} runs, healthy values: {runs}{at}"


def _delays(signal: str, outcome: Outcome) -> str:
    said = ", ".join(
        f"x{g:g} a step after {median(share.delays) + 1:.0f} steps"
        for g in RISES
        if (share := outcome.share(f"rise x{g:g}")).delays
    )
    return f"{OURS}, {signal}: median delay of a slow rise where it is found: {said or 'none found'}"


def _targets(rows: Sequence[dict[str, Any]]) -> list[Target]:
    mine = [r for r in rows if r["rule"] == OURS and r["runs"] == "test"]
    if not mine:
        return []
    steps, alarms = sum(r["steps"] for r in mine), sum(r["alarms"] for r in mine)
    low, high = confidence.rate(alarms, steps)
    tried = sum(r["trials"] for r in mine)
    found = sum(round(r["x10"] * r["trials"]) for r in mine)
    least, _ = confidence.share(found, tried)
    per = 1e4 * alarms / steps
    return [
        Target(
            f"at most {GOAL:g} false alarms per 10,000 healthy steps on the test runs",
            f"{alarms} on {steps:,}: {per:.2g} (95 %: {low:.2g} to {high:.2g})",
            per <= GOAL,
        ),
        *(
            Target(
                f"at most {GOAL:g} per 10,000 on {r['signal']} alone",
                f"{r['alarms']} on {r['steps']:,}: {r['rate']:.2g} (95 %: {r['interval']})",
                r["rate"] <= GOAL,
            )
            for r in mine
        ),
        Target(
            "every single-step jump to ten times the value is found on the test runs",
            f"{found} of {tried} (95 %: at least {100 * least:.1f} %)",
            found == tried,
        ),
    ]


def _notes(seconds: float) -> list[str]:
    return [
        "false alarm: a healthy value that a rule flags, each one counted; labels were written before tuning, and "
        "no value of a test run is excused. The two 15B runs are one recipe and one order of data on two kinds of "
        "device, so they count for less than two",
        "a fault multiplies real healthy values; detected: flagged at the step of the jump, at any of the "
        f"{BURST} steps of a burst, within {RISE} steps of a slow rise's beginning. It multiplies by the factor at "
        "each step, so a spike rule finds it once it has grown",
        f"NaN: flagged itself; then {AFTER} healthy steps, the flags on which are added up over all trials, then "
        "ten times the value",
        "*: the rule's authors mean it for the other signal. KillLossSpike waits for more than four values by "
        "design, ZClip clips and does not alarm, Megatron checks NaN apart: its rule for large values is shown",
        f"detectors of version {', '.join(sorted({r.name for r in RULES.values()}))}; {seconds:.0f} s of processor "
        "time",
    ]
