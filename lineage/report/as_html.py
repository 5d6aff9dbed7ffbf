"""The report as one HTML file: it loads nothing, runs nothing unless charts can be zoomed, and escapes everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import marked, page
from .blocks import Inline, Section, clean, plain, spans
from .facts import Facts
from .interactive import NONE, Live

NEEDS = "pip install 'runlineage[read]'"


Drawn = dict[str, dict[str, Any]]
"""Chart -> size -> its SVG as markup."""


def draw(facts: Facts) -> Drawn:
    """Draw the charts of a page: they hold values and no texts, so pages of one ledger can share them.

    Raises `ImportError`, with the command that helps, where the extra `read` is not installed.
    """
    needed()
    from . import charts

    return safe(charts.draw(facts))


def needed() -> None:
    """Import what a page is made with. Raises `ImportError`, with the command that helps, where some is missing."""
    try:
        import altair  # noqa: F401 - asked for here, so that the message names what is missing
        import jinja2  # noqa: F401
        import markupsafe  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError as e:
        raise ImportError(
            f"the HTML report needs {e.name}, which is not installed. Install what reading needs: {NEEDS}. "
            "The Markdown report works without it.",
            name=e.name,
        ) from e


def safe(charts: Mapping[str, Mapping[str, str]]) -> Drawn:
    """Mark drawings as markup that a page may hold: `charts.themed` left nothing in them but shapes and text."""
    import markupsafe

    return {
        name: {size: markupsafe.Markup(svg) for size, svg in sizes.items()} for name, sizes in charts.items()
    }


def render(facts: Facts, drawn: Drawn | None = None) -> str:
    """Return the whole page, with charts that were drawn before or are drawn now. Raises as `draw` does."""
    drawn = draw(facts) if drawn is None else drawn
    return document(page.title(facts), page.sections(facts), drawn, facts.answer.status or "not_shown")


def document(title: str, sections: Sequence[Section], drawn: Drawn, status: str, live: Live = NONE) -> str:
    """Return a page: its title, its sections with the charts that they name, and the status of the first one.

    `live`: charts that can be zoomed, beside the drawings. A page without them runs nothing.
    Raises `ImportError` where the extra `read` is not installed.
    """
    import jinja2
    import markupsafe

    arrow = markupsafe.Markup('<span class="arrow">-&gt;</span>')  # a line must not end within it
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("report.html.j2")
    return template.render(
        title=clean(title),
        sections=sections,
        spans=spans,
        plain=plain,
        arrows=lambda text: markupsafe.escape(text).replace("-&gt;", arrow),
        clean=clean,
        kind=lambda block: type(block).__name__,
        markup=markupsafe.Markup,  # for what grid_svg made, which escapes what it takes from a ledger
        long=long,
        drawn=drawn,
        written=lambda block: markupsafe.Markup(marked.as_html(block)),  # HTML in it was escaped
        status=status,
        policy=live.policy,
        specs={name: markupsafe.Markup(spec) for name, spec in live.specs.items()},  # JSON without a `<`
        scripts=[markupsafe.Markup(s) for s in live.scripts],
    )


def long(inline: Inline) -> bool:
    """Tell whether a cell holds a word (a path, a digest) that must break somewhere to fit."""
    return any(len(word) > 28 for word in plain(inline).split())
