"""The marked code blocks of a page: files that its reader writes, commands that they run, and what is printed.

    <!-- file: train.py; needs: transformers -->     the block below is that file
    <!-- run -->                                     `$ ` lines of the block below are run, in order, in one folder
    <!-- run; example: dcp_loop.py common.py -->     as above, with these files of examples/ in the folder

A line of a run block without `$ ` is printed by the command above it: all its parts, between `...`, on one line of
what the command prints, in their order. Spaces count as one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_MARKED = re.compile(r"<!-- (file|run)\b([^>]*?) ?-->\n```\w+\n(.*?)```", re.S)


@dataclass
class Command:
    """One `$ ` line, with what it prints."""

    words: list[str]
    prints: list[str] = field(default_factory=list)


@dataclass
class Walk:
    """What the reader of one page does."""

    page: str
    files: dict[str, str] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)


def walk(path: Path) -> Walk:
    """Read the marked blocks of a page."""
    out = Walk(path.relative_to(DOCS.parent).as_posix())
    for kind, options, code in _MARKED.findall(path.read_text(encoding="utf-8")):
        told = dict(o.split(":", 1) for o in options.split(";") if ":" in o)
        given = {k.strip(): v.split() for k, v in told.items()}
        out.needs += given.get("needs", [])
        out.examples += given.get("example", [])
        if kind == "file":
            (name,) = options.split(";")[0].strip(": ").split()
            out.files[name] = code
            continue
        for line in code.splitlines():
            if line.startswith("$ "):
                out.commands.append(Command(line[2:].split()))
            elif line.strip():
                out.commands[-1].prints.append(line)
    return out


def walks() -> list[Walk]:
    """Every page with a marked block."""
    pages = sorted(p for p in DOCS.rglob("*.md") if _MARKED.search(p.read_text(encoding="utf-8")))
    return [walk(p) for p in pages]


def printed(expected: str, text: str) -> bool:
    """Whether a line of the text has all parts of the expected one, in their order."""
    parts = [" ".join(p.split()) for p in expected.split("...") if p.strip()]
    pattern = ".*".join(re.escape(p) for p in parts)
    return any(re.search(pattern, " ".join(line.split())) for line in text.splitlines())
