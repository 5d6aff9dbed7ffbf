"""MLflow's pages in a real Chromium, as a person opens them."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

from .mlflow_side import MlflowSide

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
PATIENCE = 90_000
"""Milliseconds until something that a page must show is there."""
WIDTHS = {"lineage/status": 0, "lineage/verdict": 560, "lineage/advice": 260}
COLUMNS = tuple(WIDTHS)
"""What a person ticks in the run list, once per experiment, and by how many pixels it is then drawn wider."""
_PANELS = """
localStorage.setItem("mlflow.assistant.fab.autoOpenedOnFirstLoad_v1", "true");
if (!localStorage.getItem("mlflow.assistant.panelOpen_v1")) {
  localStorage.setItem("mlflow.assistant.panelOpen_v1", "false");
}
"""
"""MLflow opens its assistant beside the page on the first visit; here it was closed before."""


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A browser; pages are opened with `opened`."""
    from playwright import sync_api

    with sync_api.sync_playwright() as p:
        found = p.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield found
        found.close()


@contextlib.contextmanager
def opened(browser: Any, url: str, width: int = 1400, height: int = 900) -> Iterator[Any]:
    """A page in a window of its own."""
    context = browser.new_context(viewport={"width": width, "height": height})
    context.add_init_script(_PANELS)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(url)
    yield page
    context.close()


@contextlib.contextmanager
def run_list(browser: Any, side: MlflowSide, *names: str, query: str = "") -> Iterator[Any]:
    """The run list of those runs with the columns of the verdict, ticked as a person does and drawn wide."""
    with opened(browser, side.table(), 1900, 430) as page:
        page.get_by_text(names[0], exact=True).first.wait_for()
        page.get_by_role("button", name="Columns", exact=True).click()
        choice = page.get_by_role("dialog").or_(page.locator(".ant-dropdown"))
        for name in ("Dataset", "Source", "Models", *COLUMNS):
            choice.get_by_text(name, exact=True).click()
        page.keyboard.press("Escape")
        page.get_by_role("columnheader", name=COLUMNS[-1]).first.wait_for()
        for name, width in WIDTHS.items():
            _drag(page, page.locator(f'[col-id="tags.`{name}`"] .ag-header-cell-resize').first, width)
        if query:
            field = page.get_by_placeholder("metrics.rmse").first
            field.fill(query)
            field.press("Enter")
            page.get_by_text(f"{len(names)} matching run").wait_for()
        for name in names:
            page.get_by_text(name, exact=True).first.wait_for()
        yield page


def columns_of(page: Any, name: str) -> dict[str, str]:
    """What the run list's columns say of a run: tag -> text, whole, also where the page cuts it off to the eye."""
    row = page.locator(".ag-row").filter(has_text=name).first.get_attribute("row-index")
    cells = f'.ag-row[row-index="{row}"] [col-id="tags.`{{}}`"]'
    return {c: page.locator(cells.format(c)).first.text_content().strip() for c in COLUMNS}


def models(page: Any) -> list[tuple[str, str, str]]:
    """The LoggedModels on a run's overview: whether they go in or come out, at which step, their names."""
    found = []
    for row in page.get_by_role("row").filter(has_text="ckpt-").all():
        words = row.inner_text().split()
        found.append((words[0], words[1], next(w for w in words if w.startswith("ckpt-"))))
    return sorted(found)


def lines(page: Any) -> list[list[tuple[float, float]]]:
    """The points of the charts on a page, from top to bottom."""
    found = page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')].map(p => [[...p.data[0].x], [...p.data[0].y]])"
    )
    return [list(zip(x, y, strict=True)) for x, y in found]


def _drag(page: Any, handle: Any, by: int) -> None:
    box = handle.bounding_box()
    x, y = box["x"] + 1.5, box["y"] + box["height"] / 2  # the next column's header covers the rest of it
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + by, y, steps=5)
    page.mouse.up()


@contextlib.contextmanager
def overview(browser: Any, side: MlflowSide, name: str, height: int = 1900) -> Iterator[Any]:
    """A run's overview, its description unfolded."""
    with opened(browser, side.page(name), height=height) as page:
        page.get_by_text("Logged models").first.wait_for()
        page.get_by_text("Description", exact=True).first.wait_for()
        more = page.get_by_text("Show more")
        if more.count():  # newer pages fold a long description
            more.first.click()
        yield page


@contextlib.contextmanager
def charts(browser: Any, side: MlflowSide, name: str) -> Iterator[Any]:
    """A run's charts, drawn."""
    with opened(browser, side.page(name, "/model-metrics"), 1100, 1150) as page:
        page.get_by_text("regime", exact=True).first.wait_for()
        page.locator(".js-plotly-plot .scatterlayer .trace").nth(1).wait_for(state="attached")
        yield page


@contextlib.contextmanager
def artifact(browser: Any, side: MlflowSide, name: str, file: str) -> Iterator[Any]:
    """An artifact of a run in MLflow's own view of it."""
    with opened(browser, side.page(name, f"/artifacts/lineage/{file}"), height=1100) as page:
        page.get_by_text(f"lineage/{file}").first.wait_for()
        yield page


@contextlib.contextmanager
def comparison(browser: Any, side: MlflowSide, *names: str) -> Iterator[Any]:
    """The comparison of runs, only what differs."""
    with opened(browser, side.comparison(*names), height=1230) as page:
        page.get_by_text("lineage/status").first.wait_for()
        for section in ("Visualizations", "Parameters", "Metrics", "Artifacts"):
            page.get_by_role("button", name=section).first.click()
        page.get_by_text("Show diff only").last.click()
        page.get_by_text("lineage/claims/throughput").wait_for(state="detached")
        page.get_by_text("lineage/claims/loss_curve").first.wait_for()
        yield page
