"""Fetch the source of the frameworks whose keys the catalogue has, and compare the keys with it.

    python .ci/frameworks.py

Packages come through pip without their dependencies and are only unpacked, never installed or imported; what has no
package comes as single files of one commit from GitHub. All of it goes to `.frameworks/`, which is kept; what cannot
be fetched is said, and its tests are skipped.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import tomllib
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER = REPOSITORY / ".frameworks"
SOURCES = REPOSITORY / "tests" / "frameworks" / "sources.toml"


def say(text: str) -> None:
    """Print one line at once."""
    print(f"== {text}", flush=True)


def package(spec: str) -> None:
    """Download one distribution and unpack it, wheel or source."""
    target = FOLDER / spec.replace("==", "-")
    if target.is_dir():
        return
    say(f"{spec}: downloading")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", folder, spec]
        if subprocess.run([*command, "--disable-pip-version-check"], check=False).returncode != 0:
            say(f"{spec}: not to be had here; its tests are skipped")
            return
        file = next(Path(folder).iterdir())
        part = target.with_name(f"{target.name}.part")
        if file.suffix == ".whl":
            with zipfile.ZipFile(file) as z:
                z.extractall(part)
        else:
            with tarfile.open(file) as t:
                t.extractall(part, filter="data")
        part.rename(target)


def commit(repository: str, revision: str, files: list[str]) -> None:
    """Download single files of one commit."""
    target = FOLDER / f"{repository.replace('/', '-')}-{revision[:7]}"
    if target.is_dir():
        return
    say(f"{repository} at {revision[:7]}: downloading {len(files)} files")
    part = target.with_name(f"{target.name}.part")
    for file in files:
        url = f"https://raw.githubusercontent.com/{repository}/{revision}/{file}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                data = answer.read()
        except (urllib.error.URLError, TimeoutError) as e:
            say(f"{url}: {e}; its tests are skipped")
            return
        (part / file).parent.mkdir(parents=True, exist_ok=True)
        (part / file).write_bytes(data)
    part.rename(target)


def main() -> int:
    """Fetch everything that is not there, then run the tests."""
    FOLDER.mkdir(exist_ok=True)
    for source in tomllib.loads(SOURCES.read_text(encoding="utf-8"))["source"]:
        if "package" in source:
            package(source["package"])
            if "beside" in source:
                package(source["beside"])
        else:
            commit(source["repository"], source["commit"], source["files"])
    tests = [sys.executable, "-m", "pytest", "tests/frameworks", "-rs", "-p", "no:cacheprovider"]
    return subprocess.run(tests, check=False, cwd=REPOSITORY).returncode


if __name__ == "__main__":
    sys.exit(main())
