"""Writing small logs and reading them into ledgers, for the tests of this folder."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from lineage.imports.logs import Import, import_logs
from lineage.ledger.reader import Ledger


def megatron(step: int, loss: float | str | None = 2.5, **more: Any) -> str:
    """A training line as Megatron prints it; a loss of None leaves the field out."""
    fields: dict[str, Any] = {
        "consumed samples": f"{step * 64:12d}",
        "elapsed time per iteration (ms)": "1000.0",
        "learning rate": "1.000E-04",
        "global batch size": "   64",
        "lm loss": f"{loss:.6E}" if isinstance(loss, float) else loss,
        "loss scale": "1.0",
        "grad norm": f"{0.4 + 0.01 * (step * 7919 % 13):.3f}",
        "number of skipped iterations": "  0",
        "number of nan iterations": "  0",
    }
    fields |= {k.replace("_", " "): v for k, v in more.items()}
    said = "".join(f" {k}: {v} |" for k, v in fields.items() if v is not None)
    return f" iteration {step:8d}/   10000 |{said}"


def titan(step: int, loss: float, norm: float = 1.5, at: str = "2026-03-01 10:00:00,123") -> str:
    """A training line as torchtitan prints it, with its colours."""
    return (
        f"[titan] {at} - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss: {loss:7.4f}  \x1b[33mgrad_norm: "
        f"{norm:7.4f}  \x1b[36mmemory: 10.50GiB(13.14%)  \x1b[34mtps: 12,345  \x1b[36mtflops: 1,099.95  "
        "\x1b[35mmfu: 39.75%\x1b[39m"
    )


def written(folder: Path, name: str, *lines: str, end: str = "\n") -> Path:
    """A file of these lines."""
    path = folder / name
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    return path


def done(tmp_path: Path, *paths: Path, run: str = "r") -> tuple[Import, Ledger]:
    """Import logs, and open the ledger."""
    made = import_logs(paths, run, tmp_path / "ledgers")
    return made, Ledger(made.ledger)


def metric(ledger: Ledger, key: str, rank: int | None = None) -> dict[int, float]:
    """step -> value of a logged key, over all segments."""
    rows = ledger.series("metrics").to_pylist()
    return {r["step"]: r["value"] for r in rows if r["key"] == key and rank in (None, r["rank"])}


def signals(ledger: Ledger, segment: int = 0) -> dict[str, dict[int, float]]:
    """signal -> step -> value of a segment."""
    uid = ledger.segments[segment].uid
    out: dict[str, dict[int, float]] = defaultdict(dict)
    for r in ledger.series("probes").to_pylist():
        if r["segment"] == uid:
            out[r["signal"]][r["step"]] = r["value"]
    return out


def gaps(ledger: Ledger, segment: int = 0) -> str:
    """All that the coverage of a segment says is not as one would think."""
    (record,) = ledger.of("coverage", ledger.segments[segment].uid)
    return "\n".join(record.payload.gaps)


def codes(ledger: Ledger) -> dict[str, Any]:
    """code -> the first finding of it."""
    out: dict[str, Any] = {}
    for r in ledger.of("finding"):
        out.setdefault(r.payload.code, r.payload)
    return out
