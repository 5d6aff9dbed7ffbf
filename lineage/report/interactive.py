"""Charts that a reader can zoom and read values off: Vega-Lite specs, and the library that draws them, in the page.

They stand beside the drawings and not in their place: without scripts, and in print, the page is what it was. Nothing
is loaded. The page's policy names what may run by its digest, and expressions are interpreted, so that no text becomes
code.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from . import charts
from .charts import ROLES, Drawing

POINTS = 4_000
"""Points of a chart; a drawing has up to four times as many."""
HEIGHT = 320

_OURS = """
(() => {
  const roles = %s;
  const colours = text => {
    const style = getComputedStyle(document.documentElement);
    return text.replace(/#0a00[0-9]{2}/g, c => style.getPropertyValue(roles[c]).trim());
  };
  const draw = chart => {
    const spec = JSON.parse(colours(chart.querySelector('script').textContent));
    const plot = chart.querySelector('.plot');
    return vegaEmbed(plot, spec, {actions: false, ast: true, renderer: 'svg'});
  };
  for (const chart of document.querySelectorAll('[data-chart]')) {
    const button = chart.querySelector('button');
    const texts = [button.textContent, button.dataset.back];
    button.hidden = false;
    button.addEventListener('click', () => {
      const live = chart.classList.toggle('live');
      button.setAttribute('aria-pressed', live);
      button.textContent = texts[live ? 1 : 0];
      if (live) draw(chart);
    });
  }
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    for (const chart of document.querySelectorAll('[data-chart].live')) draw(chart);
  });
})();
"""


@dataclass(frozen=True)
class Live:
    """What a page needs for them."""

    specs: Mapping[str, str]
    """chart -> its spec as JSON that may stand in a script element"""
    scripts: tuple[str, ...] = ()
    """what is run, in this order"""

    @property
    def policy(self) -> str:
        """The sources that the page's policy lets run."""
        return " ".join(f"'sha256-{_digest(s)}'" for s in self.scripts)


NONE = Live({})


def live(drawings: Mapping[str, Drawing]) -> Live:
    """The specs of drawings that have a line. Raises `ImportError` where altair or vl-convert is not installed."""
    specs = {name: _json(_spec(drawing)) for name, drawing in drawings.items() if drawing.lines}
    if not specs:
        return NONE
    roles = {colour: role.removeprefix("var(").removesuffix(")") for colour, role in ROLES.items()}
    return Live(specs, (_library(), _OURS % json.dumps(roles)))


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from the library that draws the drawings."""
    import vl_convert

    found: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    if "</script" in found.lower():
        raise ValueError("the bundle of vl-convert cannot stand in a script element")
    return found


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _json(spec: Mapping[str, Any]) -> str:
    """JSON in which nothing ends a script element."""
    return json.dumps(spec, separators=(",", ":")).replace("<", "\\u003c")


def _spec(drawing: Drawing) -> dict[str, Any]:
    spec: dict[str, Any] = charts.chart(drawing, 620, HEIGHT, POINTS, interactive=True).to_dict()
    spec["width"] = "container"
    return spec
