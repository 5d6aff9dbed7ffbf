"""Real training curves, read from a folder of public logs, and where they are known to be sick.

The folder is `FILES`, which the environment variable `LINEAGE_CURVES` sets. Labels stand in
`tests/data/spikes/labels.json`, written before any detector was tuned.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FILES = Path(os.environ.get("LINEAGE_CURVES") or ROOT.parent / "shared" / "files")
LABELS = ROOT / "tests" / "data" / "spikes" / "labels.json"
NORMS = Path(__file__).resolve().parent / "data"


@dataclass(frozen=True)
class Curve:
    """One recorded stream of one run. Steps that were never logged are not in it."""

    name: str
    signal: str
    """`loss` or `grad_norm`"""
    steps: list[int]
    values: list[float]
    sick: Mapping[str, list[list[int]]] = field(default_factory=dict)
    """`spikes`, `minor` and `disputed`: intervals of steps, both ends included"""

    def within(self, kinds: tuple[str, ...]) -> set[int]:
        """Positions (not steps) that lie within intervals of these kinds."""
        spans = [span for kind in kinds for span in self.sick.get(kind, [])]
        return {i for i, s in enumerate(self.steps) if any(a <= s <= b for a, b in spans)}

    def healthy(self) -> set[int]:
        """Positions that no label calls sick or disputed."""
        return set(range(len(self.steps))) - self.within(("spikes", "minor", "disputed"))


def labels() -> dict[str, Any]:
    """The labels as they stand in the file."""
    found: dict[str, Any] = json.loads(LABELS.read_text(encoding="utf-8"))
    return found


def curves() -> dict[str, Curve]:
    """Every public curve there is, by name, with its labels. Raises `FileNotFoundError` without the folder."""
    if not FILES.is_dir():
        raise FileNotFoundError(
            f"no training curves in {FILES}: set LINEAGE_CURVES to a folder that has megatron/, hf/, ..."
        )
    known = labels()["runs"]
    out = {}
    for name, points in _read():
        finite = [(s, v) for s, v in points if not math.isnan(v)]  # never reached, or left out: not logged
        sick = {k: v for k, v in known.get(name, {}).items() if isinstance(v, list)}
        out[name] = Curve(name, name.rpartition("/")[2], [s for s, _ in finite], [v for _, v in finite], sick)
    return out


def split(found: Mapping[str, Curve], part: str) -> list[Curve]:
    """The curves of `tuning` or `test`, in the order of the labels file."""
    patterns = [p for p in labels()["split"][part] if "/" in p]
    return [c for p in patterns for n, c in found.items() if re.fullmatch(p.replace("*", ".*"), n)]


def excerpts() -> list[dict[str, Any]]:
    """The short excerpts of big runs around their known spikes."""
    found: list[dict[str, Any]] = labels()["excerpts"]
    return found


Points = list[tuple[int, float]]


def _read() -> Iterator[tuple[str, Points]]:
    for device in ("a100", "h100"):
        with (FILES / f"megatron/gpt3_15b_release_lm_loss_{device}.csv").open(encoding="utf-8") as f:
            yield (
                f"gpt3-15b-{device}/loss",
                [(int(r["step"]), float(r["lm_loss"])) for r in csv.DictReader(f)],
            )
    yield "moe8x7b/loss", _golden("megatron/moe8x7b_release_golden_values_dev_dgx_h100.json")
    for path in sorted((FILES / "megatron").glob("resume_golden*.json")):
        yield f"megatron-resume-{path.stem.removeprefix('resume_golden_values_')}/loss", _golden(path)
    text = (FILES / "modded_nanogpt/2024-06-06_AdamW.log").read_text(encoding="utf-8")
    yield "modded-adamw/loss", [(int(s), float(v)) for s, v in re.findall(r"s:(\d+) trl:(\S+)", text)]
    text = (FILES / "modded_nanogpt/2024-10-13_llmc_main_first3000.log").read_text(encoding="utf-8")
    rows = re.findall(r"s:(\d+) trl:(\S+) lr:\S+ norm:(\S+)", text)
    yield "llmc/loss", [(int(s), float(v)) for s, v, _ in rows]
    yield "llmc/grad_norm", [(int(s), float(n)) for s, _, n in rows]
    for key, signal in (("loss", "loss"), ("grad_norm", "grad_norm")):
        yield f"mistral/{signal}", _trainer("hf/mistral_lora_final_trainer_state.json", key)
    yield "whisper/loss", _trainer("hf/whisper_trainer_state.json", "loss")
    for name, stem in (
        ("naive", "NaiveBaseline_train"),
        ("long", "LongContextSeq2048_train"),
        ("long-1338", "LongContextSeq2048_train_seed1338"),
    ):
        text = (FILES / f"paramgolf/{stem}.log").read_text(encoding="utf-8")
        found = re.findall(r"step:(\d+)/\d+ train_loss:(\S+)", text)
        yield f"paramgolf-{name}/loss", [(int(s), float(v)) for s, v in found]
    for path in sorted((FILES / "torchtitan").glob("*.txt")):
        pairs = (line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
        yield f"torchtitan-{path.stem}/loss", [(int(s), float(v)) for s, v in pairs]


def _golden(path: str | Path) -> Points:
    """A Megatron golden file's loss; it writes "nan" for steps that were not reached."""
    values = json.loads((FILES / path).read_text(encoding="utf-8"))["lm loss"]["values"]
    return [(int(s), float(v)) for s, v in values.items()]


def _trainer(path: str, key: str) -> Points:
    history = json.loads((FILES / path).read_text(encoding="utf-8"))["log_history"]
    return [(int(row["step"]), float(row[key])) for row in history if key in row]
