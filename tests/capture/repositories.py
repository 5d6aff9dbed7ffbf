"""Real git repositories and a blob store, for the tests of code capture."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path


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


class Blobs(dict[str, bytes]):
    """A blob store in memory."""

    def put(self, data: bytes) -> str:
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        self[digest] = data
        return digest

    def holds(self, secret: str) -> bool:
        lines = [line.encode() for line in secret.split("\n") if not line.startswith("-----")]
        return any(line in data for line in lines for data in self.values())
