"""The state of the code, from real git repositories in every state that one can be in."""

from __future__ import annotations

import hashlib
import os
import sys
import types
from pathlib import Path

import pytest

from lineage.capture import code, loaded
from schemas import CodeState
from tests.secret_samples import SAMPLES, as_file_name, planted

from .repositories import Blobs, make_repository, run


def test_a_clean_repository_gives_revision_branch_and_nothing_else(repository: Path) -> None:
    got = code.capture("train.py")
    assert got.model_copy(update={"modules": {}}) == CodeState(
        repository=True,
        revision=run(repository, "rev-parse", "HEAD"),
        branch="main",
        entry="train.py",
        loaded={"train.py": "sha1:" + run(repository, "rev-parse", "HEAD:train.py")},
        loaded_whole=True,
    )


def test_a_loaded_file_has_one_digest_edited_or_committed_and_a_document_has_none(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was run with uncommitted changes and committed later is the same code."""
    (repository / "helper.py").write_text("x = 1\n")
    (repository / "README.md").write_text("hello\n")
    module = types.ModuleType("helper")
    module.__file__ = str(repository / "helper.py")
    monkeypatch.setitem(sys.modules, "helper", module)
    untracked = code.capture("train.py")
    run(repository, "add", ".")
    run(repository, "commit", "-q", "-m", "helper")
    committed = code.capture("train.py")
    assert set(committed.loaded) == {"helper.py", "train.py"}
    assert committed.loaded == untracked.loaded
    assert (committed.loaded_whole, untracked.loaded_whole) == (True, True)
    (repository / "helper.py").write_text("x = 2\n")
    edited = code.capture("train.py")
    assert edited.loaded["helper.py"] != committed.loaded["helper.py"]
    assert edited.loaded["train.py"] == committed.loaded["train.py"]


def test_a_list_of_loaded_files_that_is_cut_says_so(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded, "MOST", 0)
    got = code.capture("train.py")
    assert (got.loaded, got.loaded_whole) == ({}, False)
    assert got.note is not None
    assert "1 loaded files of the repository have no digest" in got.note


def test_a_secret_in_a_loaded_file_is_masked_before_its_digest(repository: Path) -> None:
    (repository / "train.py").write_text(f"# {planted('github-classic')}\n")
    raw = (repository / "train.py").read_bytes()
    got = code.capture("train.py")
    assert got.loaded["train.py"] != "sha1:" + hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest()
    assert got.loaded["train.py"].startswith("sha256:")


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


def test_an_imported_file_counts_where_it_really_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linked into site-packages, file or folder, it is still the user's; the user's link to an installed one is not."""
    users, installed = tmp_path / "code", tmp_path / "site-packages"
    users.mkdir()
    installed.mkdir()
    for path in (users / "one.py", users / "two.py", installed / "three.py"):
        path.write_text("x = 1\n")
    (installed / "linked.py").symlink_to(users / "one.py")
    (installed / "linked").symlink_to(users)
    (users / "back.py").symlink_to(installed / "three.py")
    for place in (installed / "linked.py", installed / "linked" / "two.py", users / "back.py"):
        module = types.ModuleType(place.stem)
        module.__file__ = str(place)
        monkeypatch.setitem(sys.modules, str(place), module)
    monkeypatch.chdir(tmp_path)
    found = {Path(m).name for m in code.capture().modules}
    assert found & {"one.py", "two.py", "three.py", "linked.py", "back.py"} == {"one.py", "two.py"}


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
