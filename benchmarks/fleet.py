"""`python -m benchmarks.fleet`: `lineage first-bad` on ledgers as a fleet writes them, from small ones to a big one.

Says what disk it needs before it writes, removes what it wrote, and leaves a table and a plot in benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lineage.fleet import engine, files

from . import machine
from .__main__ import RESULTS, _keep
from .fleet_ledger import Faults, NoRoom, Size, draw, need, write
from .table import Column, Table, Target

FULL = Size(4096, 2000, 96)
SEED = 20261130
BY_RANKS = tuple(Size(r, 500, 96) for r in (32, 64, 128, 256))
BY_STEPS = tuple(Size(32, s, 96) for s in (500, 1000, 2000, 4000))
COLUMNS = (
    Column("ranks", "ranks", "count"),
    Column("steps", "steps", "count"),
    Column("layers", "layers", "count"),
    Column("cells", "cells", "count"),
    Column("mebibytes", "MiB", "count"),
    Column("write", "write", "seconds"),
    Column("read", "read the bytes", "seconds"),
    Column("first_bad", "first-bad", "seconds"),
    Column("ratio", "ratio", "ratio"),
    Column("cpu", "its CPU time", "seconds"),
    Column("memory", "peak GiB", "number"),
    Column("load", "load after", "number"),
    Column("found", "found"),
)


def measure(ledger: Path, size: Size, faults: Faults) -> dict[str, Any]:
    """Time the reading of a ledger's bytes, and `lineage first-bad` on it, each with the page cache dropped before."""
    paths = [p for p in ledger.rglob("*") if p.is_file()]
    _forget(paths)
    began = time.perf_counter()
    n = sum(_read(p) for p in paths)
    read = time.perf_counter() - began
    _forget(paths)
    answer, took, used = first_bad(ledger)
    return {
        "ranks": size.ranks,
        "steps": size.steps,
        "layers": size.layers,
        "cells": size.cells,
        "mebibytes": n >> 20,
        "read": read,
        "first_bad": took,
        "ratio": took / read,
        "cpu": used.ru_utime + used.ru_stime,
        "memory": used.ru_maxrss / 2**20,
        "load": os.getloadavg()[0],
        "found": "all" if not (missed := missing(answer, faults, size)) else "MISSED: " + ", ".join(missed),
    }


def first_bad(ledger: Path) -> tuple[dict[str, Any], float, Any]:
    """The answer of the command line, its seconds from start to end, and what its process used."""
    code = (
        "import sys; from lineage.cli import main; sys.argv[:1] = ['lineage', 'first-bad', '--json']; main()"
    )
    with tempfile.TemporaryFile() as out:
        began = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(ledger)], stdout=out, cwd=RESULTS.parent.parent
        )
        _, status, used = os.wait4(child.pid, 0)
        took = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode()
    if child.returncode != 1:
        raise RuntimeError(f"lineage first-bad {ledger} ended with {child.returncode}: {text[-2000:]}")
    found: dict[str, Any] = json.loads(text)
    return found, took, used


def missing(answer: dict[str, Any], faults: Faults, size: Size) -> list[str]:
    """The hidden faults that an answer does not tell. A slow rank is told by `lineage ranks`, not here."""
    bad = answer["first_bad"]
    cell, said = bad["cell"], " | ".join([*bad["later"], *bad["gaps"]])
    out = []
    if faults.layer is not None:
        rank, step, layer = faults.layer
        if (cell["rank"], cell["step"], cell["layer"]) != (rank, step, f"blocks.{layer}"):
            out.append("the layer")
    if (
        faults.nan is not None
        and f"step {faults.nan[1]:,}: gradient before the reduction of blocks.{faults.nan[2]}" not in said
    ):
        out.append("the NaN")
    if (
        faults.silent is not None
        and f"rank {faults.silent[0]} stopped recording after step {faults.silent[1]:,}" not in said
    ):
        out.append("the silent rank")
    return out


def _read(path: Path) -> int:
    n = 0
    with path.open("rb", buffering=0) as f:
        while data := f.read(1 << 22):
            n += len(data)
    return n


