"""A command line kept as one text in a config: its flags are settings like any other.

Launchers keep the whole launch as a script (`command: torchrun train.py --lr=1e-4 ...`); compared as text, every
change of a comment would look like a change of training.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from .._rooms import schemas

_KEYS = re.compile(r"(?:^|\.)(?:command|cmd|launch_command|script|entrypoint)$", re.I)
_FLAG = re.compile(r"--[A-Za-z][\w.-]*")
_LONGEST = 200_000


def expand(values: Mapping[str, schemas.Scalar]) -> Mapping[str, schemas.Scalar]:
    """Add the flags of command texts as keys (`command.--lr`); what is left of the text stays under its own key."""
    found = [k for k, v in values.items() if _is_command(k, v)]
    if not found:
        return values
    out = dict(values)
    for key in found:
        flags, rest = split(str(values[key].value))
        out[key] = schemas.Scalar.of(rest)
        out |= {f"{key}.{flag}": schemas.Scalar.of(value) for flag, value in flags.items()}
    return out


def _is_command(key: str, value: schemas.Scalar) -> bool:
    text = value.value
    return isinstance(text, str) and len(text) < _LONGEST and "--" in text and _KEYS.search(key) is not None


def split(text: str) -> tuple[dict[str, str | bool], str]:
    """Return the flags of a command text, and the text without flags, comments and line ends.

    A flag without a value is True; one that comes several times has its last value. Quotes that never close are
    taken as letters.
    """
    lines = [line for line in text.replace("\\\n", " ").splitlines() if not line.lstrip().startswith("#")]
    words: list[str] = []
    for line in lines:
        try:
            words += shlex.split(line, comments=True)
        except ValueError:
            words += line.split()
    flags: dict[str, str | bool] = {}
    rest: list[str] = []
    waiting = ""
    for word in words:
        name, equals, value = word.partition("=")
        if _FLAG.fullmatch(name):
            flags[name] = value if equals else True
            waiting = "" if equals else name
        elif waiting and not word.startswith("-"):
            flags[waiting], waiting = word, ""
        else:
            rest.append(word)
            waiting = ""
    return flags, " ".join(rest)
