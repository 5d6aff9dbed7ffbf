"""Logs of a step and `key value` pairs: torchtitan, llm.c, nanoGPT, modded-nanogpt and parameter-golf.

Their lines, as the sources print them: torchtitan components/metrics.py, llm.c train_gpt2.cu, nanoGPT train.py,
modded-nanogpt and parameter-golf train_gpt.py.
"""

from __future__ import annotations

import re
from typing import ClassVar

from . import numbers, text
from .line_format import LineFormat
from .prefix import Prefix
from .rows import Kind, Note, Row, Told

_PAIR = re.compile(
    rf"(?:^|(?<=[|,\s]))([A-Za-z][A-Za-z_/]*(?: [A-Za-z_/]+)?)\s*[:=]?\s*({numbers.NUMBER})"
    rf"(?:\s?({numbers.UNIT}))?(?=[\s|,(]|$)",
    re.I,
)
_BARE = re.compile(rf"\|\s*({numbers.NUMBER})\s*(ms|tok/s|%)", re.I)
_WORLD = re.compile(r"\bworld_size[:=]\s*(\d+)")
_HELD_OUT = re.compile(r"\b(?:val|validat\w*|eval\w*|test|hella\w*|tel)(?:_|\b)", re.I)


class Keyed(LineFormat):
    """Lines that begin with a step. A subclass says how, and under which names its keys go."""

    step: ClassVar[re.Pattern[str]]
    names: ClassVar[dict[str, str]] = {}
    """abbreviation of the log -> the word that is kept"""

    def __init__(self) -> None:
        self._written: dict[str, int] = {}
        self._last: int | None = None

    def parse(self, p: Prefix, line: text.Line, told: Told) -> Row | Note | None:
        """Read one line."""
        found = self.step.search(p.rest)
        if found is None:
            world = _WORLD.search(p.rest)
            return Note("world", line.number, int(world[1])) if world else None
        rest = p.rest[found.end() :]
        values: dict[str, float] = {}
        written: list[tuple[str, str]] = []
        for key, value, unit in _PAIR.findall(rest):
            name = self.names.get(key.lower(), key)
            values[name] = numbers.as_unit(told.units, name, numbers.number(value), unit or None)
            written.append((name, value))
        for value, unit in _BARE.findall(rest):
            name = {"ms": "time", "%": "percent", "tok/s": "tokens per second"}[unit.lower()]
            values[name] = numbers.as_unit(told.units, name, numbers.number(value), unit)
            written.append((name, value))
        if not line.ended and written:
            self._cut(values, written[-1], line, told)
        self._written |= {name: numbers.decimals(value) for name, value in written}
        if not values:
            return None
        kind, values = self.kind(values, p.rest)
        return Row(int(found[1]), values, line.number, kind)

    def kind(self, values: dict[str, float], rest: str) -> tuple[Kind, dict[str, float]]:
        """Whether a row is of training or of held-out data."""
        held_out = [k for k in values if _HELD_OUT.search(k)]
        return (
            "eval" if held_out and not ({"train loss", "train_loss", "loss"} & values.keys()) else "train"
        ), values

    def _cut(self, values: dict[str, float], last: tuple[str, str], line: text.Line, told: Told) -> None:
        """The last number of a line without a newline may have lost digits: it is kept with as many as before."""
        name, value = last
        if self._written.get(name, -1) != numbers.decimals(value):
            values.pop(name, None)
            told.torn = True
            told.say(
                f"the last line (line {line.number:,}) has no newline, and its last number, {name} {value}, other "
                "digits than before: it was left out"
            )


