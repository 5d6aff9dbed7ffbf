"""The documentation site builds strictly, asks the net for nothing, and can be searched without a server."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import schemas
from lineage.cli.commands import MODULES

from .blocks import DOCS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("material") is None, reason="mkdocs-material is not installed"
    ),
]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it: a dead link, a missing anchor or a warning ends the build."""
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(out)],
        cwd=DOCS.parent,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return out


def test_every_page_code_and_command_has_its_page(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS).with_suffix(".html")).exists(), page
    for code in schemas.CODES:
        path = schemas.page(code).removeprefix("https://runlineage.dev/")
        assert "What to do next" in (site / path).read_text(), code
    for name in MODULES:
        assert (site / "cli" / f"{name}.html").exists(), name


def test_what_is_generated_says_what_the_code_says(site: Path) -> None:
    assert "Exit with 1 from this severity on" in (site / "cli" / "audit.html").read_text()
    recording = (site / "api" / "recording.html").read_text()
    assert "averaged copy of the weights" in recording, "the arguments of lineage.attach"
    assert 'id="lineage.Recorder.mitigate"' in recording
    assert "The last line of a journal file has no newline" in (site / "codes" / "lin-j001.html").read_text()


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
def test_the_site_is_read_and_searched_from_the_disk_alone(site: Path) -> None:
    api = pytest.importorskip("playwright.sync_api")
    asked: list[str] = []
    with api.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page: Any = browser.new_page(viewport={"width": 390, "height": 844})
        page.on("request", lambda r: asked.append(r.url))
        for path in (
            "index.html",
            "quickstart/plain.html",
            "codes/lin-c002.html",
            "cli/audit.html",
            "codes.html",
        ):
            page.goto((site / path).as_uri())
            wider = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert wider <= 0, f"{path} is {wider} pixels wider than a phone"
        page.set_viewport_size({"width": 1360, "height": 900})
        page.goto((site / "index.html").as_uri())
        page.locator("input.md-search__input").fill("quarantine")
        first = page.locator(".md-search-result__item a").first
        first.wait_for()
        assert "quarantine" in first.inner_text().lower()
        browser.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "about:", "blob:"))] == []
