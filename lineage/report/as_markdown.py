"""The report as Markdown: CommonMark with tables, nothing in it is taken for HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import marked, page
from .blocks import (
    Block,
    Bullets,
    Chart,
    Inline,
    Map,
    Outline,
    Para,
    Pre,
    Section,
    Span,
    Sub,
    Table,
    Twig,
    Written,
    clean,
    spans,
)
from .facts import Facts


def render(facts: Facts) -> str:
    """Return the whole report. Needs nothing but the base installation."""
    return document(page.title(facts), page.sections(facts))


def document(title: str, found: Sequence[Section]) -> str:
    """Return a page: its title, and its sections under their headings."""
    return f"# {escape(clean(title))}\n\n{sections(found)}"


def sections(found: Sequence[Section]) -> str:
    """Return sections under their headings."""
    lines = [line for section in found for line in _section(section)]
    return "\n".join(lines).rstrip() + "\n"


def _section(section: Section) -> list[str]:
    lines = [f"## {escape(section.title)}", ""]
    for block in section.blocks:
        lines += [*_block(block), ""]
    return lines


def _block(block: Block) -> list[str]:
    match block:
        case Para():
            return [line(block.text)]
        case Bullets():
            return [f"- {line(item)}" for item in block.items]
        case Table():
            return _table(block)
        case Pre():
            fence = "`" * max(
                3, 1 + max((len(m) for m in re.findall("`+", "\n".join(block.lines))), default=0)
            )
            return [f"{escape(block.caption)}:", "", f"{fence}text", *map(clean, block.lines), fence]
        case Map():
            return _block(Pre(f"{block.title}. {block.words.rstrip('.')}", block.lines))
        case Outline():
            return [f"{escape(block.caption)}:", "", *_twigs(block.twigs, "")]
        case Chart():
            return [f"**{escape(block.title)}** (drawn on the HTML page): {escape(clean(block.words))}"]
        case Sub():
            return [f"### {escape(clean(block.text))}"]
        case Written():
            return marked.place(block)


def _twigs(twigs: Sequence[Twig], lead: str) -> list[str]:
    """A nested list: each level is set in by two blanks."""
    out = []
    for twig in twigs:
        out += [f"{lead}- {line(twig.text)}", *_twigs(twig.under, lead + "  ")]
    return out


def _table(table: Table) -> list[str]:
    head = "| " + " | ".join(escape(h) or " " for h in table.head) + " |"
    rows = ["| " + " | ".join(line(cell) or " " for cell in row) + " |" for row in table.rows]
    return [line(table.caption), "", head, "|" + " --- |" * len(table.head), *rows]


def line(inline: Inline) -> str:
    """One line of Markdown."""
    return "".join(map(_span, spans(inline)))


def _span(span: Span) -> str:
    if not span.text.strip():
        return span.text
    if span.style == "code":
        return code(span.text)
    text = escape(span.text)
    if span.style in ("strong", "bad"):
        inner = text.strip()
        return text.replace(inner, f"**{inner}**", 1)
    return text


_SPECIAL = re.compile(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])")


def escape(text: str) -> str:
    """Let a text stand as it is: no emphasis, links, table cells or HTML in it."""
    text = _SPECIAL.sub(lambda m: "\\" + m[0], text)
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text).replace("<", "&lt;")
    text = re.sub(r"^(\s*)([#>+-])(?=[#\s]|$)", r"\1\\\2", text)
    return re.sub(r"^(\s*\d+)([.)])(?=\s|$)", r"\1\\\2", text)


def code(text: str) -> str:
    """A code span that holds any text; a pipe in it is escaped, as tables ask for."""
    text = text.replace("|", "\\|")
    ticks = "`" * (1 + max((len(m) for m in re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"
