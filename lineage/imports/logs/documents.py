"""Logs that are one JSON document: Hugging Face `trainer_state.json`, and Megatron's golden values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from ...capture import documents
from . import text
from .rows import ImportTrouble, Note, Row, Told

MOST_BYTES = 512 * 1024 * 1024
"""A document is read whole, so a larger one is refused."""


def load(path: Path) -> Any:
    """Read a JSON document; bare NaN and Infinity are values. Raises `ImportTrouble`."""
    told = Told()
    parts: list[str] = []
    size = 0
    for line in text.lines(path, told):
        size += len(line.text)
        if size > MOST_BYTES:
            raise ImportTrouble(
                f"{path} is a JSON document of more than {MOST_BYTES:,} bytes: too large to be read whole"
            )
        parts.append(line.text)
    try:
        return documents.read_json("\n".join(parts))
    except RecursionError:
        raise ImportTrouble(f"{path} is nested too deeply to be read") from None
    except ValueError as e:
        cut = (
            " (it is cut off: the training may still be writing it)"
            if not "".join(parts[-1:]).rstrip().endswith("}")
            else ""
        )
        raise ImportTrouble(f"{path} is no whole JSON document: {e}{cut}") from None


def value(found: object) -> float | None:
    """A number, also where it is written as the text nan or inf; None for anything else."""
    if isinstance(found, bool):
        return None
    if isinstance(found, int | float):
        try:
            return float(found)
        except OverflowError:
            return None
    if isinstance(found, str) and re.fullmatch(r"\s*[-+]?(nan|inf|infinity)\s*", found, re.I):
        return float(found)
    return None


class TrainerState:
    """`log_history` of a Hugging Face Trainer."""

    name: ClassVar[str] = "trainer_state"
    place: ClassVar[str] = "log_history entry"
    axis: ClassVar[str] = "step of the entry (global_step)"
    signals: ClassVar[dict[str, str]] = {"loss": "loss", "grad_norm": "grad_norm", "learning_rate": "lr"}
    averaged: ClassVar[frozenset[str]] = frozenset({"loss"})
    about: ClassVar[tuple[str, ...]] = (
        "the Trainer's logging_nan_inf_filter, on by default, puts the running mean in place of a loss that is not "
        "finite: a NaN loss need not show here",
        "grad_norm is that of the last step before the entry, global and before clipping",
    )

    def read(self, path: Path, told: Told) -> Iterator[Row | Note]:
        """Give the entries in their order."""
        history = load(path)["log_history"]
        told.lines = len(history)
        for n, entry in enumerate(history, 1):
            step = _step(entry.get("step")) if isinstance(entry, Mapping) else None
            if step is None:
                told.say(f"log_history entry {n:,} has no step: left out")
                continue
            values = {str(k): v for k, x in entry.items() if k != "step" and (v := value(x)) is not None}
            for key in values:
                if key.endswith("_runtime"):
                    told.units[key] = "s"
            told.recognised += 1
            yield Row(step, values, n, _kind(values))


def _kind(values: Mapping[str, float]) -> Any:
    if {"loss", "learning_rate", "grad_norm"} & values.keys():
        return "train"
    return "also" if "train_loss" in values or "train_runtime" in values else "eval"


def _step(found: object) -> int | None:
    number = value(found)
    return int(number) if number is not None and number >= 0 and number == int(number) else None


class Golden:
    """`{key: {start_step, end_step, step_interval, values}}`, as Megatron's functional tests keep curves."""

    name: ClassVar[str] = "megatron-golden"
    place: ClassVar[str] = "step"
    axis: ClassVar[str] = "step of the document"
    signals: ClassVar[dict[str, str]] = {"lm loss": "loss"}
    averaged: ClassVar[frozenset[str]] = frozenset()
    about: ClassVar[tuple[str, ...]] = (
        "a step at which every value is written as nan was not run or not logged: it has no row",
    )

    def read(self, path: Path, told: Told) -> Iterator[Row | Note]:
        """Give all steps in order; what is nan while another value of the step is a number is kept as NaN."""
        columns: dict[str, dict[int, float]] = {}
        for key, curve in load(path).items():
            columns[str(key)] = dict(_curve(curve))
        steps = sorted({s for c in columns.values() for s in c})
        told.lines = len(steps)
        told.units["iteration-time"] = "s"
        absent = [s for s in steps if all(math.isnan(c[s]) for c in columns.values() if s in c)]
        if absent:
            told.say(
                f"{len(absent):,} steps are written as nan in every key ({absent[0]:,} to {absent[-1]:,}): not run"
            )
        left = set(absent)
        for step in steps:
            if step not in left:
                values = {k: c[step] for k, c in columns.items() if step in c}
                timing = [k for k in values if "time" in k and math.isnan(values[k])]
                told.recognised += 1
                yield Row(step, {k: v for k, v in values.items() if k not in timing}, step)


def _curve(curve: Mapping[str, Any]) -> Iterator[tuple[int, float]]:
    """Step and value: values stand under their step, or in a list from `start_step` on."""
    held = curve["values"]
    if isinstance(held, Mapping):
        pairs = ((int(k), value(v)) for k, v in held.items() if str(k).isdigit())
    else:
        first, by = int(curve.get("start_step", 0)), int(curve.get("step_interval", 1) or 1)
        pairs = ((first + i * by, value(v)) for i, v in enumerate(held))
    return ((s, v) for s, v in pairs if v is not None)


def is_trainer_state(found: object) -> bool:
    """Whether a document has a Trainer's history."""
    return isinstance(found, Mapping) and isinstance(found.get("log_history"), list)


def is_golden(found: object) -> bool:
    """Whether a document has curves of values under their keys."""
    return (
        isinstance(found, Mapping)
        and bool(found)
        and all(
            isinstance(c, Mapping) and isinstance(c.get("values"), Mapping | list) and "step_interval" in c
            for c in found.values()
        )
    )
