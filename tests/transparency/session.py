"""One pytest session over a suite, in a process, a copy and a home of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from .compare import Observed, Session
from .suites import Suite

PLUGIN = Path(__file__).parent / "plugin"
WITHOUT = "without"
WAYS = {
    WITHOUT: "without the observer",
    "plugin": "with `-p lineage.observe.pytest_plugin`",
    "run": "under `lineage run`",
}
"""How a suite can be run"""
LIMIT = 3600.0
"""Seconds after which a session is ended: against hanging only"""
_DROPPED = ("LINEAGE_", "WANDB_", "MLFLOW_", "PYTEST_", "TRANSPARENCY_", "PYTHON", "COV_")
"""Beginnings of variables that would make a session depend on whoever starts it"""


def run(
    suite: Suite, checkout: Path, way: str, python: str, tests: Sequence[str] = (), limit: float = LIMIT
) -> Session:
    """Run the suite's selection, or some of its `tests`, in one of the `WAYS`; say what each test came to."""
    with tempfile.TemporaryDirectory(prefix="lt-", ignore_cleanup_errors=True) as made:
        scratch = Path(made)
        where = _copy(suite, checkout, scratch / "suite")
        outcomes, printed = scratch / "outcomes.jsonl", scratch / "printed.txt"
        words = [*_before(way, scratch, python), *_pytest(suite, python, way, tests or suite.select)]
        with printed.open("wb") as out:
            process = subprocess.Popen(
                words, cwd=where, env=environment(suite, scratch, outcomes), stdout=out, stderr=out,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            with _ended(process), contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(limit)
        found = read(outcomes)
        found.output = printed.read_text(errors="replace")[-8000:]
        return found


def _copy(suite: Suite, checkout: Path, to: Path) -> Path:
    """Copy what the suite needs, so that no session finds what another one left; the folder where pytest starts."""
    for name in suite.take:
        source, target = checkout / name, to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".git"))
        elif source.exists():
            shutil.copy2(source, target)
    where = to / suite.folder
    where.mkdir(parents=True, exist_ok=True)
    return where


def _before(way: str, scratch: Path, python: str) -> list[str]:
    if way != "run":
        return []
    code = "from lineage.cli import main; main()"
    return [python, "-P", "-c", code, "run", "--ledger", str(scratch / "runs"), "--"]


def _pytest(suite: Suite, python: str, way: str, tests: Sequence[str]) -> list[str]:
    """Same order, no cache, no second try of what failed, no limit of a few seconds on a busy machine.

    Test ids are relative to the folder where pytest starts, so that a test's file can be named to it again.
    """
    off = [
        word
        for name in ("cacheprovider", "randomly", "random_order", "rerunfailures", "xdist")
        for word in ("-p", f"no:{name}")
    ]
    ours = ["-p", "lineage.observe.pytest_plugin"] if way == "plugin" else []
    return [
        python, "-m", "pytest", "-p", "lineage_outcomes", *ours, *off, "-o", "addopts=", "-o", "timeout=600",
        "--rootdir=.", "-q", "--color=no", "--tb=short", *suite.arguments, *tests,
    ]  # fmt: skip


def environment(suite: Suite, scratch: Path, outcomes: Path) -> dict[str, str]:
    """The variables of a session: a home and a temporary folder of its own, the same seed of hashes in all."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_DROPPED)}
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        kept.pop(name, None)
    home, temporary = scratch / "home", scratch / "t"
    for folder in (home, temporary):
        folder.mkdir(exist_ok=True)
    own = {
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(PLUGIN),
        "TRANSPARENCY_OUTCOMES": str(outcomes),
        "WANDB_ERROR_REPORTING": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "HF_HUB_OFFLINE": "1",
    }
    return {"OMP_NUM_THREADS": "1", **kept, **own, **suite.env}


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """The session's own process group ends with it, whatever it left running."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def read(outcomes: Path) -> Session:
    """What the plugin wrote. A last line that was cut off ends the reading."""
    found = Session()
    if not outcomes.exists():
        return found
    for text in outcomes.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            break
        if "test" in line:
            found.outcomes[line["test"]] = line["outcome"]
            if line["why"]:
                found.why[line["test"]] = line["why"]
        else:
            found.exit = line["exit"]
            found.observed = Observed(**line["observed"]) if line.get("observed") else None
    return found
