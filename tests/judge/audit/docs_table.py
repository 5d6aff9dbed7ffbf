"""The table of rules of docs/audit.md: `python -m tests.judge.audit.docs_table` writes it."""

from __future__ import annotations

from pathlib import Path

from lineage.judge.audit import RULES

PAGE = Path(__file__).parents[3] / "docs" / "audit.md"
BEGIN, END = "<!-- rules: made by tests/judge/audit/docs_table.py -->", "<!-- end of rules -->"


def table() -> str:
    """All rules in Markdown."""
    rows = [
        f"| [{r.code}](codes.md#{r.code.lower()}) | `{r.name}` | {r.severity} | {r.says} | "
        f"{r.remedy.format(run='RUN')} |"
        for r in RULES
    ]
    head = ["| code | rule | severity | what it finds | what to do |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *rows])


def filled(page: str) -> str:
    """The page with the table as the code has it."""
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return f"{page[:begin]}\n\n{table()}\n\n{page[end:]}"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
