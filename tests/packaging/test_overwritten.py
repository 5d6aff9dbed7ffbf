"""Another distribution that installs its own `trackers` over ours, its uninstall, and mixed versions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import Installation, build_wheel

REPAIR = "pip install --force-reinstall runlineage"
IMPORT = "import lineage"


@pytest.fixture
def other_distribution(tmp_path: Path) -> Path:
    """A wheel by somebody else with a top-level package `trackers`."""
    source = tmp_path / "other"
    (source / "trackers").mkdir(parents=True)
    (source / "trackers" / "__init__.py").write_text('raise SystemExit("somebody else\'s code ran")\n')
    (source / "trackers" / "base.py").write_text("class Tracker: ...\n")
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "somebody-elses-trackers"\nversion = "3.0"\n'
        '[tool.setuptools]\npackages = ["trackers"]\n'
    )
    return build_wheel(source, tmp_path / "other-wheel")


def _refused(installation: Installation, folder: str, why: str) -> None:
    done = installation.run(IMPORT)
    assert done.returncode == 1, done.stdout + done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("lineage._rooms.DamagedInstallation: LIN-L005: ")
    assert f"{installation.site_packages / folder} {why}" in last
    assert REPAIR in last


def test_a_whole_installation_works(installation: Installation) -> None:
    done = installation.run(f"{IMPORT}, schemas; print(schemas.__file__)")
    assert done.stdout.startswith(str(installation.site_packages)), done.stderr


def test_an_overwriting_distribution_is_named_as_damage_and_a_reinstall_repairs_it(
    installation: Installation, other_distribution: Path, wheel: Path
) -> None:
    installation.install(other_distribution)
    assert (installation.site_packages / "trackers" / "_build.py").exists(), "pip left our marker behind"
    _refused(installation, "trackers", "has an __init__.py that is not runlineage's")

    installation.pip("uninstall", "--yes", "somebody-elses-trackers")
    assert not (installation.site_packages / "trackers" / "__init__.py").exists()
    _refused(installation, "trackers", "has lost its __init__.py")

    installation.pip("install", "--no-deps", "--no-index", "--force-reinstall", str(wheel))
    assert installation.run(IMPORT).returncode == 0


def test_a_module_that_was_replaced_below_the_package_is_damage_too(installation: Installation) -> None:
    (installation.site_packages / "trackers" / "base.py").write_text("class Tracker: ...\n")
    _refused(installation, "trackers", "is incomplete (cannot import name '")
    (installation.site_packages / "trackers" / "base.py").unlink()
    _refused(installation, "trackers", "is incomplete (No module named 'trackers.base'")


def test_a_room_that_is_gone_is_damage(installation: Installation) -> None:
    (installation.site_packages / "schemas").rename(installation.folder / "elsewhere")
    _refused(installation, "schemas", "is gone")


def test_files_of_another_version_are_damage(installation: Installation) -> None:
    marker = installation.site_packages / "schemas" / "_build.py"
    marker.write_text(re.sub('VERSION = ".*"', 'VERSION = "9.9.9"', marker.read_text()))
    _refused(installation, "schemas", "holds runlineage 9.9.9, not runlineage 0.1.0")


def test_a_missing_dependency_is_reported_as_itself_and_not_as_damage(installation: Installation) -> None:
    (installation.site_packages / "dependencies.pth").unlink()
    done = installation.run(IMPORT)
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'pydantic'" in done.stderr
    assert "LIN-L005" not in done.stderr
