"""The map as an inline SVG: one path for each kind of square, so that 10,000 ranks stay small. Nothing in it is a text
from a ledger but names of nodes, which are escaped."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from .blocks import clean
from .grid import Grid, Square
from .words import plural

WIDE, ROW, TALL = 720, 14, 560
"""Width of the squares; height of a row; most height of all rows, in units of the drawing."""
LEFT, TOP, LINE = 190, 34, 12


def svg(grid: Grid, words: str, key: str = "") -> str:
    """Draw a map. `words` say the same to whoever does not see it; `key` tells the maps of one page
    apart."""
    n, m = len(grid.columns), len(grid.rows)
    x, y = min(WIDE / n, 26.0), min(float(ROW), TALL / m)
    edge = _ring(x, y) + 3  # so that a ring around the last square is whole
    width, height = LEFT + x * n + edge, TOP + y * m + edge
    paths: dict[str, list[str]] = {}
    first: tuple[int, int] | None = None
    for j, row in enumerate(grid.rows):
        i = 0
        while i < n:
            style = _style(row.squares[i])
            k = i
            while k < n and _style(row.squares[k]) == style and row.squares[k].kind != "first":
                k += 1
            if row.squares[i].kind == "first":
                first, k = (i, j), i + 1
            paths.setdefault(style, []).append(
                f"M{_n(LEFT + x * i)} {_n(TOP + y * j)}h{_n(x * (k - i) - 0.6)}v{_n(y - 0.6)}h-{_n(x * (k - i) - 0.6)}z"
            )
            i = k
    parts = [
        f'<svg class="map" viewBox="0 0 {_n(width)} {_n(height)}" role="img" aria-label={quoteattr(clean(words))} '
        'xmlns="http://www.w3.org/2000/svg">',
        f"<defs>{_pattern(f'gone{key}', 'rotate(45)', 1.4, 4, 'quiet')}{_pattern(f'some{key}', 'none', 4, 2, 'warn')}"
        "</defs>",
    ]
    parts += [f'<path d="{"".join(d)}" fill="{FILL[style].format(key)}"/>' for style, d in paths.items()]
    parts += _labels(grid, x, y)
    if first is not None:
        parts += _pointer(grid, first, x, y)
    return "".join([*parts, "</svg>"])


FILL = {
    "first": "var(--bad)",
    "all": "var(--warn)",
    "some": "url(#some{})",
    "stopped": "url(#gone{})",
    "fine": "var(--soft)",
    "nothing": "none",
}


def _pattern(name: str, turned: str, width: float, height: float, colour: str) -> str:
    """Stripes, which differ from a plain square without any colour."""
    turn = "" if turned == "none" else f' patternTransform="{turned}"'
    return (
        f'<pattern id="{name}" width="4" height="4" patternUnits="userSpaceOnUse"{turn}>'
        '<rect width="4" height="4" fill="var(--soft)"/>'
        f'<rect width="{width}" height="{height}" fill="var(--{colour})"/></pattern>'
    )


def _style(s: Square) -> str:
    if s.kind in ("tie", "bad"):
        return "all" if s.bad == s.of else "some"
    return s.kind


def _n(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _labels(grid: Grid, x: float, y: float) -> list[str]:
    """Names of rows where there is room, and step numbers above."""
    every = max(1, -(-LINE // int(max(y, 1))))
    out = []
    first = next((j for j, r in enumerate(grid.rows) if r.first), None)
    for j, row in enumerate(grid.rows):
        near = first is not None and j != first and abs(j - first) < every
        if j == first or (j % every == 0 and not near):
            bold = ' font-weight="700"' if j == first else ""
            name = row.label if len(row.label) <= 28 else row.label[:27] + "~"
            at = f'x="{LEFT - 6}" y="{_n(TOP + y * j + y / 2 + 4)}"'
            out.append(f'<text {at} text-anchor="end"{bold}>{escape(clean(name))}</text>')
    gap = max(1, -(-56 // int(max(x, 1))))
    out += [
        f'<text x="{_n(LEFT + x * i)}" y="{TOP - 6}">{grid.columns[i][0]:,}</text>'
        for i in range(0, len(grid.columns), gap)
    ]
    return out


def _pointer(grid: Grid, first: tuple[int, int], x: float, y: float) -> list[str]:
    """A ring around the first bad square, and lines to it from both edges: it is found without its
    colour."""
    i, j = first
    cx, cy = LEFT + x * i + x / 2, TOP + y * j + y / 2
    r = _ring(x, y)
    line = 'stroke="var(--bad)" stroke-width="1.6" stroke-dasharray="5 3"'
    return [
        f'<line x1="{LEFT - 3}" y1="{_n(cy)}" x2="{_n(cx - r)}" y2="{_n(cy)}" {line}/>',
        f'<line x1="{_n(cx)}" y1="{TOP - 3}" x2="{_n(cx)}" y2="{_n(cy - r)}" {line}/>',
        f'<circle cx="{_n(cx)}" cy="{_n(cy)}" r="{_n(r)}" fill="none" stroke="var(--ink)" stroke-width="4"/>',
        f'<circle cx="{_n(cx)}" cy="{_n(cy)}" r="{_n(r)}" fill="none" stroke="var(--bad)" stroke-width="2"/>',
    ]


def _ring(x: float, y: float) -> float:
    """The radius of the ring around a square."""
    return max(9.0, x * 0.75, y * 0.75)


def words(grid: Grid, first: str) -> str:
    """What a map shows, in words: where it begins, and how many ranks are bad at the end."""
    rows = [r for r in grid.rows if r.bad]
    bad = sum(r.bad for r in rows)
    a, b = grid.columns[0][0], grid.columns[-1][1]
    stopped = sum(1 for r in grid.rows if any(s.kind == "stopped" for s in r.squares))
    text = f"Map of {plural(grid.ranks, 'rank')} and steps {a:,} to {b:,}; {grid.note}. First bad: {first}. "
    text += (
        f"Abnormal at some step: {plural(bad, 'rank')} in {len(rows):,} of {plural(len(grid.rows), 'row')}"
    )
    text += (f"; in {plural(stopped, 'row')} ranks stopped recording" if stopped else "") + ". "
    return text + KEY


KEY = (
    "Ringed: the first bad cell. Dark: all ranks of a square abnormal; striped: some of them; "
    "slanted: ranks that stopped "
    "recording; pale: in range; empty: no record."
)
"""What the squares mean, in words."""
