"""Capture of the code that runs: revision, uncommitted changes, submodules, untracked files.

Everything is read with git's own commands, bounded in time; what could not be read is said in `note`.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._rooms import schemas
from . import canonical, loaded, modules, secrets
from .files import LARGEST, Reader, masked_content
from .git import Git

LARGEST_DIFF = 8 << 20
"""Bytes of a diff that is kept."""
MOST_UNTRACKED = 1000
MOST_BINARY = 50

# What trackers, Python and this layer write beside the code, run after run.
_OUTPUT_FOLDERS = frozenset(
    ("lineage-runs", "wandb", "mlruns", "mlartifacts", "__pycache__", ".ipynb_checkpoints", ".git")
)
_OUTPUT_FILES = frozenset(("mlflow.db", "mlflow.db-journal", "mlflow.db-wal", "mlflow.db-shm"))
_BINARY_PATCH = re.compile(
    r"(^GIT binary patch\n(?:(?:literal|delta) \d+\n(?:[A-Za-z][^\n]+\n)*\n?){1,2})", re.MULTILINE
)
_SUBMODULE = re.compile(r"^(?P<state>[ +\-U])(?P<revision>[0-9a-f]{40,64}) (?P<path>.*?)(?: \([^()]*\))?$")
_DIFF = ("diff", "--submodule=diff", "--no-ext-diff", "--no-textconv", "--no-color")


def capture(
    entry: str | None = None,
    roots: Sequence[str | os.PathLike[str]] = (),
    blobs: Callable[[bytes], str] | None = None,
    timeout: float = 20.0,
) -> schemas.CodeState:
    """Read the state of the code into its record. Never raises on account of git.

    `entry` is the script or notebook that runs; by default what Python was started with. The repository is
    looked for from the first of `roots`, then from the entry's folder (unless it is installed, as a launcher
    is), then from the working directory.
    `roots` are the declared source folders: only below them is the content of untracked files kept, through
    `blobs`, which stores bytes and returns their digest. Without `blobs` digests are made and nothing is
    kept. `timeout` in seconds bounds all of git together.
    """
    name = entry if entry is not None else _entry()
    work = _Work(Reader(blobs), [Path(r).resolve() for r in roots])
    git = _repository(work, name, timeout)
    state: dict[str, Any] = {}
    if git is None:
        state["repository"] = False
    else:
        with tempfile.TemporaryDirectory(prefix="lineage-") as folder:
            git.index = _copied_index(git, Path(folder))
            state |= {"repository": True, **_head(git, work)}
            state |= _diff(git, work, state["revision"], blobs)
            state["submodules"] = _submodules(git, work)
            state["untracked"] = _untracked(git, work)
            found = loaded.digests(git, work.changed, name)
            state |= {"loaded": found.files, "loaded_whole": found.whole}
            work.note(found.note or "")
    base = git.folder if git else work.roots[0] if work.roots else Path.cwd()
    state["modules"] = modules.digests(work.reader, git.folder if git else None, base)
    if work.reader.left_out:
        work.note(f"{work.reader.left_out} files without a digest: too large, unreadable or too many")
    shown = secrets.mask(canonical.text(name))[0] if name else None
    return schemas.CodeState(**state, entry=shown, note="; ".join(work.notes) or None, unread=work.unread)


@dataclass
class _Work:
    """What the steps of one capture share."""

    reader: Reader
    roots: list[Path]
    notes: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    changed: list[str] | None = None
    """paths that differ from the revision, once git has told them"""

    def note(self, text: str) -> None:
        text = secrets.mask(canonical.text(text))[0]
        if text and text not in self.notes:
            self.notes.append(text)


def _entry() -> str | None:
    """Return what Python runs: a notebook's name where the environment tells it, else the script."""
    main = sys.modules.get("__main__")
    for candidate in (
        getattr(main, "__vsc_ipynb_file__", None),
        os.environ.get("JPY_SESSION_NAME"),
        getattr(main, "__file__", None),
        sys.argv[0] if sys.argv else None,
    ):
        if isinstance(candidate, str) and candidate:
            return candidate
    return None


