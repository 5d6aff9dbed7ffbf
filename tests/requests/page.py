"""The blocks of a page: its code runs in order, in one folder, and each output is held against the one beside it.

A `python` block is executed, a `console` block runs its `$ lineage ...` lines. A `text` block after a `python` block,
and what follows the command in a `console` block, is an excerpt: its lines come in the output in that order, `...`
stands for anything within a line, and a line `...` for lines left out. Spaces and what a table is drawn with count
as one space.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r"^```(python|console|text)\n(.*?)^```$", re.M | re.S)
_HEADING = re.compile(r"^#+ (.*)$", re.M)
_DRAWN = re.compile(r"[\s│┃║─━╇┏┓┡┩└┘┌┐├┤┬┴┼╭╮╰╯]+")


@dataclass
class Example:
    """One thing that is run, and what the page says that it prints."""

    section: str
    kind: str
    code: str
    expected: list[str] = field(default_factory=list)
    line: int = 0

    def __str__(self) -> str:
        return f"line {self.line}, {self.section}"


@dataclass
class Played:
    """What became of it."""

    example: Example
    printed: str
    error: str = ""

    def missing(self) -> list[str]:
        """The lines of the page that the output does not have in that order."""
        lines = [_plain(x) for x in self.printed.splitlines()]
        wanted = [_plain(x) for x in self.example.expected]
        at = 0
        for n, want in enumerate(wanted):
            if want in ("", "..."):
                continue
            form = re.compile(".*".join(re.escape(part.strip()) for part in want.split("...")))
            found = next((i for i in range(at, len(lines)) if form.fullmatch(lines[i])), None)
            if found is None:
                return self.example.expected[n:]
            at = found + 1
        return []


def examples(page: str) -> list[Example]:
    """The examples of a page, in its order."""
    out: list[Example] = []
    headings = [(m.start(), m[1]) for m in _HEADING.finditer(_BLOCK.sub(lambda m: " " * len(m[0]), page))]
    for block in _BLOCK.finditer(page):
        section = [text for start, text in headings if start < block.start()][-1]
        line = page.count("\n", 0, block.start()) + 1
        kind, body = block[1], block[2]
        if kind == "text":
            out[-1].expected += body.splitlines()
        elif kind == "python":
            out.append(Example(section, kind, body, line=line))
        else:
            for n, said in enumerate(body.splitlines()):
                if said.startswith("$ "):
                    out.append(Example(section, kind, said[2:], line=line + 1 + n))
                else:
                    out[-1].expected.append(said)
    return out


def play(page: Path, only: Sequence[str] = ()) -> list[Played]:
    """Run the examples of a page in the present folder, in one namespace."""
    names: dict[str, Any] = {"__name__": "requests_page"}
    found = examples(page.read_text())
    return [_play(e, names) for e in found if not only or e.section in only]


def _play(example: Example, names: dict[str, Any]) -> Played:
    out, error = io.StringIO(), ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            if example.kind == "python":
                code = "\n" * example.line + example.code
                exec(compile(code, "docs/requests.md", "exec"), names)
            else:
                out.write(f"exit code {_command(example.code)}\n")
        except Exception:
            error = traceback.format_exc()
    if example.kind == "console" and err.getvalue():
        out.write(err.getvalue())
    return Played(example, out.getvalue(), error)


def _command(line: str) -> int:
    """Run a `lineage` command in this process: another one starts slowly."""
    from lineage.cli import main
    from lineage.cli.app import app

    words = shlex.split(line)
    if words[0] != "lineage":
        raise ValueError(f"{words[0]} is no command of ours: {line}")
    before, sys.argv = sys.argv, words
    app.registered_commands.clear()  # `main` adds all of them, once in a process
    app.registered_groups.clear()
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    finally:
        sys.argv = before
    return 0


def _plain(line: str) -> str:
    return _DRAWN.sub(" ", line).strip()
