"""The tests of a distribution out of its source distribution on the package index."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path


class NotFetched(Exception):
    """The source distribution could not be had; the text says why."""


def fetch(package: str, version: str, folder: Path, patience: float = 120.0) -> Path:
    """Download and unpack one into `folder` by pip, by this environment's index and cache. Raises `NotFetched`."""
    words = [
        sys.executable, "-m", "pip", "download", f"{package}=={version}", "--no-binary", package, "--no-deps",
        "--no-build-isolation", "--quiet", "--retries", "1", "--timeout", "10", "--dest", str(folder),
    ]  # fmt: skip
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=patience)
    except subprocess.TimeoutExpired:
        raise NotFetched(
            f"pip had not downloaded {package} {version} within {patience:.0f} seconds"
        ) from None
    archives = sorted(folder.glob("*.tar.gz"))
    if done.returncode or not archives:
        said = [
            line for line in done.stderr.splitlines() if line.startswith("ERROR:")
        ] or done.stderr.splitlines()
        raise NotFetched(f"pip could not download {package} {version} as source: {' '.join(said[-1:])[:300]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")
    return next(p for p in sorted(folder.iterdir()) if p.is_dir())
