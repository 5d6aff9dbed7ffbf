"""The charts that can be zoomed: in a real browser, offline, under a policy that names what may run."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lineage.report import charts, interactive

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SCRIPT = re.compile(r"<script(?P<kind>[^>]*)>(?P<text>.*?)</script>", re.S)


def drawing() -> charts.Drawing:
    points = [(s, 3.0 - s / 100) for s in range(1, 101)]
    return charts.Drawing(
        "loss", lines=[charts.Line("</script><b>segment 1", points, charts.LINES[0], [1, 0])]
    )


def test_the_policy_names_what_runs_by_its_digest_and_nothing_else(pages: Path) -> None:
    page = (pages / "postmortem.html").read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    assert rules["default-src"] == "'none'"
    run = [m["text"] for m in SCRIPT.finditer(page) if "json" not in m["kind"]]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in run]
    assert rules["script-src"].split() == [f"'sha256-{d}'" for d in digests]
    assert len(run) == 2
    assert len(page) < 3_000_000


def test_no_word_of_a_ledger_ends_its_script_element() -> None:
    (spec,) = interactive.live({"loss": drawing()}).specs.values()
    assert "<" not in spec
    assert json.loads(spec)["width"] == "container"
    assert "</script><b>segment 1" in json.dumps(json.loads(spec))


def test_a_page_without_charts_runs_nothing() -> None:
    assert interactive.live({"loss": charts.Drawing("loss")}) == interactive.NONE
    assert interactive.NONE.policy == ""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as p:
        found = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_chart_is_zoomed_and_tells_its_values_without_a_network(
    browser: Any, pages: Path, width: int, scheme: str
) -> None:
    """Under the page's own policy; the checker of accessibility finds nothing in it, and print has the drawing."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda m: said.append(m.text))
    page.on("pageerror", lambda e: said.append(str(e)))
    page.goto((pages / "postmortem.html").as_uri())
    chart = page.locator("[data-chart=loss]")
    button, plot = chart.locator("button"), chart.locator(".plot")
    assert (button.text_content(), plot.is_visible()) == ("Zoom and read values", False)
    button.click()
    plot.locator("svg").wait_for()
    assert (button.text_content(), button.get_attribute("aria-pressed")) == ("Back to the drawing", "true")
    assert not chart.locator(".wide").is_visible()
    points = plot.locator(".mark-symbol path")
    points.nth(points.count() // 2).hover(force=True)
    page.locator("#vg-tooltip-element.visible").wait_for()
    words = page.locator("#vg-tooltip-element").inner_text()
    assert re.search(r"line\s+segment \d", words)
    assert re.search(r"step\s+[\d,]+", words)
    before = plot.inner_html()
    page.mouse.wheel(0, -400)
    page.wait_for_function(
        "([s, b]) => document.querySelector(s).innerHTML !== b", arg=[".live .plot", before]
    )
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.emulate_media(media="print")
    assert (plot.is_visible(), button.is_visible(), chart.locator(".wide").is_visible()) == (
        False,
        False,
        True,
    )
    page.emulate_media(media="screen")
    button.click()
    assert (plot.is_visible(), button.text_content()) == (False, "Zoom and read values")
    assert said == []
    context.close()


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
def test_the_checker_of_accessibility_finds_nothing_in_a_zoomed_chart(browser: Any, pages: Path) -> None:
    package = pytest.importorskip("axe_playwright_python")
    context = browser.new_context(bypass_csp=True)
    page = context.new_page()
    page.goto((pages / "postmortem.html").as_uri())
    page.locator("[data-chart=loss] button").click()
    page.locator("[data-chart=loss] .plot svg").wait_for()
    page.evaluate((Path(package.__file__).parent / "axe.min.js").read_text())
    found = page.evaluate("axe.run()")
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in found["violations"]] == []
    context.close()
