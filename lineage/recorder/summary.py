"""The lines at exit: where the records are, what is in them, what is not, and the next command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .incidents import coverage
from .writer import Writer

if TYPE_CHECKING:
    from .recorder import Recorder

BY_STEP = ("loss", "grad_norm_local", "grad_norm", "batch fingerprints")
"""What is kept in the series, and nowhere else."""


def exit_lines(rec: Recorder, w: Writer, left: int) -> list[str]:
    """What is on the disk after the writer was closed, in a few lines. `left`: what the tracker still lacks."""
    made = rec.steps.first is not None and rec.steps.done >= rec.steps.first
    passed = f"steps {rec.steps.first}-{rec.steps.done}" if made else "no steps"
    if not w.journal.path.is_file():
        return [
            f"lineage: NOTHING of rank {w.world.rank} is on record: neither {w.asked} nor {w.journal.ledger} took "
            f"its records, so those of {passed} are lost",
            "lineage: next: set LINEAGE_DIR to a folder that can be written, and see `lineage doctor`",
        ]
    ledger = w.journal.ledger
    found = coverage(rec)
    spikes = sum(rec.steps.streams.onsets.values())
    alarms = spikes + sum(rec.steps.streams.rises.values())
    behind = f"; {left} records wait for the tracker" if left else ""
    lost = rec.steps.first is not None and not w.series_kept()
    names = [n for n in found.recorded if not (lost and n in BY_STEP)]
    saves = sum(rec._saves.values()) - len(rec.absent)
    lines = [
        *_moved(w, ledger),
        f"lineage: ledger {ledger}",
        f"lineage: recorded {passed} on rank 0 of {rec.world.world_size}, {saves} checkpoints, "
        f"{alarms} alarms: {', '.join(names) or 'nothing'}{behind}",
    ]
    if lost and any(n in BY_STEP for n in found.recorded):
        values = ", ".join(n for n in found.recorded if n in BY_STEP)
        lines.append(f"lineage: LOST: {values} of {passed}: their files in {w.ledger}/series are not there")
    elif w.failures.get("series"):
        lines.append(f"lineage: LOST: values of some of {passed}: {w.failures['series']} writes were refused")
    if found.missing:
        what, line = next(iter(found.missing.items()))
        others = f" (also missing: {', '.join(list(found.missing)[1:])})" if len(found.missing) > 1 else ""
        lines.append(f"lineage: not recorded: {what}; add {line}{others}")
    elif not lost:
        lines.append("lineage: nothing that this version can record is missing")
    command = "lineage first-bad" if spikes else "lineage sync" if left else "lineage show"
    if ledger != w.asked and (w.asked / "journal").is_dir():
        lines.append(f"lineage: next: make room, then cp -R {ledger}/. {w.asked}/ && {command} {w.asked}")
    else:
        lines.append(f"lineage: next: {command} {ledger}")
    return lines


def _moved(w: Writer, ledger: Path) -> list[str]:
    """Where the records are, if they are not all where they were asked to be."""
    if ledger == w.asked:
        return []
    earlier = "; the earlier ones are there" if (w.asked / "journal").is_dir() else ""
    return [f"lineage: {w.asked} could not be written, so records are in {ledger}{earlier}"]
