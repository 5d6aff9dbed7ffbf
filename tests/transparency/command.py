"""Run a suite without the observer and under it, compare test by test, print it, and keep it in a page.

    python -m tests.transparency wandb --suite ~/src/wandb
    python -m tests.transparency lightning --suite ~/src/pytorch-lightning --python ~/venv/bin/python

Exit codes: 0 the same outcomes; 1 a test differs, or something failed within the observer; 2 nothing could be shown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import compare, page, session
from .compare import Difference, Session
from .session import WAYS, WITHOUT
from .suites import SUITES, Suite

SAME, DIFFERENT, NOT_SHOWN = 0, 1, 2


class NotShown(Exception):
    """Nothing can be shown, for a reason that says what to do."""


@dataclass
class Shown:
    """What a comparison came to."""

    suite: Suite
    version: str
    """the distribution that is installed"""
    commit: str
    """the commit or version of the checkout"""
    versions: dict[str, str]
    rounds: dict[str, list[Session]] = field(default_factory=dict)
    """way -> its sessions, the first one over the whole selection"""
    differ: dict[str, list[Difference]] = field(default_factory=dict)
    """way under the observer -> the tests that differ"""

    @property
    def faults(self) -> list[str]:
        """What speaks against the observer, one line each."""
        out = []
        for way, found in self.differ.items():
            name = WAYS[way]
            out += [f"{d.test} differs {name}" for d in found if not d.flaky]
            first, watched = self.rounds[WITHOUT][0], self.rounds[way][0]
            if compare.order_differs(first, watched):
                out.append(f"the tests ran in another order {name}")
            if first.exit is not None and watched.exit is None:
                out.append(f"the session ended without an exit status {name}")
            seen = watched.observed
            if seen is not None and seen.failures:
                out.append(f"the observer failed on {seen.failures} calls {name}: {seen.first_failure}")
        return out


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line asks for; the exit code."""
    args = _parser().parse_args(arguments)
    suite = SUITES[args.name]
    if args.select:
        suite = replace(suite, select=args.select, arguments=())
    try:
        shown = show(
            suite,
            args.suite,
            python=args.python or sys.executable,
            ways=args.observer or [w for w in WAYS if w != WITHOUT],
            rounds=args.rounds,
            commit=args.commit,
        )
    except NotShown as e:
        print(f"transparency: nothing is shown: {e}", file=sys.stderr)
        return NOT_SHOWN
    print(page.text(shown))
    if args.page is not None:
        page.keep(args.page, shown)
    return DIFFERENT if shown.faults else SAME


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m tests.transparency", description=(__doc__ or "").partition("\n")[0]
    )
    p.add_argument("name", choices=sorted(SUITES), help="whose tests")
    p.add_argument(
        "--suite",
        type=Path,
        required=True,
        help="a checkout, or an unpacked source distribution, with its tests",
    )
    p.add_argument(
        "--python", help="the interpreter; it has what the tests need, and runlineage. By default this one"
    )
    p.add_argument("--select", nargs="+", help="other test files than those of the suite's own choice")
    p.add_argument(
        "--observer",
        action="append",
        choices=[w for w in WAYS if w != WITHOUT],
        help="one way alone; by default both",
    )
    p.add_argument(
        "--rounds", type=int, default=3, help="sessions of each kind at most, where a test differs"
    )
    p.add_argument("--commit", help="what the checkout is, where neither git nor PKG-INFO there says it")
    p.add_argument(
        "--page", type=Path, help="Markdown page in which the result is kept, in place of an older one"
    )
    return p


def show(
    suite: Suite,
    checkout: Path,
    *,
    python: str = sys.executable,
    ways: Sequence[str] = ("plugin", "run"),
    rounds: int = 3,
    commit: str | None = None,
) -> Shown:
    """Run the suite without the observer and in each of the `ways`, and compare. Raises `NotShown`.

    Where tests differ, their files are run again, up to `rounds` sessions of each kind, to tell those that vary anyway.
    """
    missing = [s for s in suite.select if not (checkout / suite.folder / s.partition("::")[0]).exists()]
    if missing:
        raise NotShown(f"{checkout} has no {', '.join(missing[:3])}; --select names other tests")
    versions = _versions(python, ["runlineage", suite.package, *suite.also, "pytest"])
    for needed in ("runlineage", "pytest", suite.package):
        if needed not in versions:
            raise NotShown(f"{python} has no {needed}; install it there, or name another with --python")
    shown = Shown(suite, versions[suite.package], commit or _commit(checkout), versions)
    first = _run(suite, checkout, WITHOUT, python)
    if not first.outcomes:
        raise NotShown(f"no test ran; pytest said:\n{first.output[-2000:]}")
    shown.rounds[WITHOUT] = [first]
    for way in ways:
        watched = _run(suite, checkout, way, python)
        if watched.observed is None and watched.exit is not None:
            raise NotShown(f"no observer was there {WAYS[way]}; pytest said:\n{watched.output[-2000:]}")
        if watched.observed is not None and not watched.observed.calls:
            raise NotShown(f"the observer saw no call {WAYS[way]}: these tests show nothing about it")
        shown.rounds[way] = [watched]
    again = {w: compare.differing(first, shown.rounds[w][0]) for w in ways}
    _again(shown, checkout, python, {w: tests for w, tests in again.items() if tests}, rounds)
    for way in ways:
        shown.differ[way] = compare.differences(shown.rounds[WITHOUT], shown.rounds[way])
    return shown


def _again(shown: Shown, checkout: Path, python: str, differing: dict[str, list[str]], rounds: int) -> None:
    """Run the files of the tests that differ again, as whole files: a test may need its company to differ."""
    if not differing:
        return
    order = dict.fromkeys(t.partition("::")[0] for t in shown.rounds[WITHOUT][0].outcomes)
    wanted = {t.partition("::")[0] for tests in differing.values() for t in tests}
    files = [f for f in order if f in wanted] or list(shown.suite.select)
    for _ in range(rounds - 1):
        for way in (WITHOUT, *differing):
            shown.rounds[way].append(_run(shown.suite, checkout, way, python, files))


def _run(suite: Suite, checkout: Path, way: str, python: str, tests: Sequence[str] = ()) -> Session:
    print(f"transparency: {suite.name} {WAYS[way]} ...", file=sys.stderr, flush=True)
    found = session.run(suite, checkout, way, python, tests)
    print(f"transparency: {dict(found.counts())}", file=sys.stderr, flush=True)
    return found


def _versions(python: str, names: Sequence[str]) -> dict[str, str]:
    """The versions of distributions in an interpreter's environment; what is not there is left out."""
    code = (
        "import importlib.metadata as m, json, sys\n"
        "out = {'python': sys.version.split()[0]}\n"
        "for n in sys.argv[1:]:\n"
        "    try: out[n] = m.version(n)\n"
        "    except m.PackageNotFoundError: pass\n"
        "print(json.dumps(out))"
    )
    try:
        done = subprocess.run(
            [python, "-c", code, *names], capture_output=True, text=True, check=True, timeout=300
        )
    except (OSError, subprocess.SubprocessError) as e:
        raise NotShown(f"{python} cannot be asked what is installed there ({e})") from None
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _commit(checkout: Path) -> str:
    """What a checkout is: its commit, else the version in a source distribution's PKG-INFO."""
    if (checkout / ".git").exists():
        done = subprocess.run(
            ["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return done.stdout.strip()
    info = checkout / "PKG-INFO"
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("Version: "):
                return f"source distribution {line.removeprefix('Version: ')}"
    raise NotShown(f"which commit {checkout} is cannot be told; say it with --commit")
