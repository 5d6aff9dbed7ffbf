"""The adapters' contract on one version of a tracker's client after another, each in an environment of its own.

    python -m tests.matrix                          # the oldest, some between, and the newest of each
    python -m tests.matrix --tracker wandb 0.25.1   # one
    python -m tests.matrix --write                  # and keep the table in docs/versions.md

An environment holds the client with what it asks for, what runlineage asks for, and pytest; the sources under test
are those of this checkout. A version that is installed here is run here. Environments stay in `--folder`, so that a
second run installs nothing. Ends with exit code 1 where a version inside the supported range fails.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
import venv
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trackers.versions import beyond, installed

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs" / "versions.md"
BEGIN, END = "<!-- matrix:begin -->", "<!-- matrix:end -->"

VERSIONS = {
    "wandb": ("0.18.7", "0.19.11", "0.22.3", "0.24.2", "0.28.2", "0.31.0"),
    "mlflow": ("2.22.5", "3.0.1", "3.2.0", "3.9.0", "3.17.2"),
}
"""Below the floor too: how far down the contract holds is worth knowing, and is no promise."""

COMPANIONS = {"mlflow": ((3, 10), "sqlalchemy<2.1")}
"""Client -> versions before this need that beside them, which their own metadata does not say."""

HANGING = 3600
"""Seconds after which a version's tests are ended."""

TOOLS = ("pytest", "pytest-timeout")


@dataclass(frozen=True)
class Outcome:
    """What one version did."""

    tracker: str
    version: str
    said: str
    """in words, for the table"""
    works: bool
    tried: bool = True
    """False where the version could not be installed: that says nothing about the adapter"""

    @property
    def inside(self) -> bool:
        """Whether the version is in the range that is supported."""
        return beyond(self.tracker, self.version) is None


def environment(tracker: str, version: str, folder: Path) -> tuple[Path, str]:
    """Make an environment with a client; returns its Python, and pip's last words where it failed."""
    home = folder / f"{tracker}-{version}"
    python, done = home / "bin" / "python", home / "done"
    if done.exists():
        return python, ""
    venv.create(home, with_pip=True)
    asked = [f"{tracker}=={version}", *_project()["dependencies"], *TOOLS]
    before, companion = COMPANIONS.get(tracker, ((0,), ""))
    if companion and _parts(version)[:2] < before:
        asked.append(companion)
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-q", *asked]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return python, (made.stderr.strip().splitlines() or ["pip failed without a word"])[-1]
    done.touch()
    return python, ""


def here(tracker: str, version: str) -> bool:
    """Whether this environment has that version: then none is made for it."""
    return installed(tracker) == version


def run(tracker: str, version: str, folder: Path) -> Outcome:
    """Run the contract on one version."""
    python, failed = (
        (Path(sys.executable), "") if here(tracker, version) else environment(tracker, version, folder)
    )
    if failed:
        return Outcome(tracker, version, f"not installable: {failed}", works=False, tried=False)
    command = [str(python), "-m", "pytest", f"tests/contract/test_{tracker}.py"]
    command += ["-p", "no:cacheprovider", "--show-capture=no", "--tb=line", "-rf", "-o", "addopts="]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("WANDB", "MLFLOW", "LINEAGE", "PYTHON"))}
    try:
        done = subprocess.run(
            command, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False, timeout=HANGING
        )
    except subprocess.TimeoutExpired:
        return Outcome(tracker, version, f"hangs: no end after {HANGING / 60:.0f} minutes", works=False)
    (folder / f"{tracker}-{version}.log").write_text(done.stdout + done.stderr)
    return Outcome(tracker, version, told(done.stdout, done.returncode), works=done.returncode == 0)


def told(output: str, code: int) -> str:
    """What pytest printed, in the words of the table."""
    counts = re.findall(r"(\d+) (passed|failed|errors?|skipped)\b", (output.strip().splitlines() or [""])[-1])
    words = ", ".join(f"{n} {what}" for n, what in counts) or f"pytest ended with exit code {code}"
    names = re.findall(r"^FAILED \S+::(\w+)", output, re.M)
    failing = [n.removeprefix("test_").replace("_", " ") for n in names]
    more = [f"and {len(failing) - 3} more"] if len(failing) > 3 else []
    return words + (": " + ", ".join([*failing[:3], *more]) if failing else "")


def table(outcomes: list[Outcome], page: str = "") -> str:
    """The outcomes as Markdown, beside what the page says of versions that were not run now."""
    rows = {key: row for row in page.partition(BEGIN)[2].splitlines() if (key := _key(row))}
    python = ".".join(map(str, sys.version_info[:2]))
    for o in outcomes:
        inside, day = "yes" if o.inside else "no", f"{datetime.now(UTC):%Y-%m-%d}"
        rows[o.tracker, *_parts(o.version)] = (
            f"| {o.tracker} | {o.version} | {inside} | {o.said} | {day}, Python {python} |"
        )
    head = ["| client | version | supported | contract | run on |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *(rows[key] for key in sorted(rows, reverse=True))])


def _key(row: str) -> tuple[str | int, ...]:
    found = re.match(r"\| (\w+) \| ([\d.]+) \|", row)
    return (found[1], *_parts(found[2])) if found else ()


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(p) for p in version.split("."))


def with_table(page: str, made: str) -> str:
    """The page with another table between its marks. Raises `ValueError` where it has none."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no place for the table: {BEGIN} ... {END}")
    return f"{head}{BEGIN}\n{made}\n{END}{tail}"


def _project() -> dict[str, list[str]]:
    found: dict[str, list[str]] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for, print each outcome as it is known."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__.partition("\n")[0])
    parser.add_argument("versions", nargs="*", help="versions of --tracker; all that are listed without it")
    parser.add_argument("--tracker", choices=sorted(VERSIONS), help="only this one")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/lineage-matrix"), help="for environments")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    asked = parser.parse_args(arguments)
    if asked.versions and not asked.tracker:
        parser.error("say with --tracker of which client these versions are")
    asked.folder.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for tracker in [asked.tracker] if asked.tracker else sorted(VERSIONS, reverse=True):
        for version in asked.versions or VERSIONS[tracker]:
            outcomes.append(run(tracker, version, asked.folder))
            print(f"{tracker} {version}: {outcomes[-1].said}", flush=True)
            if asked.write:
                PAGE.write_text(with_table(page := PAGE.read_text(), table(outcomes, page)))
    return int(any(o.inside and o.tried and not o.works for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
