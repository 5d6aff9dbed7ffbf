"""What counters of GPUs mean: which are errors of memory or links, and which reasons to lower clocks count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .draft import Draft

NOT_TOLD = (
    "",
    "n/a",
    "[n/a]",
    "not supported",
    "[not supported]",
    "none",
    "unknown error",
    "[unknown error]",
    "-",
)

REASONS: Mapping[int, tuple[str, str]] = {
    0x4: ("software power cap", "note"),
    0x8: ("hardware slowdown", "warning"),
    0x20: ("software thermal slowdown", "warning"),
    0x40: ("hardware thermal slowdown", "warning"),
    0x80: ("hardware power brake", "warning"),
}
"""Bit of NVML's mask of clock event reasons -> (name, severity). Idle, application clocks, sync boost and display
clocks are set by somebody, and are no throttling."""

REASON_WORDS: Mapping[str, int] = {
    "sw power cap": 0x4,
    "sw_power_cap": 0x4,
    "hw slowdown": 0x8,
    "hw_slowdown": 0x8,
    "sw thermal slowdown": 0x20,
    "sw_thermal_slowdown": 0x20,
    "hw thermal slowdown": 0x40,
    "hw_thermal_slowdown": 0x40,
    "hw power brake slowdown": 0x80,
    "hw_power_brake_slowdown": 0x80,
}


def number(text: str | None) -> float | None:
    """A counter as a tool prints it, with or without a unit; None where there is none."""
    if text is None or text.strip().lower() in NOT_TOLD:
        return None
    head = text.strip().split(" ", 1)[0].rstrip("%")
    try:
        return float(int(head, 16)) if head.lower().startswith("0x") else float(head)
    except ValueError:
        return None


def severity_of(name: str) -> tuple[str, str] | None:
    """(category, severity) of a counter above zero, by its name; None for one that counts no errors."""
    n = name.lower().replace("_", " ").replace(".", " ")
    if "remap" in n or "retired" in n or ("page" in n and "blacklist" in n):
        if "fail" in n:
            return "remap", "fault"
        bad = any(w in n for w in ("uncorrect", "double", "dbe", "pending"))
        return "remap", "warning" if bad else "note"
    if "nvlink" in n:
        return (
            ("nvlink", "warning")
            if any(w in n for w in ("err", "crc", "replay", "recover", "fatal"))
            else None
        )
    if "ecc" in n or "sram" in n or "dram" in n:
        if any(w in n for w in ("mode", "pending", "current")):
            return None
        # `uncorrected` holds `correct` too
        bad = any(w in n for w in ("uncorr", "double", "dbe", "unrepairable"))
        if not bad:
            return "ecc", "note"
        return "ecc", "warning" if "aggregate" in n or "agg" in n.split() else "fault"
    if "replay" in n:
        return "other", "note"
    return None


def reasons(mask: int) -> list[tuple[str, str]]:
    """(name, severity) of the reasons in NVML's mask that mean throttling."""
    return [found for bit, found in REASONS.items() if mask & bit]


def worst(severities: list[str]) -> str:
    """The worst of several severities."""
    order = ("fault", "warning", "note")
    return min(severities, key=order.index, default="note")


def events(values: Mapping[str, float], why: str) -> list[Draft]:
    """One event per category for counters above zero. `why` says since when they count."""
    by: dict[str, dict[str, float]] = {}
    severities: dict[str, list[str]] = {}
    for name, value in values.items():
        known = severity_of(name)
        if known is None or not value > 0:
            continue
        by.setdefault(known[0], {})[name] = value
        severities.setdefault(known[0], []).append(known[1])
    return [
        Draft(
            category,
            worst(severities[category]),
            f"{', '.join(f'{k} {v:g}' for k, v in held.items())} ({why})",
            code="counter",
            values={k: plain(v) for k, v in held.items()},
        )
        for category, held in by.items()
    ]


def throttled(names: list[tuple[str, str]], values: Mapping[str, Any]) -> Draft:
    """The event that clocks are held down, for these reasons."""
    text = f"clocks held down: {', '.join(n for n, _ in names)}"
    return Draft("throttle", worst([s for _, s in names]), text, code="clocks", values=values)


def plain(value: float) -> int | float:
    """A whole number as one."""
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
