"""Make a virtual environment for one purpose, or leave it alone where it is up to date.

    python .ci/environment.py FOLDER EXTRAS CONSTRAINTS

Needs the standard library only. Says what it is going to download before it does, and shows how far pip is: one
line on a terminal, a line now and then elsewhere, pip's own words only where it fails. A stamp in the folder holds
what was asked for and the digests of the files that decide it; while they are the same, nothing is installed.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
CPU_INDEX = "https://download.pytorch.org/whl/cpu"

MEGABYTES = {"base": 55, "torch": 200, "read": 60, "wandb": 25, "mlflow": 130, "docs": 25, "dev": 150}
"""About what each part adds to the download, on Linux with Python 3.11; torch as its CPU build."""


def digest_of(constraints: Path) -> str:
    """The digest of all files that decide what is installed, and of the Python version."""
    sha = hashlib.sha256(f"{sys.version_info[:2]}\n".encode())
    for path in (REPOSITORY / "pyproject.toml", constraints, Path(__file__)):
        sha.update(path.read_bytes())
    return sha.hexdigest()


def say(text: str) -> None:
    """Print one line at once, before what it announces begins."""
    print(f"== {text}", flush=True)


UNITS = {"bytes": 1e-6, "kB": 1e-3, "MB": 1.0, "GB": 1e3}
EVERY = 15.0
"""Seconds between two lines of progress where there is no terminal."""


class Progress:
    """What pip is doing, read from the lines that it prints."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.packages: set[str] = set()
        self.megabytes = 0.0
        self.doing = "looking for packages"
        self.said: deque[str] = deque(maxlen=40)
        """pip's last lines, for when it fails"""
        self._next = self.began + EVERY

    def read(self, lines: Iterable[str]) -> None:
        """Read all lines until pip ends."""
        for line in lines:
            self.take(line.rstrip())

    def take(self, line: str) -> None:
        """Read one line of pip's."""
        self.said.append(line)
        if found := re.match(r"(?:Collecting|Processing) (\S+)", line):
            self.packages.add(found[1].lower())
        elif found := re.match(r"\s*Downloading (\S+) \(([\d.]+) (\w+)\)", line):
            name = found[1].rpartition("/")[2]
            if not name.endswith(".metadata"):
                self.megabytes += float(found[2]) * UNITS.get(found[3], 0.0)
                self.doing = f"downloading {'-'.join(name.split('-')[:2])} ({found[2]} {found[3]})"
        elif line.startswith("Installing collected packages: "):
            count = line.count(",") + 1
            self.doing = f"installing {count} package{'s' if count > 1 else ''}"

    def text(self) -> str:
        """How far it is, in one line."""
        seconds = time.monotonic() - self.began
        return (
            f"   {seconds:.0f} s: {len(self.packages)} packages, {self.megabytes:.0f} MB so far; {self.doing}"
        )

    def show(self, last: bool = False) -> None:
        """Show it: over the line before on a terminal; elsewhere on a new line, when it is time for one."""
        if sys.stdout.isatty():
            width = shutil.get_terminal_size().columns - 1
            print("\r\x1b[K" + ("" if last else self.text()[:width]), end="", flush=True)
        elif not last and time.monotonic() > self._next:
            self._next += EVERY
            print(self.text(), flush=True)


def pip(python: Path, *arguments: str, environment: dict[str, str] | None = None) -> Progress | None:
    """Run `pip install` and show how far it is. Returns None where it succeeded, else what it was doing."""
    options = ("--disable-pip-version-check", "--no-color", "--progress-bar", "off")
    command = [str(python), "-m", "pip", "install", *options, *arguments]
    progress = Progress()
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(environment or {})},
    ) as started:
        reader = threading.Thread(target=progress.read, args=(started.stdout,), daemon=True)
        reader.start()
        while reader.is_alive():
            reader.join(0.3)
            progress.show()
        progress.show(last=True)
    return None if started.returncode == 0 else progress