class Torchtitan(Keyed):
    """`step: 10  loss:  8.1376  grad_norm:  1.2000  memory: 10.00GiB(12.62%)  tps: 1,234  ...`."""

    name: ClassVar[str] = "torchtitan"
    step: ClassVar[re.Pattern[str]] = re.compile(r"(?:^|[\s\]])(?:validate )?step:\s*(\d+)\s{2,}(?=loss:)")
    hints: ClassVar[tuple[str, ...]] = ("step:", "Training starts at step", "oading the checkpoint")
    signals: ClassVar[dict[str, str]] = {"loss": "loss", "grad_norm": "grad_norm"}
    about: ClassVar[tuple[str, ...]] = (
        "loss is the mean over ranks of that one step, grad_norm the global one before clipping",
        "memory, tps and tflops are of the rank that prints (the last pipeline stage's first)",
    )

    def parse(self, p: Prefix, line: text.Line, told: Told) -> Row | Note | None:
        """Read one line; training that starts later than at its first step was resumed."""
        if found := re.search(r"Training starts at step (\d+)", p.rest):
            return Note("loaded", line.number, int(found[1]) - 1) if int(found[1]) > 1 else None
        return super().parse(p, line, told)

    def kind(self, values: dict[str, float], rest: str) -> tuple[Kind, dict[str, float]]:
        """A line of validation has the same keys."""
        if "validate step:" in rest:
            return "eval", {f"validation: {k}": v for k, v in values.items()}
        return "train", values


class LlmC(Keyed):
    """`step  10/19560 | loss 9.5 (+1.2z)| norm 3.1 (+0.3z)| lr 7.7e-06 | 3466.57 ms | 43.9% bf16 MFU | ...`."""

    name: ClassVar[str] = "llm.c"
    step: ClassVar[re.Pattern[str]] = re.compile(r"^\s*step\s+(\d+)(?:\s*/\s*\d+)?\s*(?=\|)")
    hints: ClassVar[tuple[str, ...]] = ("step", "val loss")
    names: ClassVar[dict[str, str]] = {"norm": "grad norm", "dt": "time"}
    signals: ClassVar[dict[str, str]] = {"loss": "loss", "grad norm": "grad_norm", "lr": "lr"}
    _val = re.compile(rf"^\s*val loss ({numbers.NUMBER})\s*$")

    def parse(self, p: Prefix, line: text.Line, told: Told) -> Row | Note | None:
        """Read one line; a validation loss has no step of its own, it is of the state after the last one."""
        if found := self._val.match(p.rest):
            return Row(self._last or 0, {"val loss": numbers.number(found[1])}, line.number, "eval")
        row = super().parse(p, line, told)
        if isinstance(row, Row):
            self._last = row.step
        return row


class NanoGpt(Keyed):
    """`iter 10: loss 4.5678, time 123.45ms, mfu 12.34%` and `step 1000: train loss 3.1, val loss 3.2`."""

    name: ClassVar[str] = "nanogpt"
    step: ClassVar[re.Pattern[str]] = re.compile(r"^\s*(?:iter|step)\s+(\d+):\s*")
    hints: ClassVar[tuple[str, ...]] = ("iter ", "step ")
    signals: ClassVar[dict[str, str]] = {"loss": "loss"}
    about: ClassVar[tuple[str, ...]] = ("loss is that of rank 0's last micro-batch of the step",)

    def kind(self, values: dict[str, float], rest: str) -> tuple[Kind, dict[str, float]]:
        """A `step` line estimates both losses over fresh batches."""
        if rest.lstrip().startswith("step"):
            return "eval", {f"eval: {k}": v for k, v in values.items()}
        return "train", values


class Modded(Keyed):
    """`step:10/20000 train_loss:6.14 train_time:484ms step_avg:48.42ms` and `s:10 trl:9.5 lr:0.00001 norm:3.1`."""

    name: ClassVar[str] = "modded-nanogpt"
    step: ClassVar[re.Pattern[str]] = re.compile(r"^\s*(?:step|s):\s?(\d+)(?:/\d+)?\s+(?=[a-z_]+:)")
    hints: ClassVar[tuple[str, ...]] = ("step:", "s:", "world_size")
    names: ClassVar[dict[str, str]] = {"trl": "train loss", "tel": "test loss", "norm": "grad norm"}
    signals: ClassVar[dict[str, str]] = {
        "train_loss": "loss", "train loss": "loss", "grad norm": "grad_norm", "lr": "lr"
    }  # fmt: skip
    about: ClassVar[tuple[str, ...]] = ("which ranks the train loss is of is not written in the log",)
