"""Git that is missing, hangs, refuses or is damaged: always a note, never an exception, never a wait."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from lineage.capture import code, git

from .repositories import run


def test_git_missing_is_a_note(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repository))
    got = code.capture()
    assert not got.repository
    assert got.note == "git is not installed, or not on PATH"


def fake_git(folder: Path, script: str) -> str:
    folder.mkdir()
    path = folder / "git"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_a_git_that_hangs_is_stopped_with_its_children(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", fake_git(tmp_path / "bin", f"sleep 600 & echo $! > {tmp_path}/child; wait\n"))
    got = code.capture(timeout=3.0)
    assert got.note
    assert "took longer than 3 s" in got.note
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 120
    while _alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(child)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_diff_that_hangs_leaves_revision_and_branch(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision, real = run(repository, "rev-parse", "HEAD"), shutil.which("git")
    script = f'case "$*" in *" diff "*) sleep 600;; *) exec {real} "$@";; esac\n'
    monkeypatch.setenv("PATH", fake_git(tmp_path / "bin", script))
    got = code.capture(timeout=5.0)
    assert (got.repository, got.revision, got.branch) == (True, revision, "main")
    assert got.note
    assert "whether the code is changed is not known: git diff took longer than 5 s" in got.note


def test_a_repository_of_another_owner_is_a_note_that_says_what_to_do(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    got = code.capture()
    assert not got.repository
    assert got.note
    assert "safe.directory" in got.note


def test_a_damaged_repository_is_a_note(repository: Path) -> None:
    (repository / ".git" / "HEAD").write_text("garbage\n")
    got = code.capture()
    assert got.note


def test_a_bare_repository_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, "init", "-q", "--bare", "b.git")
    monkeypatch.chdir(tmp_path / "b.git")
    got = code.capture()
    assert not got.repository
    assert got.note


def test_git_asks_nothing_and_waits_for_nobody(repository: Path) -> None:
    answer = git.Git(repository, 5)("-c", "credential.helper=", "ls-remote", "https://127.0.0.1:9/none.git")
    assert not answer.ok
    assert answer.why
