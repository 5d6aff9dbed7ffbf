"""A real git repository, apart from the settings and repositories of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .repositories import make_repository


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    folder = make_repository(tmp_path / "repo")
    monkeypatch.chdir(folder)
    return folder
