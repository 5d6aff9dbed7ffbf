"""The page in a real browser: on a phone, in print, and by an accessibility checker where one is installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .story import Story

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
WIDTHS = "[document.documentElement.scrollWidth, window.innerWidth]"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as p:
        found = p.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def html(story: Story, pages: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page's address, with wide things that people wrote."""
    folder = Path(shutil.copytree(pages, tmp_path_factory.mktemp("wide") / "out"))
    rows = ("a column | ", "--- | ", "a-long-word-in-a-cell | ")
    table = "\n".join(f"| {cell * 12}" for cell in rows)
    wide = f"{table}\n\n    {'x' * 300}\n\n{'y' * 300}"
    path = folder / "postmortem.md"
    path.write_text(path.read_text().replace("*Nobody has written this yet.*", wide, 1))
    story.postmortem(folder)
    assert "a-long-word-in-a-cell" in (folder / "postmortem.html").read_text()
    return (folder / "postmortem.html").as_uri()


@pytest.mark.parametrize(
    ("width", "media"), [(390, "screen"), (320, "screen"), (1280, "screen"), (794, "print")]
)
def test_nothing_is_wider_than_a_phone_a_screen_or_a_sheet(
    browser: Any, html: str, width: int, media: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 844})
    page.emulate_media(media=media)
    page.goto(html)
    scroll, inner = page.evaluate(WIDTHS)
    assert scroll <= inner == width
    page.close()


TOO_WIDE = """[...document.querySelectorAll("table[role=table]")]
    .filter(t => t.scrollWidth > t.parentElement.clientWidth).map(t => t.caption.innerText)"""


@pytest.mark.parametrize(("width", "media"), [(1280, "screen"), (718, "print")])
def test_no_column_of_a_table_is_cut_off_where_a_row_has_long_words(
    browser: Any, html: str, width: int, media: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 844})
    page.emulate_media(media=media)
    page.goto(html)
    page.evaluate(
        """document.querySelectorAll("#phases tbody td[data-label=Hardware]").forEach(
        td => td.textContent = "16 ranks, 2 nodes; data-parallel sharding DistributedDataParallel")"""
    )
    assert page.evaluate("document.querySelectorAll('#phases td').length") > 8
    assert page.evaluate(TOO_WIDE) == []
    page.close()


def test_the_page_asks_for_nothing_and_reports_no_error(browser: Any, html: str) -> None:
    page = browser.new_page()
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda r: asked.append(r.url))
    page.on("console", lambda m: said.append(m.text))
    page.goto(html, wait_until="load")
    assert asked == [html]
    assert said == []
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_an_accessibility_checker_finds_nothing(browser: Any, html: str, width: int, scheme: str) -> None:
    """axe-core, from the package that carries it; it is given to the test's browser alone."""
    package = pytest.importorskip("axe_playwright_python")
    axe = (Path(package.__file__).parent / "axe.min.js").read_text()
    context = browser.new_context(
        viewport={"width": width, "height": 844}, bypass_csp=True, color_scheme=scheme
    )
    page = context.new_page()
    page.goto(html)
    page.evaluate(axe)
    found = page.evaluate("axe.run()")
    assert len(found["passes"]) > 15
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in found["violations"]] == []
    context.close()
