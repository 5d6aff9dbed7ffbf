"""Hook of MkDocs: a page for each code, made of the same data as `lineage explain CODE`."""

from __future__ import annotations

import posixpath
import re
from typing import Any

from mkdocs.structure.files import File, Files

import schemas
from lineage.cli import explain

IN_ONE = re.compile(r"codes\.md#(lin-[a-z]\d{3})")
"""A link into docs/codes.md, where all codes stand in one document."""


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages."""
    for page in schemas.all_explained():
        files.append(File.generated(config, f"codes/{page.code.lower()}.md", content=_page(page)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Make the document of all codes a table, and lead links into it to the page of the code."""
    if page.file.src_uri == "codes.md":
        return _index()
    return IN_ONE.sub(r"codes/\1.md", markdown)


def _badges(words: tuple[str, ...]) -> str:
    return " ".join(f'<span class="severity severity-{w}">{w}</span>' for w in words)


def _title(text: str) -> str:
    return text[0].upper() + text[1:]


def _here(text: str) -> str:
    """A text whose links are relative to docs/, for a page in codes/."""
    text = re.sub(r"\]\(#(lin-[a-z]\d{3})\)", r"](\1.md)", text)
    return re.sub(r"\]\((?!lin-|https?:)([^)]+)\)", lambda m: f"]({posixpath.join('..', m[1])})", text)


def _page(p: schemas.CodePage) -> str:
    words = schemas.severity_words()
    lines = [f"---\ntitle: {p.code}\ndescription: {p.title!r}\n---", f"# {p.code}: {p.title}", ""]
    lines += [f"*{p.family}*", "", "| severity | means |", "| --- | --- |"]
    lines += [f"| {_badges((w,))} | {words[w]} |" for w in p.severity]
    for head, text in explain.sections(p):
        lines += ["", f"## {head}", "", _here(text)]
    named = ", ".join(f"`{n}`" for n in explain.named_in(p.code)) or "no part of this version"
    shown = ", ".join(f"`{s}`" if s.startswith("lineage ") else s for s in p.shown_by)
    lines += ["", "## Source", "", f"- Shown by: {shown}", f"- Named in: {named}"]
    lines += [f"- At the command line: `lineage explain {p.code}`", "", "[All codes](../codes.md)"]
    return "\n".join(lines) + "\n"


def _index() -> str:
    lines = [
        "# Codes",
        "",
        "Every finding and every error has a stable code. A code never changes its meaning; one that",
    ]
    lines += [
        "is no longer used stays here. `lineage explain CODE` prints a code's page at the command line.",
        "",
    ]
    family = ""
    for p in schemas.all_explained():
        if p.family != family:
            family = p.family
            lines += [
                "",
                f"## {p.code[4]}: {_title(family)}",
                "",
                "| code | severity | what it says |",
                "| --- | --- | --- |",
            ]
        link = f"[{p.code}](codes/{p.code.lower()}.md){{ #{p.code.lower()} }}"
        lines.append(f"| {link} | {_badges(p.severity)} | {_title(p.title)} |")
    lines += ["", "## Severities", "", "| severity | means |", "| --- | --- |"]
    lines += [f"| {_badges((word,))} | {meaning} |" for word, meaning in schemas.severity_words().items()]
    return "\n".join(lines) + "\n"
