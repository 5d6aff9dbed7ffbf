"""Charts as SVG, drawn here and now: nothing is loaded or run when the page is read.

Colours are roles, given as stand-ins and turned into CSS variables, so that one drawing serves light, dark
and print. No meaning rests on colour alone: lines differ in their dashes, and words stand beside.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import course
from .facts import Facts, SegmentFact
from .series import MOST_POINTS, non_finite, thin

ROLES = {
    "#0a0001": "var(--ink)",
    "#0a0002": "var(--line)",
    "#0a0003": "var(--quiet)",
    "#0a0004": "var(--bad)",
    "#0a0005": "var(--band)",
    "#0a0010": "var(--c0)",
    "#0a0011": "var(--c1)",
    "#0a0012": "var(--c2)",
    "#0a0013": "var(--c3)",
    "#0a0014": "var(--c4)",
}
INK, RULE, QUIET, BAD, BAND, *LINES = ROLES

SOLID = [1, 0]
DASHES = ([7, 3], [2, 2], [9, 3, 2, 3], [4, 2])
ABANDONED = [1, 3]

MOST_LINES = 12
ROWS = 3
"""Rows of words at vertical rules."""
POINTS_OF_A_CHART = 16_000
MOST_MARKS = 200

SIZES = {"wide": (620, 260), "narrow": (270, 220)}


@dataclass(frozen=True)
class Line:
    """One line of a chart."""

    name: str
    points: Sequence[tuple[int, float]]
    colour: str
    dash: list[int]


@dataclass
class Drawing:
    """What a chart shows."""

    unit: str
    log: bool = False
    lines: list[Line] = field(default_factory=list)
    bands: list[tuple[float, float, str]] = field(default_factory=list)
    marks: list[tuple[int, str]] = field(default_factory=list)
    """vertical rules: (step, words)"""


def draw(facts: Facts) -> dict[str, dict[str, str]]:
    """Draw all charts that have something to show: name -> size -> SVG element.

    Raises `ImportError` where altair or vl-convert is not installed.
    """
    drawings = {
        "loss": over_segments(facts, "loss", "loss"),
        "lr": over_segments(facts, "lr", "learning rate"),
    }
    chosen = course.focus(facts)
    found = None if chosen is None else gradients(facts, chosen[1])
    if found is not None:
        drawings["grad_norm"] = found
    return drawn(drawings)


def drawn(drawings: Mapping[str, Drawing]) -> dict[str, dict[str, str]]:
    """Draw those that have a line: name -> size -> SVG element."""
    return {
        name: {size: _svg(drawing, *SIZES[size]) for size in SIZES}
        for name, drawing in drawings.items()
        if drawing.lines
    }


def over_segments(facts: Facts, signal: str, unit: str) -> Drawing:
    """One line per segment: solid on the newest branch, dashed on others, grey dots where abandoned."""
    drawing = Drawing(unit, bands=_bands(facts), marks=_restarts(facts))
    path = _path(facts)
    for i, segment in enumerate(facts.segments[-MOST_LINES:]):
        line = list(facts.curves.mean(segment.uid, signal).items())
        if not line:
            continue
        cut = _cut(facts, segment)
        kept = [p for p in line if cut is None or p[0] <= cut]
        left = [p for p in line if cut is not None and p[0] >= cut]
        name = f"segment {segment.number}"
        if kept:
            dash = SOLID if segment.uid in path else DASHES[i % len(DASHES)]
            drawing.lines.append(Line(name, kept, LINES[i % len(LINES)], dash))
        if left:
            drawing.lines.append(Line(f"{name}, abandoned", left, QUIET, ABANDONED))
    return drawing


def _cut(facts: Facts, segment: SegmentFact) -> int | None:
    """The last step of a segment on which a later one stands, where its tail was left."""
    return facts.left.get(segment.uid)


def _bands(facts: Facts, only: str | None = None) -> list[tuple[float, float, str]]:
    """The regimes after the first, on the newest branch or of one segment."""
    path = _path(facts) if only is None else [only]
    return [
        (piece.first - 0.5, piece.last + 0.5, f"regime {p.regime}")
        for p in facts.phases
        for piece in p.pieces
        if p.regime
        and not (p.abandoned and only is None)
        and piece.segment in path
        and piece.last is not None
    ]


def _path(facts: Facts) -> list[str]:
    """The segments of the newest branch, oldest first."""
    newest = next((t for t in facts.tips if t.newest), None)
    return list(newest.verdict.path) if newest else []


def _restarts(facts: Facts) -> list[tuple[int, str]]:
    by_step: dict[int, list[int]] = {}
    for s in facts.segments[-MOST_LINES:]:
        if s.start != "fresh" and s.parent_step is not None:
            by_step.setdefault(s.parent_step, []).append(s.number)
    return [(step, f"restart: segment {', '.join(map(str, n))}") for step, n in sorted(by_step.items())]


def gradients(facts: Facts, uid: str) -> Drawing | None:
    """The gradient norms of one segment: the first ranks before the reduction, abnormal ones first, and reduced."""
    drawing = Drawing("gradient norm (log)", log=True, bands=_bands(facts, uid))
    local = facts.curves.of(uid, "grad_norm_local")
    abnormal = [r for r, v in local.items() if any(not math.isfinite(x) for x in v.values())]
    first = [b.found.cell.rank for b in facts.bads if b.found.cell and b.found.cell.segment == uid]
    ranks = list(dict.fromkeys([*first, *sorted(abnormal), *sorted(local)]))[: MOST_LINES // 2]
    for i, rank in enumerate(sorted(r for r in ranks if r in local)):
        points = sorted(local[rank].items())
        drawing.lines.append(
            Line(f"rank {rank}, local", points, LINES[i % len(LINES)], DASHES[i % len(DASHES)])
        )
    reduced = facts.curves.of(uid, "grad_norm")
    if reduced:
        drawing.lines.append(Line("reduced", sorted(reduced[min(reduced)].items()), INK, SOLID))
    return drawing


def _svg(drawing: Drawing, width: int, height: int) -> str:
    import vl_convert

    drawn = chart(drawing, width, height, POINTS_OF_A_CHART)
    return themed(vl_convert.vegalite_to_svg(drawn.to_json()))


def chart(drawing: Drawing, width: int, height: int, points: int, *, interactive: bool = False) -> Any:
    """The chart of a drawing, with about so many points at most.

    `interactive`: zoomed along the steps, with the values at the pointer. Raises `ImportError` where altair is not
    installed.
    """
    import altair as alt

    most = min(MOST_POINTS, points // max(1, len(drawing.lines)), 4 * width)
    names = [line.name for line in drawing.lines]
    rows = [row for line in drawing.lines for row in _rows(line, most, log=drawing.log)]
    scale = alt.Scale(type="log") if drawing.log else alt.Scale(zero=False)
    legend = alt.Legend(
        title=None,
        orient="top",
        columns=2 if width < 400 else 4,
        symbolType="stroke",
        symbolStrokeWidth=2,
        symbolSize=300,
    )
    x = alt.X(
        "step:Q", title="step", axis=alt.Axis(format="~s", tickCount=5 if width < 400 else 8, tickMinStep=1)
    )
    line = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(strokeWidth=1.6, point=False)
        .encode(
            x=x,
            y=alt.Y("value:Q", title=drawing.unit, scale=scale, axis=alt.Axis(format="~g", tickCount=5)),
            color=alt.Color(
                "of:N",
                legend=legend,
                scale=alt.Scale(domain=names, range=[n.colour for n in drawing.lines]),
            ),
            strokeDash=alt.StrokeDash(
                "of:N", legend=legend, scale=alt.Scale(domain=names, range=[n.dash for n in drawing.lines])
            ),
        )
    )
    lines = [line] if not interactive else _pointed(alt, line, drawing)
    layers = [*_band_layers(alt, drawing, x), *lines, *_mark_layers(alt, drawing, x, width, height)]
    return (
        alt.layer(*layers)
        .properties(width=width, height=height, background="transparent")
        .configure(font="sans-serif")
        .configure_axis(
            labelColor=INK,
            titleColor=INK,
            gridColor=RULE,
            domainColor=QUIET,
            tickColor=QUIET,
            labelFontSize=11,
            titleFontSize=11,
            titleFontWeight="normal",
        )
        .configure_legend(labelColor=INK, labelFontSize=11, labelLimit=200)
        .configure_view(stroke=RULE)
    )


def _pointed(alt: Any, line: Any, drawing: Drawing) -> list[Any]:
    """The lines, zoomed by wheel and drag along the steps, with the value of the point under the pointer."""
    # not `nearest`: of the cells around points that it makes, Vega-Lite reads no word of a line for the tooltip
    near = alt.selection_point(on="pointerover", clear="pointerout", name="near")
    tooltip = [
        alt.Tooltip("of:N", title="line"),
        alt.Tooltip("step:Q", title="step", format=",d"),
        alt.Tooltip("value:Q", title=drawing.unit, format=".6g"),
    ]
    points = line.mark_point(size=160, filled=True).encode(
        opacity=alt.condition(near, alt.value(1), alt.value(0), empty=False),
        strokeDash=alt.Undefined,
        tooltip=tooltip,
    )
    zoom = alt.selection_interval(bind="scales", encodings=["x"], name="zoom")
    return [line.add_params(zoom), points.add_params(near)]


def _rows(line: Line, most: int, *, log: bool) -> list[dict[str, Any]]:
    """The points of a line; a step without a finite value breaks it."""
    rows: list[dict[str, Any]] = [
        {"step": s, "value": v, "of": line.name} for s, v in thin(line.points, most) if v > 0 or not log
    ]
    gaps = non_finite(line.points)[:MOST_MARKS]
    rows += [{"step": s, "value": None, "of": line.name} for s, _ in gaps]
    return sorted(rows, key=lambda r: r["step"])


def _band_layers(alt: Any, drawing: Drawing, x: Any) -> list[Any]:
    if not drawing.bands:
        return []
    data = alt.Data(values=[{"step": a, "end": b, "words": w} for a, b, w in drawing.bands])
    base = alt.Chart(data).encode(x=x)
    return [
        base.mark_rect(color=BAND, opacity=0.25).encode(x2="end:Q"),
        base.mark_text(align="left", dx=4, color=INK, fontSize=11).encode(text="words:N", y=alt.value(24)),
    ]


def _mark_layers(alt: Any, drawing: Drawing, x: Any, width: int, height: int) -> list[Any]:
    out = []
    if drawing.marks:
        data = alt.Data(values=[{"step": s} for s, _ in drawing.marks])
        out.append(alt.Chart(data).mark_rule(color=QUIET, strokeDash=[4, 3]).encode(x=x))
        for row in range(
            min(ROWS, len(drawing.marks))
        ):  # neighbours stand in rows of their own, over one another
            named = drawing.marks[row::ROWS]
            data = alt.Data(values=[{"step": s, "words": w} for s, w in named])
            words = alt.Chart(data).mark_text(align="right", dx=-4, color=INK, fontSize=11)
            out.append(words.encode(x=x, text="words:N", y=alt.value(height - 8 - 14 * row)))
    unseen: dict[int, str] = {}
    for line in drawing.lines:
        for step, v in non_finite(line.points)[:MOST_MARKS]:
            unseen.setdefault(step, "NaN" if math.isnan(v) else "Inf")
    if unseen:
        data = alt.Data(
            values=[
                {"step": s, "words": f"\u2715 {unseen[s]}"} for s in _apart(sorted(unseen), drawing, width)
            ]
        )
        every = alt.Data(values=[{"step": s} for s in sorted(unseen)[:MOST_MARKS]])
        out += [
            alt.Chart(every).mark_rule(color=BAD, strokeWidth=1.5).encode(x=x),
            alt.Chart(data)
            .mark_text(align="right", dx=-4, color=BAD, fontSize=12, fontWeight="bold")
            .encode(x=x, text="words:N", y=alt.value(10)),
        ]
    return out


def _apart(steps: Sequence[int], drawing: Drawing, width: int) -> list[int]:
    """Steps far enough from each other for a label each, in a drawing so wide."""
    drawn = [s for line in drawing.lines for s, _ in (line.points[0], line.points[-1])]
    least = (max(drawn) - min(drawn)) * LABEL / width
    out: list[int] = []
    for s in steps:
        if not out or s - out[-1] > least:
            out.append(s)
    return out


LABEL = 75
"""Width of a label at a rule, in units of a drawing."""

_ELEMENTS = {"svg", "g", "path", "line", "rect", "text", "tspan", "defs", "clipPath"}
_ATTRIBUTES = {
    "class",
    "clip-path",
    "d",
    "dx",
    "dy",
    "fill",
    "fill-opacity",
    "font-family",
    "font-size",
    "font-weight",
    "height",
    "id",
    "opacity",
    "stroke",
    "stroke-dasharray",
    "stroke-miterlimit",
    "stroke-opacity",
    "stroke-width",
    "text-anchor",
    "transform",
    "viewBox",
    "width",
    "x",
    "x1",
    "x2",
    "y",
    "y1",
    "y2",
    "display",
}


def themed(svg: str) -> str:
    """Keep of a drawing only shapes and text, and turn its stand-in colours into the page's own."""
    root = ET.fromstring(svg)
    _strip(root)
    for name in ("width", "height"):
        root.attrib.pop(name, None)
    root.set("aria-hidden", "true")  # the figure around it says in words what it shows
    return ET.tostring(root, encoding="unicode")


def _strip(element: ET.Element) -> None:
    element.tag = element.tag.rpartition("}")[2]
    colours = []
    for name in list(element.attrib):
        value = element.attrib[name]
        local = value.startswith("url(#") if "url(" in value else True
        if name not in _ATTRIBUTES or not local:
            del element.attrib[name]
        elif name in ("fill", "stroke") and value in ROLES:
            colours.append(f"{name}:{ROLES[value]}")
            del element.attrib[name]
    if colours:
        element.set("style", ";".join(sorted(colours)))
    for child in list(element):
        if child.tag.rpartition("}")[2] in _ELEMENTS:
            _strip(child)
        else:
            element.remove(child)
