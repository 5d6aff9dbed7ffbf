"""A comparison as a table: for a terminal, and as a section of a page that a later run replaces."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from .compare import Session
from .session import WAYS, WITHOUT

if TYPE_CHECKING:
    from .command import Shown

COLUMNS = {WITHOUT: "without", "plugin": "plugin", "run": "`lineage run`"}
_OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
_SEEN = {
    "calls": "calls observed",
    "runs": "runs recorded",
    "processes": "further processes observed",
    "failures": "failures of the observer",
}


def text(shown: Shown) -> str:
    """What was run, a table of outcomes, every test that differs, and the result in one sentence."""
    suite = shown.suite
    at = datetime.now(UTC).strftime("%Y-%m-%d")
    others = ", ".join(
        f"{k} {v}" for k, v in shown.versions.items() if k not in (suite.package, "runlineage")
    )
    folder = "" if suite.folder == "." else f" in `{suite.folder}`"
    lines = [
        f"{at}. Tests of {shown.commit}, run against {suite.package} {shown.version} ({others}).",
        f"Selection{folder}: {' '.join(f'`{s}`' for s in [*suite.select, *suite.arguments])}.",
        "",
        *_table(shown),
        "",
        result(shown),
    ]
    return "\n".join([*lines, *_differing(shown)])


def result(shown: Shown) -> str:
    """The result in one sentence."""
    tests = len(shown.rounds[WITHOUT][0].outcomes)
    flaky = sum(d.flaky for found in shown.differ.values() for d in found)
    varies = f" {flaky} more vary without the observer too." if flaky else ""
    if shown.faults:
        return f"**Not the same:** {'; '.join(shown.faults[:20])}.{varies}"
    if flaky:
        return f"**No difference by the observer** in {tests} tests.{varies.replace(' more', '')}"
    return f"**The same outcome of each of {tests} tests.**"


def _table(shown: Shown) -> list[str]:
    ways = list(shown.rounds)
    first = {w: shown.rounds[w][0] for w in ways}
    outcomes = [*_OUTCOMES, *sorted({o for s in first.values() for o in s.counts()} - set(_OUTCOMES))]
    rows = [
        [o, *(str(first[w].counts()[o]) for w in ways)]
        for o in outcomes
        if any(first[w].counts()[o] for w in ways)
    ]
    rows += [[words, *(_seen(first[w], name) for w in ways)] for name, words in _SEEN.items()]
    head = ["", *(COLUMNS[w] for w in ways)]
    return [_row(head), _row(["---", *("---:" for _ in ways)]), *map(_row, rows)]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _seen(session: Session, name: str) -> str:
    return "" if session.observed is None else f"{getattr(session.observed, name):,}"


def _differing(shown: Shown) -> list[str]:
    rows = []
    for way, found in shown.differ.items():
        for d in found:
            kind = "varies without the observer too" if d.flaky else "**differs**"
            why = d.why.replace("|", "\\|").replace("`", "'")
            rows.append(
                [
                    f"`{d.test}`",
                    ", ".join(d.without),
                    f"{COLUMNS[way]}: {', '.join(d.under)}",
                    kind,
                    f"`{why}`",
                ]
            )
    if not rows:
        return []
    head = ["test", "without, in each session", "under the observer", "", "first words of a failure"]
    return ["", _row(head), _row(["---"] * len(head)), *map(_row, rows)]


def keep(path: Path, shown: Shown) -> None:
    """Put the section of this suite and version into a page, in place of an older one, else at its end."""
    title = f"{shown.suite.name} {shown.version}"
    begin, end = f"<!-- {title}: begin -->", f"<!-- {title}: end -->"
    section = f"{begin}\n## {title}\n{text(shown)}\n{end}"
    old = path.read_text(encoding="utf-8") if path.exists() else "# Transparency\n"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.S)
    new = pattern.sub(lambda _: section, old) if pattern.search(old) else f"{old.rstrip()}\n\n{section}\n"
    path.write_text(new, encoding="utf-8")


__all__ = ["WAYS", "keep", "result", "text"]
