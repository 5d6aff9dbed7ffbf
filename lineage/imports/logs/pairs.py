"""Two columns without names: a step and its loss, as torchtitan and others keep reference curves."""

from __future__ import annotations

import re
from typing import ClassVar

from . import numbers, text
from .line_format import LineFormat
from .prefix import Prefix
from .rows import Note, Row, Told

_PAIR = re.compile(rf"\s*(\d+)[\s,;]\s*({numbers.NUMBER})\s*", re.I)


class Pairs(LineFormat):
    """Lines `10 8.1376` and nothing else."""

    name: ClassVar[str] = "step-loss"
    axis: ClassVar[str] = "first column"
    signals: ClassVar[dict[str, str]] = {"loss": "loss"}
    about: ClassVar[tuple[str, ...]] = (
        "the columns have no names: the second is taken for the training loss of the step in the first",
    )
    hints: ClassVar[tuple[str, ...]] = ("",)

    def parse(self, p: Prefix, line: text.Line, told: Told) -> Row | Note | None:
        """Read one line."""
        found = _PAIR.fullmatch(line.text)
        if found is None:
            if line.text.strip():
                told.say(
                    f"line {line.number:,} and perhaps others are no pair of a step and a number: left out"
                )
            return None
        if not line.ended:
            told.torn = True
            told.say(
                f"the last line (line {line.number:,}) has no newline, so its number may be cut: left out"
            )
            return None
        return Row(int(found[1]), {"loss": numbers.number(found[2])}, line.number)
