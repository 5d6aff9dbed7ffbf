"""The page runs nothing, loads nothing, and shows hostile text as text."""

from __future__ import annotations

import re

import pytest

from lineage.report import as_html, as_markdown, blocks, charts
from lineage.report.facts import Facts

from . import pages, toy


@pytest.fixture(scope="module")
def html(facts: Facts) -> str:
    return as_html.render(facts)


@pytest.fixture(scope="module")
def page(html: str) -> pages.Page:
    return pages.Page(html)


def test_a_content_security_policy_forbids_everything_but_inline_style_and_data_images(
    page: pages.Page,
) -> None:
    policy = next(a["content"] for t, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["style-src"] == "'unsafe-inline'"
    assert rules["img-src"] == "data:"
    assert "script-src" not in rules


def test_the_page_holds_no_script_no_handler_and_no_frame(page: pages.Page) -> None:
    tags = {t for t, _ in page.elements}
    assert not tags & {"script", "iframe", "object", "embed", "link", "base", "form", "img", "foreignobject"}
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]


def test_nothing_is_loaded_from_anywhere(html: str, page: pages.Page) -> None:
    links = [
        v for _, a in page.elements for k, v in a.items() if k in ("src", "href", "xlink:href", "action")
    ]
    assert links
    assert all(v is not None and v.startswith("#") for v in links)
    assert not re.search(r"url\((?!#)|@import", html)


def test_hostile_names_values_and_errors_are_shown_as_text_in_html(html: str, page: pages.Page) -> None:
    shown = "".join(page.text)
    for hostile in (toy.HOSTILE_NAME, toy.HOSTILE_VALUE, toy.HOSTILE_ERROR):
        assert hostile not in html
        assert hostile in shown
    assert [t for t, _ in page.elements].count("style") == 1


def test_hostile_names_values_and_errors_are_shown_as_text_in_markdown(facts: Facts) -> None:
    rendered = pages.Page(pages.from_markdown(as_markdown.render(facts)))
    shown = "".join(rendered.text)
    for hostile in (toy.HOSTILE_NAME, toy.HOSTILE_VALUE, toy.HOSTILE_ERROR):
        assert hostile in shown
    assert not {t for t, _ in rendered.elements} & {"script", "img", "style", "em"}


def test_a_pipe_in_a_value_opens_no_table_cell(facts: Facts) -> None:
    rendered = pages.Page(pages.from_markdown(as_markdown.render(facts)))
    assert rendered.tables
    for section, rows in rendered.tables:
        assert {len(r) for r in rows} == {len(rows[0])}, section


@pytest.mark.parametrize(
    "text",
    [
        "# no heading",
        "- no item",
        "1. no list",
        "*a* _b_ **c**",
        "[x](y)",
        "a\\|b",
        "`tick",
        "&lt;b&gt;",
        "~~s~~",
        "<b>",
        "+",
    ],
)
def test_text_in_markdown_stands_as_it_is(text: str) -> None:
    rendered = pages.Page(pages.from_markdown(as_markdown.escape(text)))
    assert "".join(rendered.text).strip() == text
    assert {t for t, _ in rendered.elements} == {"p"}


@pytest.mark.parametrize("text", ["plain", "a`b", "``", "`x`", "<i>", "*a*"])
def test_code_in_markdown_stands_as_it_is(text: str) -> None:
    rendered = pages.Page(pages.from_markdown(as_markdown.code(text)))
    assert "".join(rendered.text).strip() == text
    assert [t for t, _ in rendered.elements] == ["p", "code"]


def test_characters_that_turn_text_around_or_hide_are_made_visible() -> None:
    assert blocks.clean("a\u202eb\x00c\u200bd\ne") == "a\ufffdb\ufffdc\ufffdd e"


def test_a_drawing_keeps_shapes_and_loses_scripts_links_and_handlers() -> None:
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" onload="x()" width="9"><script>x()</script>'
        '<a href="http://evil"><path d="M0,0"/></a><image href="http://evil"/>'
        f'<path d="M0,0h1" stroke="{charts.BAD}" fill="url(http://evil)" style="background:url(http://evil)"/></svg>'
    )
    kept = charts.themed(svg)
    assert kept == '<svg aria-hidden="true"><path d="M0,0h1" style="stroke:var(--bad)" /></svg>'


def test_the_page_is_built_for_reading_aloud(page: pages.Page, html: str) -> None:
    assert len(page.headings["h1"]) == 1
    assert page.elements[0][0] == "html"
    assert page.elements[0][1]["lang"] == "en"
    assert all(a.get("scope") in ("col", "row") for t, a in page.elements if t == "th")
    charts_ = [a for t, a in page.elements if t == "figure" and a.get("role") == "img"]
    maps = [a for t, a in page.elements if t == "svg" and a.get("class") == "map"]
    assert (len(charts_), len(maps)) == (3, 1)
    assert all(a["role"] == "img" and len(a["aria-label"] or "") > 40 for a in (*charts_, *maps))
    ids = [a["id"] for _, a in page.elements if a.get("id")]
    assert len(ids) == len(set(ids))


def _contrast(a: str, b: str) -> float:
    """The contrast ratio of WCAG 2 of two colours."""

    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    high, low = sorted((light(a), light(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_text_and_lines_have_enough_contrast_in_light_dark_and_print(html: str) -> None:
    themes = [
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", part))
        for part in re.findall(r":root \{(.*?)\}", html, re.S)
    ]
    assert len(themes) == 3
    for theme in themes:
        for role in ("ink", "quiet", "bad", "warn", "good"):
            for ground in ("paper", "soft"):
                assert _contrast(theme[role], theme[ground]) >= 4.5, (role, ground)
        assert all(_contrast(theme[f"c{i}"], theme["paper"]) >= 3 for i in range(5))
