"""`python -m benchmarks [name ...]`: run experiments, print a table of each, keep the results in a file.

Each experiment runs in a process of its own, so that no tracker, thread or cache of one is in the way of
another; what the trackers print goes to a log that is shown when something fails.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import machine, probes
from .table import Table

EXPERIMENTS = {
    "blocking": "how long the training thread is held up, with the tracker healthy, slow and dead",
    "journal": "appends per second, with and without fsync",
    "attach": "start-up, imports included",
    "step": "what a training step costs with the layer",
    "digest": "how fast tensors are digested",
    "files": "how fast a checkpoint's files are digested, beside SHA-256 and MD5",
    "agreement": "what it costs to digest the state so that replicas can be compared",
    "async_save": "how long an asynchronous save holds training up, with its digests and without",
    "batches": "what the fingerprint of a batch costs, beside hashes of its bytes",
    "probes": "what probes add to a step of a GPT of 30 M parameters, beside other ways of watching",
    "hardware": "what watching a node's GPUs and kernel log costs",
    "observe": "what the observer adds to a log call, and to the start of a process",
    "config": "how long two configs take to compare",
    "detectors": "false alarms and detections on real training curves, beside the rules of other tools",
    "spikes": "which rule sees the known spikes of public runs, and from which step on",
    "layers": "layers judged as a family, and ranks against each other",
}
SMOKE: dict[str, dict[str, Any]] = {
    "blocking": {"rounds": 1, "steps": 2, "states": ("healthy", "dead"), "retries": 1, "exit_timeout": 1.0},
    "journal": {"rounds": 1, "appends": 3},
    "attach": {"rounds": 1, "imports": 1},
    "step": {"plan": None},  # set where torch may be imported
    "digest": {"rounds": 1, "megabytes": 1},
    "files": {"rounds": 1, "megabytes": 2},
    "agreement": {"size": None, "rounds": 1},  # set where torch may be imported
    "async_save": {"size": None, "rounds": 1},  # set where torch may be imported
    "batches": {"rounds": 1, "calls": 1, "rows": 2, "length": 16},
    "probes": {"size": None, "rounds": 1},  # set where torch may be imported
    "hardware": {"rounds": 2, "steps": 1, "turns": 1, "size": None},  # set where torch may be imported
    "observe": {"rounds": 1, "calls": 3, "starts": 1},
    "config": {"rounds": 1, "sizes": (100,)},
    "detectors": {"trials": 1, "only": ("lineage", "ZClip")},
    "spikes": {},
    "layers": {"trials": 4, "sizes": (8,), "steps": 120, "recorded": 120},
}
"""Sizes at which an experiment shows that it works, and nothing about speed."""
MODULES = {"probes": "reading"}
"""Experiment -> the module that runs it, where that has another name."""
RESULTS = Path(__file__).resolve().parent / "results"
PATIENCE = 900.0
"""Seconds after which an experiment is given up."""


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; returns 0, or 1 where an experiment failed. A missed target is no failure."""
    p = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n\n")[0])
    named = "; ".join(f"{name}: {text}" for name, text in EXPERIMENTS.items())
    p.add_argument("names", nargs="*", metavar="name", help=f"{named}. All of them by default")
    p.add_argument("--out", type=Path, default=RESULTS, help="folder of the result files")
    p.add_argument(
        "--smoke", action="store_true", help="the smallest sizes: shows that it runs, not how fast"
    )
    p.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = p.parse_args(arguments)
    if unknown := set(args.names) - EXPERIMENTS.keys():
        p.error(f"no experiment is called {', '.join(sorted(unknown))}; there are {', '.join(EXPERIMENTS)}")
    if args.child:
        _child(args.names[0], args.child, smoke=args.smoke)
    return _all(args.names or list(EXPERIMENTS), args.out, smoke=args.smoke)


def _child(name: str, target: Path, *, smoke: bool) -> None:
    """Run one experiment in this process and leave its table in a file."""
    sizes = SMOKE[name] if smoke else {}
    if smoke and name == "step":
        from .training import TINY

        sizes = {"plan": {TINY: (1, 2)}}
    if smoke and name in ("probes", "agreement", "async_save", "hardware"):
        from .training import TINY

        sizes["size"] = TINY
    table: Table = importlib.import_module(f".{MODULES.get(name, name)}", __package__).run(**sizes)
    target.write_text(json.dumps(table.plain()), encoding="utf-8")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # at exit, MLflow would wait minutes for servers that are gone


def _experiment(name: str, *, smoke: bool) -> Table:
    """Run one experiment in a process of its own. Raises `RuntimeError` with the end of its log."""
    with tempfile.TemporaryDirectory() as scratch:
        target, log = Path(scratch) / "table.json", Path(scratch) / "log"
        command = [sys.executable, "-m", __package__ or "benchmarks", name, "--child", str(target)]
        with log.open("wb") as out:
            child = subprocess.Popen(
                command + ["--smoke"] * smoke,
                stdout=out,
                stderr=out,
                env=probes.environment(),
                cwd=RESULTS.parent.parent,
            )
            try:
                code: int | str = child.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                code = f"no end after {PATIENCE:g} s"
        if code != 0 or not target.is_file():
            raise RuntimeError(
                f"{name} failed ({code}):\n{log.read_text(encoding='utf-8', errors='replace')[-4000:]}"
            )
        return Table.read(json.loads(target.read_text(encoding="utf-8")))


def _all(names: list[str], out: Path, *, smoke: bool) -> int:
    described = machine.describe()
    head = "# Benchmarks" + (" (smoke: sizes too small to mean anything)" if smoke else "")
    print(f"{head}\n\n{machine.lines(described)}", flush=True)
    tables: list[Table] = []
    failed = False
    began = time.monotonic()
    for name in names:
        print(f"\n... {name}: {EXPERIMENTS[name]}", file=sys.stderr, flush=True)
        try:
            table = _experiment(name, smoke=smoke)
        except RuntimeError as e:
            failed = True
            print(e, file=sys.stderr, flush=True)
            continue
        tables.append(table)
        print(f"\n{table.markdown()}", flush=True)
    described["duration"] = f"{time.monotonic() - began:.0f} s"
    described["load after"] = ", ".join(f"{v:.2f}" for v in os.getloadavg())
    if tables:
        for path in _keep(out, head, described, tables):
            print(f"\nwritten: {path}")
    targets = [t for table in tables for t in table.targets]
    missed = sum(not t.met for t in targets)
    print(
        f"\n{len(targets) - missed} of {len(targets)} targets met" + (f", {missed} MISSED" if missed else "")
    )
    return int(failed)


def _keep(out: Path, head: str, described: dict[str, str], tables: list[Table]) -> list[Path]:
    """Write the results as JSON (seconds, unrounded) and as Markdown."""
    out.mkdir(parents=True, exist_ok=True)
    stamp = "".join(c for c in described["time"] if c.isdigit())
    stem = (
        out
        / f"{stamp[:8]}-{stamp[8:14]}-{'all' if len(tables) == len(EXPERIMENTS) else '-'.join(t.name for t in tables)}"
    )
    as_json, as_text = stem.with_suffix(".json"), stem.with_suffix(".md")
    data = {"machine": described, "experiments": [t.plain() for t in tables]}
    as_json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    parts = [f"{head}\n\n{machine.lines(described)}", *(t.markdown() for t in tables)]
    as_text.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return [as_json, as_text]


if __name__ == "__main__":
    raise SystemExit(main())
