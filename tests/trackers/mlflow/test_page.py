"""The run's page in a real browser: what a person sees without opening anything."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path

import pytest

from . import builders as b
from .conftest import Case, needs_models

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]

pytestmark = [
    needs_models,  # the page of MLflow 3
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium"),
]


def test_the_overview_shows_verdict_flags_models_and_the_users_own_words(
    served: Case, tmp_path: Path
) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    served.client.log_param(served.run_id, "lr", 3e-4)
    for step in range(1, 40):
        served.client.log_metric(served.run_id, "loss", 4.0 / step, step=50 * step)
    served.client.set_tag(served.run_id, "mlflow.note.content", "Words of the user, *kept*.")
    parent = b.checkpoint(2000)
    for payload in (
        b.segment(served.segment),
        b.regime(0, 1, learning_rate=3e-4),
        parent,
        b.alarm(math.nan),
    ):
        served.show(payload, step=2000)
    resumed = b.uid()
    for payload in (
        b.segment(resumed, parent=parent.uid, parent_step=2000),
        b.drift(b.change("learning_rate", 3e-4, 1e-4), b.change("clip", 1.0, 0.3)),
        b.regime(1, 2001, previous=b.SHA, learning_rate=1e-4),
        b.verdict(),
    ):
        served.show(payload, step=2001, segment=resumed)
    report = tmp_path / "report.html"
    report.write_text("<!doctype html><h1>The lineage report</h1>")
    served.tracker.publish(report, "report.html")
    url = served.tracker.alias().url
    assert url is not None

    shots = Path(os.environ.get("LINEAGE_SCREENSHOTS", tmp_path))
    with sync_api.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        try:
            page = browser.new_page(viewport={"width": 1900, "height": 2100})
            page.goto(url)
            page.get_by_text("Broken since step 2,001").first.wait_for(timeout=60_000)
            page.get_by_text("ckpt-step-2000").first.wait_for(timeout=30_000)
            if page.get_by_text("Show more").count():  # newer pages fold a long description
                page.get_by_text("Show more").first.click()
            page.screenshot(path=str(shots / "overview.png"))
            body = page.inner_text("body")
            for line in ("Words of the user", "lineage/status", "broken", "ckpt-step-2000", "lineage/regime"):
                assert line in body, line
            assert "2000" in page.get_by_role("row").filter(has_text="ckpt-step-2000").first.inner_text()
            assert "lineage:begin" not in body  # the markers are not for people
            page.goto(f"{url}/model-metrics")
            page.get_by_text("regime").first.wait_for(timeout=30_000)
            page.wait_for_timeout(2000)  # the chart is drawn
            page.screenshot(path=str(shots / "charts.png"))
            page.goto(f"{url}/artifacts/lineage/report.html")
            frame = page.frame_locator("iframe").get_by_text("The lineage report")
            frame.wait_for(timeout=30_000)
            page.screenshot(path=str(shots / "report.png"))
        finally:
            browser.close()
