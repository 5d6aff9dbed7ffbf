"""The state of the code, from real git repositories in every state that one can be in."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from lineage.capture import code, git
from schemas import CodeState
from tests.secret_samples import SAMPLES, as_file_name, planted


def run(folder: Path, *args: str) -> str:
    settings = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", *settings, *args], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def make_repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    run(folder, "init", "-q", "-b", "main")
    (folder / "train.py").write_text("lr = 1e-3\n")
    run(folder, "add", ".")
    run(folder, "commit", "-q", "-m", "first")
    return folder


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    folder = make_repository(tmp_path / "repo")
    monkeypatch.chdir(folder)
    return folder


class Blobs(dict[str, bytes]):
    """A blob store in memory."""

    def put(self, data: bytes) -> str:
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        self[digest] = data
        return digest

    def holds(self, secret: str) -> bool:
        lines = [line.encode() for line in secret.split("\n") if not line.startswith("-----")]
        return any(line in data for line in lines for data in self.values())


def test_a_clean_repository_gives_revision_branch_and_nothing_else(repository: Path) -> None:
    got = code.capture("train.py")
    assert got.model_copy(update={"modules": {}}) == CodeState(
        repository=True, revision=run(repository, "rev-parse", "HEAD"), branch="main", entry="train.py"
    )


def test_an_uncommitted_change_is_kept_as_a_patch_that_replays(repository: Path, tmp_path: Path) -> None:
    (repository / "train.py").write_text("lr = 3e-4\n")
    (repository / "staged.py").write_text("x = 1\n")
    (repository / "weights.bin").write_bytes(bytes(range(256)) * 8)
    run(repository, "add", "staged.py", "weights.bin")
    blobs = Blobs()
    got = code.capture(blobs=blobs.put)
    assert got.dirty
    assert got.diff_replayable
    assert got.note is None
    assert got.diff
    patch = blobs[got.diff]
    assert got.diff_bytes == len(patch)
    other = tmp_path / "other"
    run(tmp_path, "clone", "-q", str(repository), str(other))
    (tmp_path / "p.patch").write_bytes(patch)
    run(other, "apply", str(tmp_path / "p.patch"))
    for name in ("train.py", "staged.py", "weights.bin"):
        assert (other / name).read_bytes() == (repository / name).read_bytes()


def test_settings_of_the_user_do_not_bend_the_patch(repository: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    for key, value in {
        "diff.noprefix": "true",
        "color.ui": "always",
        "diff.external": f"touch {marker}",
        "core.fsmonitor": f"touch {marker}",
        "core.pager": f"touch {marker}",
    }.items():
        run(repository, "config", key, value)
    (repository / "train.py").write_text("lr = 3e-4\n")
    blobs = Blobs()
    got = code.capture(blobs=blobs.put)
    assert got.diff
    assert blobs[got.diff].startswith(b"diff --git a/train.py b/train.py\n")
    assert not marker.exists()


def test_the_index_is_not_touched(repository: Path) -> None:
    os.utime(repository / "train.py", (1, 1))  # would make `git status` refresh the index
    index = (repository / ".git" / "index").read_bytes()
    code.capture()
    assert (repository / ".git" / "index").read_bytes() == index


def test_a_detached_head_has_a_revision_and_no_branch(repository: Path) -> None:
    run(repository, "checkout", "-q", "--detach")
    got = code.capture()
    assert got.branch is None
    assert got.revision == run(repository, "rev-parse", "HEAD")
    assert got.note is None


def test_a_repository_without_a_commit_says_so_and_its_files_are_in_the_diff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "train.py").write_text("lr = 1e-3\n")
    run(tmp_path, "add", "train.py")
    monkeypatch.chdir(tmp_path)
    blobs = Blobs()
    got = code.capture(blobs=blobs.put)
    assert (got.repository, got.revision, got.branch, got.dirty) == (True, None, "main", True)
    assert got.note
    assert "no commit yet" in got.note
    assert got.diff
    assert b"+lr = 1e-3" in blobs[got.diff]


def test_no_repository_gives_the_digests_of_imported_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    work = tmp_path / "work"
    work.mkdir()
    (work / "my_model.py").write_text("width = 64\n")
    module = types.ModuleType("my_model")
    module.__file__ = str(work / "my_model.py")
    monkeypatch.setitem(sys.modules, "my_model", module)
    monkeypatch.chdir(work)
    got = code.capture()
    assert not got.repository
    assert got.note == "no git repository here"
    assert got.modules["my_model.py"] == "sha256:" + hashlib.sha256(b"width = 64\n").hexdigest()
    assert not any("site-packages" in m or "/lib/python3" in m for m in got.modules)
    assert not any("/lineage/" in m for m in got.modules)


def test_a_module_outside_the_repository_is_listed_and_one_inside_is_not(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, path in {
        "inside_m": repository / "inside_m.py",
        "outside_m": tmp_path / "lib" / "outside_m.py",
    }.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text("x = 1\n")
        module = types.ModuleType(name)
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, name, module)
    got = code.capture()
    assert str(tmp_path / "lib" / "outside_m.py") in got.modules
    assert not any("inside_m" in m for m in got.modules)


def test_submodules_are_listed_with_the_revision_that_is_checked_out(
    repository: Path, tmp_path: Path
) -> None:
    library = make_repository(tmp_path / "library")
    run(repository, "submodule", "--quiet", "add", str(library), "third party/lib")
    run(repository, "commit", "-q", "-m", "with a submodule")
    inside = repository / "third party" / "lib"
    assert code.capture().submodules == {"third party/lib": run(library, "rev-parse", "HEAD")}
    (inside / "train.py").write_text("lr = 5\n")
    blobs = Blobs()
    got = code.capture(blobs=blobs.put)
    assert got.dirty
    assert got.diff
    assert b"+lr = 5" in blobs[got.diff]
    run(repository, "submodule", "--quiet", "deinit", "-f", "third party/lib")
    note = code.capture().note
    assert note
    assert "submodule third party/lib is not checked out" in note


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
    start = time.monotonic()
    got = code.capture(timeout=0.5)
    assert time.monotonic() - start < 5
    assert got.note
    assert "took longer than 0.5 s" in got.note
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 5
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
    import shutil

    revision, real = run(repository, "rev-parse", "HEAD"), shutil.which("git")
    script = f'case "$*" in *" diff "*) sleep 600;; *) exec {real} "$@";; esac\n'
    monkeypatch.setenv("PATH", fake_git(tmp_path / "bin", script))
    got = code.capture(timeout=1.0)
    assert (got.repository, got.revision, got.branch) == (True, revision, "main")
    assert got.note
    assert "whether the code is changed is not known: git diff took longer than 1 s" in got.note


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


def test_a_diff_too_large_with_binaries_is_kept_without_them(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "LARGEST_DIFF", 20_000)
    (repository / "train.py").write_text("lr = 3e-4\n")
    (repository / "w.bin").write_bytes(b"\0" + os.urandom(100_000))
    run(repository, "add", ".")
    blobs = Blobs()
    got = code.capture(blobs=blobs.put)
    assert got.diff
    assert b"+lr = 3e-4" in blobs[got.diff]
    assert not got.diff_replayable
    (repository / "train.py").write_text("x = 1\n" * 10_000)
    got = code.capture()
    assert (got.dirty, got.diff, got.diff_replayable) == (True, None, False)
    assert got.note
    assert "not kept: it is larger than" in got.note


def test_untracked_files_are_listed_and_kept_only_below_declared_roots(repository: Path) -> None:
    (repository / "src").mkdir()
    (repository / "src" / "new.py").write_text("x = 1\n")
    (repository / "notes.txt").write_text("private\n")
    (repository / ".gitignore").write_text("*.log\n")
    (repository / "a.log").write_text("ignored\n")
    (repository / "wandb").mkdir()
    (repository / "wandb" / "run.wandb").write_text("the tracker's own\n")
    (repository / "link").symlink_to("/etc/passwd")
    blobs = Blobs()
    got = code.capture(roots=[repository / "src"], blobs=blobs.put)
    files = {f.path: f for f in got.untracked}
    assert set(files) == {".gitignore", "link", "notes.txt", "src/new.py"}
    assert files["link"].digest is None
    assert files["src/new.py"].size == 6
    assert files["notes.txt"].digest == "sha256:" + hashlib.sha256(b"private\n").hexdigest()
    assert list(blobs.values()) == [b"x = 1\n"]


def test_files_that_are_credentials_have_no_digest_and_are_not_in_the_diff(repository: Path) -> None:
    secret = SAMPLES["wandb-classic"]
    (repository / ".env.prod").write_text("A=1\n")
    run(repository, "add", "-f", ".env.prod")
    (repository / "id_rsa").write_text("x\n")
    (repository / "wb.txt").write_text(secret + "\n")
    (repository / "train.py").write_text("lr = 2\n")
    blobs = Blobs()
    got = code.capture(roots=[repository], blobs=blobs.put)
    assert {f.path: f.digest for f in got.untracked} == {"id_rsa": None, "wb.txt": None}
    assert got.diff
    assert b"+lr = 2" in blobs[got.diff]
    assert b"A=1" not in blobs[got.diff]
    assert not got.diff_replayable
    assert not blobs.holds(secret)


def test_a_changed_binary_file_that_holds_a_secret_is_left_out_of_the_diff(repository: Path) -> None:
    secret = planted("github-classic")
    (repository / "cache.bin").write_bytes(b"\0\0" + secret.encode() + b"\0")
    (repository / "clean.bin").write_bytes(b"\0\1\2")
    run(repository, "add", ".")
    blobs = Blobs()
    got = code.capture(blobs=blobs.put)
    assert got.diff
    assert b"clean.bin" in blobs[got.diff]
    assert b"cache.bin" not in blobs[got.diff]
    assert not got.diff_replayable
    run(repository, "commit", "-q", "-m", "oh no")
    (repository / "cache.bin").write_bytes(b"\0\0clean now")
    got = code.capture(blobs=blobs.put)
    assert got.diff
    assert b"cache.bin" not in blobs[got.diff], "a binary patch holds the old side too"


@pytest.mark.parametrize("name", SAMPLES)
def test_a_secret_in_the_code_leaves_no_trace(
    name: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git remote, branch, diff, untracked file by name and content, module, notebook name."""
    secret, text = SAMPLES[name], planted(name)
    if "\n" not in secret:
        run(repository, "remote", "add", "origin", f"https://bot:{secret}@git.example.org/a/b.git")
    (repository / "train.py").write_text(f"'''\n{text}\n'''\nlr = 1\n")
    (repository / "extra.py").write_text(f"# {text}\n")
    file_name = as_file_name(name)
    if file_name:
        (repository / f"{file_name}.ipynb").write_text("{}\n")
    outside = tmp_path / "outside.py"
    outside.write_text(f"# {text}\n")
    module = types.ModuleType("outside")
    module.__file__ = str(outside)
    monkeypatch.setitem(sys.modules, "outside", module)
    blobs = Blobs()
    got = code.capture(entry=f"{text}.ipynb", roots=[repository], blobs=blobs.put)
    stored = got.model_dump_json()
    for line in secret.split("\n"):
        assert line.startswith("-----") or line not in stored
    assert not blobs.holds(secret)
    assert got.dirty
    assert got.diff
    assert not got.diff_replayable
    assert b"[masked]" in blobs[got.diff]
    assert b"+lr = 1" in blobs[got.diff], "the code around a secret stays"
    raw = hashlib.sha256((repository / "extra.py").read_bytes()).hexdigest()
    assert raw not in stored, "a digest of the raw file would be a digest of the secret"
    assert hashlib.sha256(outside.read_bytes()).hexdigest() not in stored
    if "\n" not in secret:
        assert got.remote
        assert got.remote.startswith("https://")
        assert got.remote.endswith("git.example.org/a/b.git")