def fail(progress: Progress, what: str) -> SystemExit:
    """Print what pip said last, and make the exit that says what to do."""
    print("\n".join(progress.said), flush=True)
    return SystemExit(f"{what} Pip's last lines are above. Run the same command again to go on from here.")


def pinned(constraints: Path, name: str) -> str:
    """The pinned requirement of a package, such as `torch==2.13.0`."""
    found = re.search(rf"^{name}==\S+", constraints.read_text(), re.M)
    if found is None:
        raise SystemExit(f"{constraints.name} pins no {name}; add a line such as {name}==1.0")
    return found.group(0)


def install_torch(python: Path, constraints: Path) -> None:
    """Install torch as a CPU build where there is one: the default build for Linux brings gigabytes of CUDA.

    First from what pip finds on this machine, then from PyTorch's index of CPU builds, then from the default
    index.
    """
    wanted = pinned(constraints, "torch")
    have = subprocess.run(
        [str(python), "-c", "import importlib.metadata as m; print(m.version('torch'))"],
        capture_output=True,
        text=True,
        check=False,
    )
    if have.stdout.strip().partition("+")[0] == wanted.partition("==")[2]:
        return
    # Its dependencies come with the rest, so a wheel in a local folder is enough here.
    if pip(python, "--no-index", "--no-deps", wanted) is None:
        say(f"{wanted}: found on this machine")
        return
    if platform.system() == "Linux":
        say(f"{wanted}: the CPU build, about 190 MB, from {CPU_INDEX}")
        cpu = ("--index-url", CPU_INDEX, "--retries", "1", "--timeout", "20")
        if pip(python, "--no-deps", *cpu, wanted) is None:
            return
        say(f"{wanted}: not to be had there. The default index's build for Linux has CUDA: about 3 GB")
    if failed := pip(python, "-c", str(constraints), wanted):
        raise fail(failed, f"pip could not install {wanted}.")


def install_deepspeed(python: Path, constraints: Path) -> None:
    """Install DeepSpeed without its compiled kernels; where it cannot be built, its tests are skipped.

    Its setup imports torch, so it is built beside the one that is there.
    """
    wanted = re.search(r"^deepspeed==\S+", constraints.read_text(), re.M)
    if wanted is None:
        return
    build = pip(python, "-c", str(constraints), "setuptools", "wheel")
    built = ("--no-build-isolation", "-c", str(constraints), wanted.group(0))
    if build or pip(python, *built, environment={"DS_BUILD_OPS": "0"}):
        say(f"{wanted.group(0)} cannot be built here: its tests will be skipped")


def main(folder: str, extras: str, constraints_name: str) -> None:
    """Bring the environment up to date."""
    env, constraints = REPOSITORY / folder, REPOSITORY / constraints_name
    stamp, python = env / ".lineage-stamp", env / "bin" / "python"
    digest = digest_of(constraints)
    lines = stamp.read_text().splitlines() if stamp.exists() and python.exists() else []
    done = [line for line in lines if line.startswith(digest)]  # one line per set of extras
    if f"{digest} {extras}" in done or f"{digest} dev" in done:
        return
    parts = {"base", "torch", *extras.split(",")} | (
        {"read", "wandb", "mlflow"} if "dev" in extras else set()
    )
    size = sum(MEGABYTES[p] for p in parts)
    say(f"setting up {folder} with {platform.python_implementation()} {platform.python_version()}")
    say(f"parts: {', '.join(sorted(parts))}. pip downloads about {size} MB, less what it has cached")
    began = time.monotonic()
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(env)], check=True)
    install_torch(python, constraints)
    if failed := pip(python, "-c", str(constraints), "-e", f"{REPOSITORY}[{extras}]"):
        raise fail(failed, f"pip could not install what {folder} needs.")
    if "dev" in extras.split(","):
        install_deepspeed(python, constraints)
    stamp.write_text("\n".join([*done, f"{digest} {extras}"]) + "\n")
    say(f"{folder} is ready after {time.monotonic() - began:.0f} seconds")


if __name__ == "__main__":
    main(*sys.argv[1:])