def _repository(work: _Work, entry: str | None, timeout: float) -> Git | None:
    """Return git in the top folder of the first repository found, or None with a note that says why."""
    places = [*work.roots]
    if entry and Path(entry).is_file() and not modules.is_installed(Path(entry).resolve()):
        places.append(Path(entry).resolve().parent)
    places.append(Path.cwd())
    why = ""
    for place in dict.fromkeys(places):
        if not place.is_dir():
            continue
        git = Git(place, timeout)
        top = git("rev-parse", "--show-toplevel")
        if top.ok and top.text:
            git.folder = Path(top.text)
            return git
        why = why if why and "no git repository" not in why else top.why or "no git work tree here"
        if "no git repository" not in top.why:
            break  # git is missing, hangs or refuses: another folder would not help
    work.note(why)
    if "no git repository" not in why:
        work.unread.append("repository")
    return None


def _copied_index(git: Git, folder: Path) -> Path | None:
    own = git("rev-parse", "--git-path", "index")
    try:
        return Path(shutil.copy2(git.folder / own.text, folder / "index")) if own.ok else None
    except OSError:
        return None  # nothing was ever added to it


def _head(git: Git, work: _Work) -> dict[str, Any]:
    revision = git("rev-parse", "--verify", "--quiet", "HEAD")
    if not revision.ok:
        slow = "longer" in revision.why or "passed" in revision.why
        work.note(revision.why if slow else "no commit yet: the diff is against an empty tree")
        if slow:
            work.unread.append("revision")
    branch = git("symbolic-ref", "--quiet", "--short", "HEAD")
    remotes = git("config", "--get-regexp", r"^remote\..*\.url$")
    urls = dict(line.split(" ", 1) for line in remotes.text.splitlines() if " " in line) if remotes.ok else {}
    own = git("config", "--get", f"branch.{branch.text}.remote") if branch.ok and len(urls) > 1 else None
    wanted = [f"remote.{own.text}.url"] if own and own.ok else []
    url = next((urls[k] for k in [*wanted, "remote.origin.url", *urls] if k in urls), None)
    return {
        "revision": revision.text if revision.ok and revision.text else None,
        "branch": secrets.mask(canonical.text(branch.text))[0] if branch.ok and branch.text else None,
        "remote": secrets.mask_url(canonical.text(url)) if url else None,
    }


def _diff(
    git: Git, work: _Work, revision: str | None, blobs: Callable[[bytes], str] | None
) -> dict[str, Any]:
    base = revision or git("hash-object", "-t", "tree", os.devnull).text
    if not base:
        return {}
    changed = git("diff", "--name-only", "--no-ext-diff", "-z", base)
    if not changed.ok:
        work.note(f"whether the code is changed is not known: {changed.why or 'too many changed files'}")
        work.unread.append("diff")
        return {}
    names = work.changed = [n for n in changed.text.split("\0") if n]
    if not names:
        return {"dirty": False}
    hidden = _hidden(git, work, base, names)
    exclude = [f":(exclude,top,literal){n}" for n in hidden]
    got = git(*_DIFF, "--binary", base, "--", ":/", *exclude, limit=LARGEST_DIFF)
    whole = not hidden
    if got.cut:
        got, whole = git(*_DIFF, base, "--", ":/", *exclude, limit=LARGEST_DIFF), False
        work.note(f"the diff is larger than {LARGEST_DIFF >> 20} MiB with binary files: they are left out")
    if not got.ok:
        why = got.why or f"it is larger than {LARGEST_DIFF >> 20} MiB"
        work.note(f"the code has uncommitted changes whose diff is not kept: {why}")
        work.unread.append("diff")
        return {"dirty": True, "diff_replayable": False}
    data, masked = _masked_diff(got.output)
    if masked:
        work.note(f"{masked} secrets are masked in the diff")
    return {
        "dirty": True,
        "diff": blobs(data) if blobs else canonical.digest_bytes(data),
        "diff_bytes": len(data),
        "diff_replayable": whole and not masked,
    }


