"""What an import costs, and which modules cost most of it, from `python -X importtime`."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from .probes import environment
from .timing import summary

ROOT = Path(__file__).resolve().parent.parent


def own_time(statement: str) -> dict[str, float]:
    """Module -> seconds spent in it alone, of all modules that the statement imports.

    Start-up of the interpreter itself is left out. Raises `RuntimeError` where the statement fails.
    """
    marked = f"import marshal as _; import sys; print('START', file=sys.stderr); {statement}"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", marked],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(),
        check=False,
        timeout=600,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{statement!r} failed:\n{done.stderr[-2000:]}")
    found: dict[str, float] = {}
    for line in done.stderr.partition("START\n")[2].splitlines():
        fields = line.removeprefix("import time:").split("|")
        if len(fields) == 3 and fields[0].strip().isdigit():
            found[fields[2].strip()] = int(fields[0]) / 1e6
    return found


def slowest(statement: str, repeats: int, *, top: int = 8) -> list[str]:
    """One line: what the statement's imports cost, and the distributions that cost most of it."""
    runs = [own_time(statement) for _ in range(repeats)]
    runs.sort(key=lambda found: sum(found.values()))
    middle = runs[repeats // 2]
    rooms: Counter[str] = Counter()
    for module, spent in middle.items():
        rooms[module.partition(".")[0]] += spent  # type: ignore[assignment]
    s = summary([sum(found.values()) for found in runs])
    parts = ", ".join(f"{name} {1000 * spent:.0f}" for name, spent in rooms.most_common(top))
    return [
        f"`{statement}`: {1000 * s['median']:.0f} ms under -X importtime (fastest {1000 * s['min']:.0f}), "
        f"{len(middle)} modules; ms by package: {parts}"
    ]
