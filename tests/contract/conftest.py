"""An environment in which the example of a third party's adapter is installed as its users would install it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.packaging.conftest import Installation, wheel

__all__ = ["wheel"]

EXAMPLE = Path(__file__).parents[2] / "examples" / "sqlite_sink"


@pytest.fixture(scope="module")
def with_sink(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Installation:
    """Our wheel, and the example's distribution, installed by pip; nothing of the working tree is in reach."""
    folder = tmp_path_factory.mktemp("third-party")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    made = Installation(folder / "env")
    # A plain path line: that folder's own .pth files, such as our editable install, are not followed.
    (made.site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    made.install(wheel)
    shutil.copytree(EXAMPLE, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    made.pip("install", "--no-deps", "--no-index", "--no-build-isolation", str(folder / "source"))
    return made
