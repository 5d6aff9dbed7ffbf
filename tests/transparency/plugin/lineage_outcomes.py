"""A pytest plugin that writes one line per test into a file: what became of it. The same with the observer and without.

Lies in a folder of its own and imports nothing of this repository, since it is loaded into sessions whose own top
package may be called `tests` too. The file is named by `TRANSPARENCY_OUTCOMES`.
"""

from __future__ import annotations

import json
import os
import random
import sys
from typing import Any

import pytest

_FILE = os.environ.get("TRANSPARENCY_OUTCOMES", "")
_PID = os.getpid()
_FOUND: dict[str, dict[str, str]] = {}
"""test -> its worst outcome of each phase, and the words of the first failure"""
_WORST = ("failed", "xpassed", "passed", "xfailed", "skipped")
"""Outcomes of the call, the one that counts first: a test's subtests report beside it."""


def _write(line: dict[str, Any]) -> None:
    if _FILE and os.getpid() == _PID:
        with open(_FILE, "a", encoding="utf-8") as f:
            f.write(json.dumps(line) + "\n")


def _words(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:300]


def _outcome(report: Any) -> str:
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    return str(report.outcome)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Every test begins with the same random numbers, in every session."""
    random.seed(item.nodeid)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules and hasattr(sys.modules["torch"], "manual_seed"):
        sys.modules["torch"].manual_seed(0)


def pytest_collectreport(report: Any) -> None:
    """A file that cannot be collected is an outcome too."""
    if report.failed:
        _write({"test": report.nodeid or ".", "outcome": "error", "why": _words(report)})


def pytest_runtest_logreport(report: Any) -> None:
    """Keep what a phase came to."""
    found = _FOUND.setdefault(report.nodeid, {})
    if report.when == "call":
        now = _outcome(report)
        before = found.get("call", now)
        found["call"] = min(before, now, key=_WORST.index)
    elif report.failed:
        found["around"] = "error"
    elif report.skipped:
        found["call"] = _outcome(report)
    if report.failed:
        found.setdefault("why", _words(report))


def pytest_runtest_logfinish(nodeid: str, location: Any) -> None:
    """The test is over: write what it came to."""
    found = _FOUND.pop(nodeid, {})
    parts = [found[k] for k in ("call", "around") if k in found]
    if found.get("around") and found.get("call") == "passed":
        parts = ["error"]
    _write({"test": nodeid, "outcome": "+".join(parts) or "no report", "why": found.get("why", "")})


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write how the session ended, and what an observer in this process saw: one that saw nothing proves nothing."""
    line: dict[str, Any] = {"exit": int(exitstatus)}
    observe = sys.modules.get("lineage.observe")
    observer = observe.observer() if observe is not None else None
    if observe is not None and observer is not None:
        observer.flush(10.0)
        switch = observe.light.events.SWITCH
        line["observed"] = {
            "calls": observer.handled,
            "runs": observer.shared.begun,
            "failures": switch.failures,
            "first_failure": switch.first_failure,
            "dropped": switch.dropped,
            "processes": _further(os.environ.get("LINEAGE_OBSERVE_TO")),
        }
    _write(line)


def _further(folder: str | None) -> int:
    """How many other Python processes left a sign of the hook: `<pid>-<start>-<image>.seen`."""
    try:
        signs = [n for n in os.listdir(folder) if n.endswith(".seen")] if folder else []
    except OSError:
        return 0
    return sum(n.partition("-")[0] != str(os.getpid()) for n in signs)
