"""Where the secrets are planted, and a search that finds them in whatever form they were written."""

from __future__ import annotations

import html
import json
import os
import sqlite3
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from tests.secret_samples import SAMPLES, as_file_name, planted

CANARY = "canary-of-"
"""Begins the harmless words that stand in every place beside the secrets."""


def in_url(name: str) -> str:
    """A sample as the password of a URL."""
    return (
        SAMPLES[name] if SAMPLES[name].isascii() and not set(SAMPLES[name]) & set("\n/ ?#@") else quoted(name)
    )


def quoted(name: str) -> str:
    return quote(SAMPLES[name], safe="")


def git(folder: Path, *args: str) -> None:
    identity = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    subprocess.run(["git", *identity, *args], cwd=folder, check=True, capture_output=True)


def repository(folder: Path, script: Path) -> None:
    """A repository with the training script, an uncommitted diff and untracked files, all with secrets."""
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "train.py").write_text(script.read_text())
    (folder / "notes.txt").write_text("committed\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    lines = "".join(f"note {i}\n{planted(n)}\n" for i, n in enumerate(SAMPLES))
    (folder / "notes.txt").write_text(f"committed\n{CANARY}diff\n{lines}")
    scratch = folder / "scratch"
    scratch.mkdir()
    (scratch / f"{CANARY}untracked-file.txt").write_text("harmless\n")
    for i, name in enumerate(SAMPLES):
        (scratch / f"content-{i}.txt").write_text(f"see {planted(name)}\n")
        if (as_name := as_file_name(name)) is not None:
            (scratch / f"{as_name}.txt").write_text("harmless\n")
    git(folder, "remote", "add", "origin", f"https://git.example.org/{CANARY}git-remote.git")


def distributions(folder: Path) -> None:
    """Installed distributions that pip took from URLs with secrets in them."""
    urls = {f"planted-{i}": f"https://user:{in_url(n)}@git.example.org/p.git" for i, n in enumerate(SAMPLES)}
    urls["harmless"] = f"https://git.example.org/{CANARY}direct-url.git"
    for name, url in urls.items():
        info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "direct_url.json").write_text(json.dumps({"url": url, "vcs_info": {"vcs": "git"}}))


def environment() -> dict[str, str]:
    """Variables of the allow-list that hold secrets."""
    found = {f"NCCL_NOTE_{i}": planted(n) for i, n in enumerate(SAMPLES)}
    return {**found, "NCCL_NOTE": f"{CANARY}variable"}


def config() -> dict[str, object]:
    """A config with secrets as values, within values, and as keys."""
    keys: dict[str, object] = {planted(n): i for i, n in enumerate(SAMPLES)}
    values = {f"note_{i}": planted(n) for i, n in enumerate(SAMPLES)}
    nested = {"hosts": [planted(n) for n in SAMPLES]}
    canaries = {f"{CANARY}config-key": 1, "note": f"{CANARY}config-value"}
    return {"lr": 0.1, "clip": 1.0, "by_key": keys, "by_value": values, "deep": nested, **canaries}


def argv() -> list[str]:
    """A command line with secrets."""
    return [a for n in SAMPLES for a in ("--note", planted(n))] + ["--note", f"{CANARY}argv"]


def windows(secret: str) -> list[str]:
    """Any 12 characters in a row count as a leak; of a PEM block, those of its body."""
    lines = [line for line in secret.split("\n") if not line.startswith("-----")]
    return [line[i : i + 12] for line in lines for i in range(max(1, len(line) - 11))]


_WINDOWS = {w: name for name, secret in SAMPLES.items() for w in windows(secret)}
_LENGTHS = sorted({len(w) for w in _WINDOWS})


def found_in(text: str) -> set[str]:
    """The names of the samples of which a part stands in a text."""
    found = set()
    for n in _LENGTHS:
        present = {text[i : i + n] for i in range(len(text) - n + 1)}
        found |= {_WINDOWS[w] for w in present & _WINDOWS.keys()}
    return found


def texts(folders: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Every file below some folders, and its name, in each form in which a person or a program could read it."""
    for folder in folders:
        for path in [folder] if folder.is_file() else sorted(p for p in folder.rglob("*") if p.is_file()):
            yield path, str(path.relative_to(folder.parent))
            data = path.read_bytes()
            yield path, data.decode("latin-1")
            yield from ((path, form) for form in _decoded(path, data))


def _decoded(path: Path, data: bytes) -> Iterator[str]:
    if path.suffix in (".html", ".md"):
        yield html.unescape(data.decode())
    elif path.suffix == ".wandb":
        from trackers.wandb_ import offline_log

        yield repr(offline_log.read_run(path))
    elif path.suffix == ".db":
        with sqlite3.connect(path) as db:
            yield "\n".join(db.iterdump())
    elif path.suffix in (".parquet", ".arrows"):
        yield repr(_table(path).to_pylist())
    elif path.suffix in (".json", ".jsonl"):
        for line in data.decode().splitlines() if path.suffix == ".jsonl" else [data.decode()]:
            yield repr(json.loads(line)) if line.strip() else ""


def _table(path: Path) -> object:
    import pyarrow.ipc
    import pyarrow.parquet

    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path)
    with pyarrow.ipc.open_stream(path) as stream:
        return stream.read_all()


def leaks(folders: Iterable[Path]) -> dict[str, set[str]]:
    """File -> names of the samples of which a part stands in it."""
    out: dict[str, set[str]] = {}
    for path, text in texts(folders):
        if names := found_in(text):
            out.setdefault(str(path), set()).update(names)
    return out


def variables(base: Mapping[str, str], **more: str) -> dict[str, str]:
    """An environment for a process: the base, what is planted, and more; no launcher's and no tracker's own."""
    own = {k: v for k, v in base.items() if not k.startswith(("WANDB_", "MLFLOW_", "LINEAGE_"))}
    return {**own, **environment(), **more, "PATH": os.environ["PATH"]}
