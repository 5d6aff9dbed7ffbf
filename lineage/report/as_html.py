"""The report as one HTML file: it loads nothing, runs nothing, and escapes everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import page
from .blocks import Inline, clean, plain, spans
from .facts import Facts

NEEDS = "pip install 'runlineage[read]'"


Drawn = dict[str, dict[str, Any]]
"""Chart -> size -> its SVG as markup."""


def draw(facts: Facts) -> Drawn:
    """Draw the charts of a page: they hold values and no texts, so pages of one ledger can share them.

    Raises `ImportError`, with the command that helps, where the extra `read` is not installed.
    """
    try:
        import altair  # noqa: F401 - asked for here, so that the message names what is missing
        import jinja2  # noqa: F401
        import markupsafe
        import vl_convert  # noqa: F401
    except ImportError as e:
        raise ImportError(
            f"the HTML report needs {e.name}, which is not installed. Install what reading needs: {NEEDS}. "
            "The Markdown report works without it.",
            name=e.name,
        ) from e
    from . import charts

    return {
        name: {size: markupsafe.Markup(svg) for size, svg in sizes.items()}  # safe: charts.themed
        for name, sizes in charts.draw(facts).items()
    }


def render(facts: Facts, drawn: Drawn | None = None) -> str:
    """Return the whole page, with charts that were drawn before or are drawn now. Raises as `draw` does."""
    drawn = draw(facts) if drawn is None else drawn
    import jinja2
    import markupsafe

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("report.html.j2")
    return template.render(
        title=clean(page.title(facts)),
        sections=page.sections(facts),
        spans=spans,
        plain=plain,
        clean=clean,
        kind=lambda block: type(block).__name__,
        markup=markupsafe.Markup,  # for what grid_svg made, which escapes what it takes from a ledger
        long=long,
        drawn=drawn,
        status=facts.answer.status or "not_shown",
    )


def long(inline: Inline) -> bool:
    """Tell whether a cell holds a word (a path, a digest) that must break somewhere to fit."""
    return any(len(word) > 28 for word in plain(inline).split())