def test_masking_leaves_binary_patches_whole() -> None:
    body = "zcmV" + "A1b2C3d4E5f6G7h8I9j0" * 3
    patch = f"diff --git a/x b/x\nGIT binary patch\nliteral 9\n{body}\n\nliteral 0\nHcmV?d00001\n\n"
    text = f"{patch}diff --git a/y b/y\n+k = '{planted('npm')}'\n"
    data, count = code._masked_diff(text.encode())
    assert count == 1
    assert data.decode().startswith(patch)


def test_the_notebook_is_the_entry_where_one_runs(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/u/explore.ipynb")
    assert code.capture().entry == "/home/u/explore.ipynb"


def test_file_names_that_are_not_utf8_do_not_break_the_record(repository: Path) -> None:
    try:
        (repository / os.fsdecode(b"caf\xe9.py")).write_text("x = 1\n")
    except OSError:
        pytest.skip("this file system takes only UTF-8 names")
    got = code.capture()
    assert CodeState.model_validate_json(got.model_dump_json()) == got
    assert [f.path for f in got.untracked] == ["caf\\udce9.py"]


def test_git_asks_nothing_and_waits_for_nobody(repository: Path) -> None:
    answer = git.Git(repository, 5)("-c", "credential.helper=", "ls-remote", "https://127.0.0.1:9/none.git")
    assert not answer.ok
    assert answer.why
