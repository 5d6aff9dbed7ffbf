"""The table of rules of docs/suspects.md: `python -m tests.judge.suspects.docs_table` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lineage.judge.suspects import EVIDENCE, FAMILIES, WORDS

PAGE = Path(__file__).parents[3] / "docs" / "suspects.md"
BEGIN, END = "<!-- rules: made by tests/judge/suspects/docs_table.py -->", "<!-- end of rules -->"


def table() -> str:
    """All rules, family by family, in Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for family in FAMILIES:
        yield f"### {family.title[0].upper()}{family.title[1:]}"
        yield ""
        yield "| rule | side | evidence | what it says | source |"
        yield "| --- | --- | --- | --- | --- |"
        for r in family.rules:
            source = f"[{r.source.title}]({r.source.url})" if r.source.url else r.source.title
            yield f"| `{r.id}` | {WORDS[r.side]} | {r.evidence} | {r.says} | {source} |"
        yield ""


def classes() -> str:
    """The classes of evidence, the strongest first."""
    rows = [f"| `{name}` | {what} |" for name, what in EVIDENCE.items()]
    return "\n".join(["| class | what it is |", "| --- | --- |", *rows])


def filled(page: str) -> str:
    """The page with both tables as the code has them."""
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    page = f"{page[:begin]}\n\n{table()}\n{page[end:]}"
    begin, end = (
        page.index("| class | what it is |"),
        page.index("\n\n", page.index("| class | what it is |")),
    )
    return page[:begin] + classes() + page[end:]


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
