"""Loss and norms of the run, and once more close to the first bad step, with regimes and restarts marked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .. import charts, course
from ..blocks import Chart, Section
from ..charts import Drawing
from .given import Given

NEAR_BEFORE, NEAR_AFTER = 200, 50
"""Steps before and after the first bad one that are drawn once more."""


def section(g: Given) -> Section:
    """The charts, each with the words that say the same."""
    facts, uid = g.facts, g.life.segment
    out = Section("curves", "Loss and norms")
    said = [w for s in facts.segments if (w := course.said_of(facts, s.number, s.uid, "loss"))]
    if not said:
        return out
    regimes = len({r.id for _, r in facts.regimes})
    shaded = f"; {regimes} regimes, shaded from the second on" if regimes > 1 else ""
    names = ". ".join(said[-MOST:])
    left = f"Of the newest {MOST} of {len(said)} segments: " if len(said) > MOST else ""
    out.blocks.append(Chart("loss", f"Loss, mean over ranks{shaded}", f"{left}{names}."))
    steps = near(g)
    if steps is not None and _cut(loss(g), steps):
        title = f"Loss of segment {g.number} close to the first bad step"
        out.blocks.append(
            Chart(
                "loss_near", title, f"Steps {steps[0]:,} to {steps[1]:,}; the first bad step is {g.step:,}."
            )
        )
    if facts.curves.of(uid, "grad_norm_local") or facts.curves.of(uid, "grad_norm"):
        told = course.gradients_said(facts, uid)
        title = f"Gradient norm of segment {g.number}: each rank before the reduction, and reduced"
        if steps is None:
            out.blocks.append(Chart("grad_norm", title, told))
        else:
            text = f"Steps {steps[0]:,} to {steps[1]:,}. {told}"
            out.blocks.append(Chart("grad_norm", f"{title}, close to the first bad step", text))
    return out


MOST = 4
"""Segments that the words beside a chart name; the lineage table has all."""


def near(g: Given) -> tuple[int, int] | None:
    """The steps close to the first bad one; None where it is not known, or the segment is as short as that."""
    held = g.facts.curves.steps(g.life.segment)
    if g.step is None or not held:
        return None
    a, b = max(g.step - NEAR_BEFORE, held[0]), min(g.step + NEAR_AFTER, held[-1])
    return (a, b) if held[-1] - held[0] > NEAR_BEFORE + NEAR_AFTER and a < b else None


def loss(g: Given) -> Drawing:
    """The loss of all segments, with the first bad step marked."""
    return _marked(charts.over_segments(g.facts, "loss", "loss"), g)


def drawings(g: Given) -> Mapping[str, Drawing]:
    """What they show, by name."""
    whole, steps = loss(g), near(g)
    out = {"loss": whole}
    gradients = charts.gradients(g.facts, g.life.segment)
    if gradients is not None:
        out["grad_norm"] = _marked(gradients, g)
    if steps is not None:
        own = [line for line in whole.lines if line.name.split(",")[0] == f"segment {g.number}"]
        out["loss_near"] = replace(whole, lines=own)
        for name in ("loss_near", "grad_norm"):
            if name in out:
                out[name] = _within(out[name], steps)
    return out


def _marked(drawing: Drawing, g: Given) -> Drawing:
    """With a rule at the first bad step."""
    if g.step is None or not drawing.lines:
        return drawing
    return replace(drawing, marks=[*drawing.marks, (g.step, f"first bad: {g.step:,}")])


def _cut(drawing: Drawing, steps: tuple[int, int]) -> bool:
    return any(steps[0] <= s <= steps[1] for line in drawing.lines for s, _ in line.points)


def _within(drawing: Drawing, steps: tuple[int, int]) -> Drawing:
    a, b = steps
    lines = [replace(n, points=[p for p in n.points if a <= p[0] <= b]) for n in drawing.lines]
    bands = [(max(x, a), min(y, b), w) for x, y, w in drawing.bands if y > a and x < b]
    return replace(
        drawing,
        lines=[n for n in lines if n.points],
        bands=bands,
        marks=[m for m in drawing.marks if a <= m[0] <= b],
    )
