"""`python -m tests.pages --write docs/pages`: the pictures of the trackers' pages, made anew from real trainings."""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # before mlflow is imported
os.environ.setdefault("LINEAGE_HARDWARE_EVERY", "0")

import pytest
from PIL import Image

from tests.trackers.mlflow.servers import Server
from tests.wandb_home import own_home

from . import browser as pages
from .mlflow_side import MlflowSide, elsewhere
from .story import BAD, BASELINE, CHANGED, RUNS, SPOILED, Story
from .terminal import Leet, as_html
from .wandb_side import WandbSide

Opened = contextlib.AbstractContextManager[Any]
MLFLOW: dict[str, Callable[[Any, MlflowSide], Opened]] = {
    "mlflow-runs": lambda b, side: pages.run_list(b, side, *RUNS),
    "mlflow-search": lambda b, side: pages.run_list(
        b, side, CHANGED, SPOILED, BAD, query="tags.`lineage/status` = 'broken'"
    ),
    "mlflow-overview": lambda b, side: pages.overview(b, side, CHANGED),
    "mlflow-fork": lambda b, side: pages.overview(b, side, BAD),
    "mlflow-charts": lambda b, side: pages.charts(b, side, CHANGED),
    "mlflow-report": lambda b, side: pages.artifact(b, side, CHANGED, "report.html"),
    "mlflow-comparison": lambda b, side: pages.comparison(b, side, BASELINE, CHANGED),
}
WANDB = ("wandb-terminal", "wandb-panel")
PICTURES = (*MLFLOW, *WANDB)
LIMIT = 200_000
"""Bytes of a picture."""


def main() -> None:
    """Make the pictures that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.pages", description=__doc__)
    parser.add_argument("--write", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--only", choices=["mlflow", "wandb"])
    given = parser.parse_args()
    given.write.mkdir(parents=True, exist_ok=True)
    out = given.write.resolve()
    with (
        tempfile.TemporaryDirectory(prefix="pages-") as scratch,
        pages.chromium() as browser,
    ):
        if given.only != "wandb":
            of_mlflow(browser, Path(scratch), out)
        if given.only != "mlflow":
            of_wandb(browser, Path(scratch), out)


def of_mlflow(browser: Any, scratch: Path, out: Path) -> None:
    """Train beside a real server, and picture its pages."""
    folder, home = scratch / "server", scratch / "mlflow"
    folder.mkdir()
    home.mkdir()
    with served(folder) as server, elsewhere():
        side = MlflowSide(server.uri)
        Story(home, side).tell()
        for name, opens in MLFLOW.items():
            with opens(browser, side) as page:
                page.wait_for_timeout(1500)  # what fades in has faded in
                shoot(page, out / f"{name}.png")


def of_wandb(browser: Any, scratch: Path, out: Path) -> None:
    """Train with an offline run, and picture what its local log holds."""
    folder = scratch / "wandb"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch, own_home(folder, patch):
        side = WandbSide()
        Story(folder, side).tell(CHANGED)
        viewer = Leet(side.log_of(CHANGED), width=210, height=30)
        try:
            viewer.verdict()
        finally:
            viewer.close()
        page = browser.new_page(viewport={"width": 1660, "height": 496})
        page.set_content(as_html(viewer.screen))
        shoot(page, out / "wandb-terminal.png")
        with pages.opened(browser, side.panel(CHANGED).as_uri(), 1000, 1300) as panel:
            panel.get_by_text("The answer").first.wait_for()
            shoot(panel, out / "wandb-panel.png")


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Server]:
    """A real MLflow server."""
    server = Server(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def shoot(page: Any, path: Path) -> None:
    """Picture a page in few colours, so that it stays small."""
    page.screenshot(path=str(path))
    with Image.open(path) as found:
        small = found.convert("RGB").quantize(colors=192, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    size = path.stat().st_size
    assert size < LIMIT, f"{path} has {size:,} bytes, more than {LIMIT:,}: picture less of the page"
    print(f"{path.name}: {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