def _hidden(git: Git, work: _Work, base: str, names: Sequence[str]) -> list[str]:
    """Return the changed files that must not be in the diff: named as credentials, or binary with one inside.

    A binary file stands in a diff compressed, where no secret could be masked.
    """
    hidden = [n for n in names if secrets.is_secret_file(n)]
    if hidden:
        work.note(f"{len(hidden)} changed files whose names say that they hold credentials are left out")
    numbers = git("diff", "--numstat", "--no-ext-diff", "--no-textconv", "-z", base)
    binary = [r.split("\t", 2)[2] for r in numbers.text.split("\0") if r.startswith("-\t-\t")]
    unsafe = [n for n in binary[:MOST_BINARY] if n not in hidden and not _is_clean(git, base, n)]
    unsafe += [n for n in binary[MOST_BINARY:] if n not in hidden]
    if unsafe:
        work.note(f"{len(unsafe)} changed binary files are left out: too large or many, or with a secret")
    return hidden + unsafe


def _is_clean(git: Git, base: str, name: str) -> bool:
    """Say whether both sides of a changed binary file are small and without a secret."""
    path = git.folder / name
    try:
        regular = path.is_file() and not path.is_symlink()
        if regular and (path.stat().st_size > LARGEST or masked_content(path.read_bytes()) is None):
            return False
    except OSError:
        return False
    before = git("cat-file", "blob", f"{base}:{name}", limit=LARGEST)
    return not before.cut and not (before.output and secrets.has_known_secret(before.output))


def _masked_diff(raw: bytes) -> tuple[bytes, int]:
    """Mask a diff outside its binary patches, which are compressed and would only be damaged."""
    parts = _BINARY_PATCH.split(raw.decode("utf-8", "surrogateescape"))
    count = 0
    for i in range(0, len(parts), 2):
        parts[i], found = secrets.mask(parts[i])
        count += found
    return "".join(parts).encode("utf-8", "surrogateescape"), count


def _submodules(git: Git, work: _Work) -> dict[str, str]:
    if not (git.folder / ".gitmodules").is_file():
        return {}
    status = git("submodule", "status", "--recursive")
    if not status.ok:
        work.note(f"submodules are not known: {status.why}")
    found: dict[str, str] = {}
    for line in status.output.decode("utf-8", "surrogateescape").splitlines():
        match = _SUBMODULE.match(line)
        if match:
            path = secrets.mask(canonical.text(match["path"]))[0]
            found[path] = match["revision"]
            if match["state"] == "-":
                work.note(f"submodule {path} is not checked out")
    return found


def _untracked(git: Git, work: _Work) -> list[schemas.UntrackedFile]:
    listed = git("ls-files", "--others", "--exclude-standard", "-z", limit=1 << 20)
    if listed.why:
        work.note(f"untracked files are not known: {listed.why}")
        return []
    names = listed.output.decode("utf-8", "surrogateescape").split("\0")[:-1]
    names = [n for n in names if not _is_output(n)]
    if len(names) > MOST_UNTRACKED or listed.cut:
        work.note(f"more than {min(len(names), MOST_UNTRACKED):,} untracked files: the rest is not listed")
    found = []
    for name in names[:MOST_UNTRACKED]:
        path = git.folder / name
        try:
            size = path.lstat().st_size
        except OSError:
            continue  # gone since it was listed
        # A link may lead anywhere: its target is not the repository's.
        regular = path.is_file() and not path.is_symlink() and git.left > 0
        keep = any(path.resolve().is_relative_to(root) for root in work.roots)
        digest = work.reader.digest(path, keep=keep) if regular else None
        shown = secrets.mask(canonical.text(name))[0]
        found.append(schemas.UntrackedFile(path=shown, size=size, digest=digest))
    return found


def _is_output(name: str) -> bool:
    *folders, last = name.split("/")
    return last in _OUTPUT_FILES or any(f in _OUTPUT_FOLDERS for f in folders)
