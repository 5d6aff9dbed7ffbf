"""What is in the wheel, and what its metadata asks of a training image."""

from __future__ import annotations

import email.message
import email.parser
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from .conftest import REPOSITORY

ROOMS = ("schemas", "trackers", "lineage")
BASE = {"pydantic", "pyarrow", "blake3", "typer", "rich", "rfc8785", "uuid6"}
"""All that recording needs. A longer list is a new way to conflict with somebody's training image."""

DATA = (".toml", ".json", ".j2", ".css", ".typed")


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as z:
        return set(z.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as z:
        (path,) = (n for n in z.namelist() if n.endswith(".dist-info/METADATA"))
        return email.parser.Parser().parsestr(z.read(path).decode())


def _project() -> dict[str, dict[str, list[str]]]:
    project: dict[str, dict[str, list[str]]] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())[
        "project"
    ]
    return project


@pytest.mark.parametrize("room", ROOMS)
def test_every_module_and_data_file_of_a_room_is_in_the_wheel(names: set[str], room: str) -> None:
    tracked = {p.relative_to(REPOSITORY).as_posix() for p in (REPOSITORY / room).rglob("*") if p.is_file()}
    due = {p for p in tracked if p.endswith((".py", *DATA)) and "__pycache__" not in p}
    assert f"{room}/py.typed" in due
    assert due <= names, sorted(due - names)


def test_nothing_but_the_three_rooms_and_the_metadata_is_in_the_wheel(names: set[str]) -> None:
    tops = {n.partition("/")[0] for n in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == set(ROOMS)


def test_the_base_install_asks_only_for_what_recording_needs(metadata: email.message.Message) -> None:
    requires = metadata.get_all("Requires-Dist") or []
    base = {re.split(r"[^\w.-]", r)[0] for r in requires if "extra ==" not in r}
    assert base == BASE


def test_reading_each_tracker_and_torch_are_extras(metadata: email.message.Message) -> None:
    extras = set(metadata.get_all("Provides-Extra") or [])
    assert extras == set(_project()["optional-dependencies"])
    assert {"read", "wandb", "mlflow", "torch", "all", "dev"} <= extras


def test_the_metadata_names_distribution_python_licence_and_command(
    metadata: email.message.Message, wheel: Path
) -> None:
    assert metadata["Name"] == "runlineage"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    with zipfile.ZipFile(wheel) as z:
        (entry,) = (n for n in z.namelist() if n.endswith("entry_points.txt"))
        assert "lineage = lineage.cli:main" in z.read(entry).decode()


def test_all_markers_say_one_version() -> None:
    texts = {(REPOSITORY / room / "_build.py").read_text() for room in ROOMS}
    assert len(texts) == 1


def test_the_pinned_versions_satisfy_what_the_package_asks_for() -> None:
    from packaging.requirements import Requirement

    project = _project()
    asked = [Requirement(r) for r in project["dependencies"]]  # type: ignore[arg-type]
    asked += [Requirement(r) for group in project["optional-dependencies"].values() for r in group]
    floor = {r.name: r for r in asked if r.name != "runlineage"}
    for file in ("constraints.txt", "constraints-oldest.txt"):
        for line in (REPOSITORY / file).read_text().splitlines():
            if line and not line.startswith("#"):
                pin = Requirement(line.partition("#")[0].strip())
                (version,) = (s.version for s in pin.specifier)
                if pin.name in floor:
                    assert floor[pin.name].specifier.contains(version), f"{file}: {line}"


def test_imports_run_one_way() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [str(lint), "--no-cache"], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Contracts: 2 kept, 0 broken." in done.stdout
