"""Reading a report page back, as a browser or a Markdown viewer would."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from markdown_it import MarkdownIt

VOID = {"meta", "br", "img", "hr", "input", "link"}


class Page(HTMLParser):
    """Elements with their attributes, text by heading, and tables as rows of text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.headings: dict[str, list[str]] = {}
        self.tables: list[tuple[str, list[list[str]]]] = []
        self._section = ""
        self._skip = 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in VOID:
            return
        self.open.append(tag)
        if tag in ("style", "svg"):
            self._skip += 1
        if tag in ("h1", "h2"):
            self.headings.setdefault(tag, []).append("")
        if tag == "table":
            self.tables.append((self._section, []))
        if tag == "tr":
            self.tables[-1][1].append([])
        if tag in ("td", "th"):
            self.tables[-1][1][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes another element"
        if tag in ("style", "svg"):
            self._skip -= 1
        if tag == "h2":
            self._section = self.headings["h2"][-1] = self.headings["h2"][-1].strip()

    def handle_data(self, data: str) -> None:
        if self._skip:
            return
        self.text.append(data)
        for tag in ("h1", "h2"):
            if tag in self.open:
                self.headings[tag][-1] += data
        if {"td", "th"} & set(self.open):
            self.tables[-1][1][-1][-1] += data


def words(html: str) -> str:
    """The visible text, white space joined."""
    return (
        re.sub(r"\s+", " ", " ".join(Page(html).text))
        .replace(" .", ".")
        .replace(" :", ":")
        .replace(" ,", ",")
    )


def headings(html: str, level: str) -> list[str]:
    """The headings of a level."""
    return [h.strip() for h in Page(html).headings.get(level, [])]


def table(html: str, section: str, *, column: str) -> list[dict[str, str]]:
    """The rows of all tables of a section that have a column, by column."""
    out = []
    for where, rows in Page(html).tables:
        clean = [[re.sub(r"\s+", " ", cell).strip() for cell in row] for row in rows]
        if where == section and column in clean[0]:
            out += [dict(zip(clean[0], row, strict=True)) for row in clean[1:]]
    return out


def from_markdown(text: str) -> str:
    """Render Markdown as a viewer that lets HTML through, which is the worst case."""
    return MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