def _forget(paths: Sequence[Path]) -> None:
    """Drop files from the page cache."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def rows(sizes: Sequence[Size], scratch: Path, leave: int) -> Iterator[dict[str, Any]]:
    """Write, measure and remove a ledger of each size."""
    for size in sizes:
        faults = draw(SEED, size)
        ledger = scratch / f"{size.ranks}-{size.steps}-{size.layers}"
        try:
            began = time.perf_counter()
            write(ledger, size, SEED, faults, leave=leave)
            took = time.perf_counter() - began
            row = {"write": took, **measure(ledger, size, faults)}
        finally:
            shutil.rmtree(ledger, ignore_errors=True)
        print(json.dumps(row), flush=True)
        yield row


def plot(found: Sequence[dict[str, Any]], target: Path) -> None:
    """CPU time against cells, by ranks and by steps, with the line of linear growth; log-log.

    CPU time, since other work on a machine lengthens the time by the clock at some sizes and not at others.
    """
    import altair as alt

    drawn = []
    for name, fixed, sizes in (("more ranks", "steps", BY_RANKS), ("more steps", "ranks", BY_STEPS)):
        of = [r for r in found if any((r["ranks"], r["steps"]) == (s.ranks, s.steps) for s in sizes)]
        of.sort(key=lambda r: r["cells"])
        if not of:
            continue
        growth, first = f"{name} ({of[0][fixed]:,} {fixed})", of[0]
        for r in of:
            drawn.append({"growth": growth, "cells": r["cells"], "seconds": r["cpu"], "what": "first-bad"})
            linear = first["cpu"] * r["cells"] / first["cells"]
            drawn.append({"growth": growth, "cells": r["cells"], "seconds": linear, "what": "linear growth"})
    chart = (
        alt.Chart(alt.Data(values=drawn), width=320, height=240)
        .mark_line(point=True)
        .encode(
            x=alt.X("cells:Q", scale=alt.Scale(type="log"), title="cells (ranks x steps x layers)"),
            y=alt.Y("seconds:Q", scale=alt.Scale(type="log"), title="CPU seconds, from start to exit"),
            color=alt.Color("what:N", title=None),
            strokeDash=alt.StrokeDash("what:N", title=None),
            column=alt.Column("growth:N", title=None),
        )
    )
    chart.save(str(target))


def table(found: Sequence[dict[str, Any]], notes: Sequence[str]) -> Table:
    """The result."""
    out = Table("fleet", "lineage first-bad on the ledger of a fleet", COLUMNS, notes=list(notes))
    for row in found:
        out.add(**row)
    for name, sizes in (("ranks", BY_RANKS), ("steps", BY_STEPS)):
        of = [r for r in found if any((r["ranks"], r["steps"]) == (s.ranks, s.steps) for s in sizes)]
        if len(of) > 1:
            a, b = min(of, key=lambda r: r["cells"]), max(of, key=lambda r: r["cells"])
            times, cells = b["cpu"] / a["cpu"], b["cells"] / a["cells"]
            out.targets.append(
                Target(
                    f"CPU time grows with {name} linearly or better",
                    f"{times:.2f} times for {cells:.0f} times",
                    times <= cells,
                )
            )
    biggest = max(found, key=lambda r: r["cells"], default=None)
    small = [r for r in found if r is not biggest]
    if biggest is not None and small:
        a = max(small, key=lambda r: r["cells"])
        times, cells = biggest["cpu"] / a["cpu"], biggest["cells"] / a["cells"]
        out.targets.append(
            Target(
                "CPU time grows linearly or better to the biggest",
                f"{times:.1f} times for {cells:.1f} times",
                times <= cells,
            )
        )
    peak = max((r["memory"] for r in found), default=0.0)
    out.targets.append(Target("memory stays within 24 GiB", f"{peak:.2f} GiB at most", peak < 24))
    out.targets.append(
        Target(
            "every hidden fault is told",
            ", ".join({r["found"] for r in found}),
            all(r["found"] == "all" for r in found),
        )
    )
    return out


def main(arguments: list[str] | None = None) -> int:
    """Measure; returns 0, or 1 where the disk does not hold it."""
    p = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__.partition("\n\n")[0])
    p.add_argument("--ranks", type=int, default=FULL.ranks, help="ranks of the big one; 0 leaves it out")
    p.add_argument("--steps", type=int, default=FULL.steps)
    p.add_argument("--layers", type=int, default=FULL.layers)
    p.add_argument("--leave", type=float, default=10.0, help="GiB of the disk that stay free")
    p.add_argument(
        "--scratch", type=Path, help="where ledgers are written; the system's scratch folder by default"
    )
    p.add_argument("--no-growth", action="store_true", help="leave the small ones out")
    p.add_argument(
        "--big", type=Path, help="a big ledger that was written before (of this seed), instead of writing one"
    )
    p.add_argument("--out", type=Path, default=RESULTS)
    args = p.parse_args(arguments)
    leave = int(args.leave * 2**30)
    described = machine.describe()
    print(machine.lines(described), flush=True)
    big = Size(args.ranks, args.steps, args.layers)
    scratch = Path(tempfile.mkdtemp(prefix="lineage-fleet-", dir=args.scratch))
    found: list[dict[str, Any]] = []
    try:
        if args.ranks and not args.big:
            wanted = need(big, SEED, draw(SEED, big))
            print(
                f"the big one, {big}, needs {wanted / 2**30:.2f} GiB in {scratch}, the others less",
                flush=True,
            )
        sizes = () if args.no_growth else tuple(dict.fromkeys((*BY_RANKS, *BY_STEPS)))
        found += rows(sizes, scratch, leave)
        if args.big:
            found.append(measure(args.big, big, draw(SEED, big)))
            print(json.dumps(found[-1]), flush=True)
        elif args.ranks:
            found += rows([big], scratch, leave)
    except NoRoom as e:
        print(e, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    described["load after"] = ", ".join(f"{v:.2f}" for v in os.getloadavg())
    described["time"] = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    with engine.opened() as held:
        limit = (
            f"queries were held to {held.memory} on {held.threads} threads, portions to {files.ROWS:,} rows"
        )
    notes = [
        limit,
        "read the bytes: every file of the ledger from the disk, the page cache dropped; so it was before first-bad",
        "first-bad: the command from start to exit, journals of all ranks included",
        "other work ran on the machine meanwhile: see the load; CPU time tells what was its own",
    ]
    written = _keep(args.out, "# Benchmarks", described, [table(found, notes)])
    plot(found, written[0].with_suffix(".svg"))
    print("\n".join(f"written: {path}" for path in (*written, written[0].with_suffix(".svg"))))
    print(Path(written[1]).read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
