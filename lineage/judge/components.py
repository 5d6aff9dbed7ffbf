"""Changes that come from components of a resume: what was not restored, or restored to something else."""

from __future__ import annotations

import re

from .._rooms import schemas
from .change import effective_change


def component_changes(restore: schemas.Restore | None) -> list[schemas.Change]:
    """One change per component that is absent or differs.

    A step counter that fell with the optimizer state is told in one change, since it is one fact; a loader
    that stands further on than at the save is skipped data.
    """
    if restore is None:
        return []
    bad = {c.component: c for c in restore.components if c.status in ("differs", "absent")}
    out = []
    for name, component in bad.items():
        if name == "optimizer_step" and "optimizer_state" in bad:
            continue
        text = component.text
        if name == "optimizer_state" and "optimizer_step" in bad:
            text += f", {bad['optimizer_step'].text.removeprefix('optimizer ')}"
        ahead = _ahead(text) if name == "loader_position" else 0
        concept_id = "batch_skip" if ahead else name
        if ahead:
            text = f"data skipped: the loader stands {ahead} further on than at the save{_in_brackets(text)}"
        became = "absent" if component.status == "absent" else "other"
        source = "digest of the live state before the first step"
        out.append(effective_change(concept_id, text, "as saved", became, source))
    return out


def _ahead(text: str) -> int:
    """By how much the loader's counter moved forwards, 0 where one moved back: `position 320 -> 400`."""
    moves = [int(b) - int(a) for a, b in re.findall(r"\w+ (\d+) -> (\d+)", text)]
    return max(moves) if moves and min(moves) >= 0 else 0


def _in_brackets(text: str) -> str:
    found = re.search(r" \(.*\)$", text)
    return found.group(0) if found else ""
