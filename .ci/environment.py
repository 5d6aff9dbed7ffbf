"""Make a virtual environment for one purpose, or leave it alone where it is up to date.

    python .ci/environment.py FOLDER EXTRAS CONSTRAINTS

Needs the standard library only. Says what it is going to download before it does. A stamp in the folder holds
what was asked for and the digests of the files that decide it; while they are the same, nothing is installed.
"""

from __future__ import annotations

import hashlib
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
CPU_INDEX = "https://download.pytorch.org/whl/cpu"

MEGABYTES = {"base": 55, "torch": 200, "read": 60, "wandb": 25, "mlflow": 130, "dev": 95}
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


def pip(python: Path, *arguments: str, quiet: bool = False) -> bool:
    """Run pip with its progress bar; tell whether it succeeded."""
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", *arguments]
    sink = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, check=False, stdout=sink, stderr=sink).returncode == 0


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
    if pip(python, "--no-index", "--no-deps", wanted, quiet=True):
        say(f"{wanted}: found on this machine")
        return
    if platform.system() == "Linux":
        say(f"{wanted}: the CPU build, about 190 MB, from {CPU_INDEX}")
        cpu = ("--index-url", CPU_INDEX, "--retries", "1", "--timeout", "20")
        if pip(python, "--no-deps", *cpu, wanted):
            return
        say(f"{wanted}: not to be had there. The default index's build for Linux has CUDA: about 3 GB")
    if not pip(python, "-c", str(constraints), wanted):
        raise SystemExit(f"pip could not install {wanted}; its message is above. Run the same command again.")


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
    if not pip(python, "-c", str(constraints), "-e", f"{REPOSITORY}[{extras}]"):
        raise SystemExit(
            "pip failed; its message is above. Nothing else was changed: run the same command again."
        )
    stamp.write_text("\n".join([*done, f"{digest} {extras}"]) + "\n")
    say(f"{folder} is ready after {time.monotonic() - began:.0f} seconds")


if __name__ == "__main__":
    main(*sys.argv[1:])
