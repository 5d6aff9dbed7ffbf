"""The parts of a page that people write: where they stand in its Markdown, and how they are found again.

A part lies between two comments, which a viewer does not show. Everything outside of the parts is made anew, so the
page ends with a digest of it: where that does not fit any more, somebody wrote outside of the parts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from .blocks import Written, clean

_NOBODY = "Nobody has written this yet."
NOBODY = f"*{_NOBODY}*"
_BEGIN = re.compile(r"^\s*\\?<!--\s*written by people:\s*([\w-]+)\s*-->\s*$", re.I)
_END = re.compile(r"^\s*\\?<!--\s*end of what people wrote:\s*([\w-]+)\s*-->\s*$", re.I)
_MADE = re.compile(
    r"^\s*\\?<!--\s*made by lineage; of: (\S+); all but the parts of people: (\S+)\s*-->\s*$", re.I
)
_HINT = re.compile(r"<!--\s*what belongs here:(.*?)-->", re.S)
_FENCE, _CODE = r"^```.*?^```|^~~~.*?^~~~", r"(?<!`)(`+)(?!`)(?:(?!\n[ \t]*\n).)*?(?<!`)\2(?!`)"
_COMMENT = re.compile(rf"({_FENCE}|{_CODE})|<!--.*?-->", re.S | re.M)
"""a comment, or code in which one is text"""


class _Mark(str):
    """Stands for a mark among the lines outside of the parts, where it is no text."""

    __slots__ = ()


@dataclass(frozen=True)
class Found:
    """What people wrote into a page, as far as it can be told from what the layer made."""

    parts: Mapping[str, str] = field(default_factory=dict)
    """key -> text, without empty ones"""
    of: str | None = None
    """what the page is about; None where the line that says so is gone"""
    untouched: bool = False
    """whether all else stands as it was made"""
    lost: tuple[str, ...] = ()
    """keys whose marks and heading are gone"""


def place(block: Written) -> list[str]:
    """A part in Markdown, between its marks."""
    inner = [block.text] if block.text else [f"<!-- what belongs here: {block.hint} -->", "", NOBODY]
    key = block.key
    return [f"<!-- written by people: {key} -->", "", *inner, "", f"<!-- end of what people wrote: {key} -->"]


def sealed(markdown: str, of: str) -> str:
    """The page with its last line: what it is about, and the digest of all that the layer made."""
    made = f"made by lineage; of: {of}; all but the parts of people: {_made(markdown)}"
    return f"{markdown.rstrip()}\n\n<!-- {made} -->\n"


def read(
    markdown: str, titles: Mapping[str, str], headings: Sequence[str], hints: Collection[str] = ()
) -> Found:
    """Find what people wrote. `titles`: key -> heading of the section that holds nothing else; `headings`: all that
    a page may have, as they stand in it; `hints`: what stands in the comments of parts that nobody wrote yet.

    A part whose end is not marked any more ends before the next heading of the page; one without any mark is what
    stands under its heading.
    """
    cut = {f"## {h}" for h in headings}
    parts, outside, of, digest = _split(_lines(markdown), cut)
    for key, title in titles.items():
        if key not in parts and (under := _under(outside, f"## {title}", cut)) is not None:
            parts[key] = under
    told = {_plain(h) for h in hints}
    kept = {k: t for k, text in parts.items() if (t := _text(text, told))}
    lost = tuple(k for k in titles if k not in parts)
    return Found(kept, of, digest is not None and digest == _digest(outside), lost)


def _split(
    lines: Sequence[str], cut: set[str]
) -> tuple[dict[str, list[str]], list[str], str | None, str | None]:
    """(parts, lines outside of them, what it is about, the digest that it was made with)."""
    parts: dict[str, list[str]] = {}
    outside: list[str] = []
    of = digest = key = None
    inside: list[str] = []

    def close(*, marked: bool) -> None:
        nonlocal key, inside
        if key is not None:
            end = (
                len(inside)
                if marked
                else next((i for i, x in enumerate(inside) if x.strip() in cut), len(inside))
            )
            before = parts.get(key, [])
            parts[key] = (
                before if inside[:end] == before else [*before, *([""] if before else []), *inside[:end]]
            )
            outside.extend(inside[end:])
        key, inside = None, []

    for line in lines:
        if begin := _BEGIN.match(line):
            close(marked=False)
            key = begin[1].lower()
            outside.append(_Mark(f"begin {key}"))
        elif end := _END.match(line):
            outside.append(_Mark(f"end {end[1].lower()}"))
            close(marked=key == end[1].lower())
        elif made := _MADE.match(line):
            close(marked=False)
            of, digest = made[1], made[2]
        elif key is not None:
            inside.append(line)
        else:
            outside.append(line)
    close(marked=False)
    return parts, outside, of, digest


def _under(lines: Sequence[str], heading: str, cut: set[str]) -> list[str] | None:
    """The lines under a heading, up to the next one of the page."""
    at = next((i for i, line in enumerate(lines) if line.strip() == heading), None)
    if at is None:
        return None
    rest = lines[at + 1 :]
    under = rest[: next((i for i, line in enumerate(rest) if line.strip() in cut), len(rest))]
    return [line for line in under if not isinstance(line, _Mark)]


def _text(lines: Sequence[str], hints: Collection[str]) -> str:
    """What a person wrote; empty where nothing stands there but what the layer had put there.

    Who writes into the comment of the hint has written, too.
    """
    text = "\n".join(line for line in lines if line.strip().strip("*_") != _NOBODY).strip("\n")
    left = _HINT.sub(lambda m: "" if _plain(m[1]) in hints else m[0], text)
    return text if left.strip() else ""


def _plain(text: str) -> str:
    """Words, however an editor broke their lines."""
    return " ".join(text.split())


def _lines(text: str) -> list[str]:
    """Lines as editors count them: other characters that Python takes for an end of one belong to what people wrote."""
    return re.split("\r\n|\r|\n", text)


def _made(markdown: str) -> str:
    return _digest(_split(_lines(markdown), set())[1])


def _digest(lines: Sequence[str]) -> str:
    """A digest that other line ends, blank lines and blanks at the end of a line leave as it is."""
    words = "\n".join(line.rstrip() for line in lines if line.strip())
    return f"sha256:{hashlib.sha256(words.encode('utf-8', 'surrogateescape')).hexdigest()}"


def as_html(block: Written) -> str:
    """A part as HTML: its Markdown, with all HTML in it escaped, no images, and headings below those of the page."""
    from markdown_it import MarkdownIt

    text = _COMMENT.sub(lambda m: m[1] or "", block.text)
    safe = "\n".join(map(clean, _lines(text)))
    if not safe.strip() and block.text.strip():
        return (
            "<p><em>What people wrote here stands in a comment, which is not shown.</em> Take it out of its marks "
            "<code>&lt;!--</code> and <code>--&gt;</code> in the Markdown beside this page, and make both again.</p>"
        )
    if not safe.strip():
        where = (
            f"Write it into the Markdown beside this page, at <code>{block.key}</code>, and make both again."
        )
        return f"<p><em>Nobody has written this yet.</em> {where}</p>"
    writer = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    tokens = writer.parse(safe)
    for t in tokens:
        if t.type in ("heading_open", "heading_close"):
            t.tag = "h3"
    html = str(writer.renderer.render(tokens, writer.options, {}))
    html = (
        html.replace("<th", '<th scope="col"')
        .replace('<th scope="col"ead', "<thead")
        .replace("<pre>", '<pre tabindex="0">')
    )
    tables = iter(range(1, html.count("<table>") + 1))
    wrap = '<div class="scroll" role="region" tabindex="0" aria-label="Table {} of the part {}"><table>'
    html = re.sub("<table>", lambda _: wrap.format(next(tables), block.key), html)
    return html.replace("</table>", "</table></div>").replace("<a href=", '<a rel="noreferrer" href=')
