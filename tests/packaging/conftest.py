"""A wheel of the working tree, and environments into which pip really installs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SOURCES = ("schemas", "trackers", "lineage", "pyproject.toml", "README.md", "LICENSE")


def build_wheel(source: Path, into: Path) -> Path:
    """Build a wheel of a source tree without the network, with the build backend that is installed."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(into), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = into.glob("*.whl")
    return wheel


def copy_of_the_sources(target: Path) -> Path:
    """Copy what a wheel is made of, so that building leaves nothing in the working tree."""
    for name in SOURCES:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / name)
    return target


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the working tree."""
    source = copy_of_the_sources(tmp_path_factory.mktemp("source"))
    return build_wheel(source, tmp_path_factory.mktemp("wheel"))


@dataclass
class Installation:
    """A virtual environment of its own, with the dependencies of this one in reach but nothing of ours."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def site_packages(self) -> Path:
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def pip(self, *args: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", self.python, *args]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def install(self, wheel: Path) -> None:
        self.pip("install", "--no-deps", "--no-index", str(wheel))

    def run(self, code: str, *before: str) -> subprocess.CompletedProcess[str]:
        command = [*before, self.python, "-c", code]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder)


@pytest.fixture
def installation(tmp_path: Path, wheel: Path) -> Installation:
    """An environment in which the wheel is installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    made = Installation(tmp_path / "env")
    # A plain path line: that folder's own .pth files, such as our editable install, are not followed.
    (made.site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    made.install(wheel)
    return made
