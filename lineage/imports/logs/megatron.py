"""Logs of Megatron-LM and Megatron-DeepSpeed.

The training line and its counters are those of `training_log` in megatron/training/training.py; the lines about
overflow are those of DeepSpeed's and apex' fp16 optimizers.
"""

from __future__ import annotations

import math
import re
from typing import ClassVar

from . import numbers, text
from .line_format import LineFormat
from .prefix import Prefix
from .rows import Note, Row, Told

LOSS, NORM, SCALE, LR = "lm loss", "grad norm", "loss scale", "learning rate"
SKIPPED, NANS = "number of skipped iterations", "number of nan iterations"
BATCH, SAMPLES = "global batch size", "consumed samples"

_KEYS = (
    LOSS, NORM, SCALE, LR, SKIPPED, NANS, BATCH, SAMPLES, "consumed tokens", "elapsed time per iteration (ms)",
    "elapsed time per iteration (s)", "num zeros", "params norm", "samples per second", "actual seqlen", "TFLOPs",
    "throughput per GPU (TFLOP/s/GPU)", "curriculum seqlen", "approx flops per GPU", "world size",
    "lm loss value", "lm loss PPL", "number of parameters", "mtp_1 loss", "load_balancing_loss", "z_loss",
)  # fmt: skip
_SQUEEZED = {k.replace(" ", ""): k for k in _KEYS}
"""A key of a line that was wrapped at a space has lost it."""
_ITERATION = re.compile(r"(?:^|[\s\]])iteration\s+([\d,]+)\s*/\s*([\d,]+)\s*\|")
_STARTED = re.compile(r"(?:^|[\s\]])iteration\s+[\d,]+\s*/")
_FIELDS = re.compile(r"[\w\s().:/+-]*\|")
_VALIDATION = re.compile(
    r"(validation|test) loss at (?:iteration (\d+)|the end of training)[^|]*\|(.*)", re.I | re.S
)
_SKIP = re.compile(r"overflow\b.*?skipping step|skipping step.*?overflow", re.I)
_SCALES = re.compile(r"Attempted loss scale:\s*([\d.e+]+),\s*reducing to\s*([\d.e+]+)", re.I)
_SKIP_RANK = re.compile(r"Rank (\d+)\]?:? (?:Skipping|Overflow)", re.I)
_LOADED = re.compile(r"(?<!not )loaded checkpoint\b.*?\bat iteration (\d+)", re.I)
_WORLD = re.compile(r"using world size:\s*(\d+)")
_DEEPSPEED = re.compile(r"\[Rank (\d+)\] step=(\d+), skipped=(\d+), lr=\[([-+.\deE]+)")


class Megatron(LineFormat):
    """Lines `iteration N/ M | key: value | ...`, with the lines of overflow, loads and validation between them."""

    name: ClassVar[str] = "megatron"
    axis: ClassVar[str] = "iteration of the log"
    signals: ClassVar[dict[str, str]] = {LOSS: "loss", NORM: "grad_norm", LR: "lr", SCALE: "loss_scale"}
    averaged: ClassVar[frozenset[str]] = frozenset({LOSS})
    about: ClassVar[tuple[str, ...]] = (
        "lm loss is the mean over data-parallel ranks, grad norm the global one before clipping: no value of a "
        "single rank is in the log",
        "a step that was skipped, or whose loss was NaN, is printed without lm loss",
    )
    hints: ClassVar[tuple[str, ...]] = (
        "iteration", "loss at", "kipping step", "KIPPING STEP", "oaded checkpoint", "world size", "skipped="
    )  # fmt: skip

    def wraps(self, text: str) -> bool:
        """A training line is long."""
        return bool(_STARTED.search(text))

    def continues(self, text: str, more: str) -> bool:
        """Until its last bar anything goes on that begins nothing of its own; after a bar, fields do."""
        if _STARTED.search(more) or more.startswith(("[20", "----", " validation", "validation")):
            return False
        return not text.rstrip().endswith("|") or bool(_FIELDS.match(more))

    def parse(self, p: Prefix, line: text.Line, told: Told) -> Row | Note | None:
        """Read one line."""
        rest = p.rest
        if found := _ITERATION.search(rest):
            values = _fields(rest[found.end() :], told)
            if not line.ended and not rest.rstrip().endswith("|"):
                told.torn = True
                told.say(f"the last line (line {line.number:,}) is cut off: its last field was left out")
            return Row(int(numbers.number(found[1])), values, line.number) if values else None
        if _SKIP.search(rest):
            of = _SKIP_RANK.search(rest)
            return Note("skip", line.number, None, int(of[1]) if of else p.rank, _scales(rest))
        if found := _VALIDATION.search(rest):
            values = {f"{found[1].lower()}: {k}": v for k, v in _fields(found[3], told).items()}
            return Row(int(found[2]), values, line.number, "eval") if found[2] and values else None
        if found := _DEEPSPEED.search(rest):
            values = {"deepspeed: skipped": float(found[3]), "deepspeed: lr": float(found[4])}
            return Row(int(found[2]), values, line.number, "also", int(found[1]))
        if found := _LOADED.search(rest):
            return Note("loaded", line.number, int(found[1]))
        if found := _WORLD.search(rest):
            return Note("world", line.number, int(found[1]))
        return None


def _scales(rest: str) -> str:
    found = _SCALES.search(rest)
    return f"loss scale {float(found[1]):,.0f}, reduced to {float(found[2]):,.0f}" if found else ""


def _fields(rest: str, told: Told) -> dict[str, float]:
    """`key: value |` fields; one that no bar ends was cut off, and one that is no number is left out."""
    out: dict[str, float] = {}
    for part in rest.split("|")[:-1]:
        key, colon, written = part.rpartition(":")
        key = " ".join(key.split())
        if not colon or not key:
            continue
        found = numbers.value(written)
        if found is None:
            continue
        key = _SQUEEZED.get(key.replace(" ", ""), key)
        if key.endswith(("(ms)", "(s)")):
            told.units.setdefault(key, key.rpartition("(")[2].rstrip(")"))
        out[key] = numbers.as_unit(told.units, key, *found)
    return out


def vanished(values: dict[str, float]) -> str | None:
    """Why a training row has no loss, as its own counters say; None where it has one."""
    if LOSS in values or not ({NORM, LR, SKIPPED} & values.keys()):
        return None
    nans = values.get(NANS, 0.0)
    if nans and math.isfinite(nans):
        return "nan"
    return "skipped" if values.get(SKIPPED) else "unsaid"
