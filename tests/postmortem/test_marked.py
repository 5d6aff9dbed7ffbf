"""What people wrote is found again in a page that was edited, or the page is known to be touched."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lineage.report import as_markdown, marked
from lineage.report.blocks import Para, Section, Written
from tests.report import pages

TITLES = {"summary": "Summary, by people", "actions": "Actions, by people"}
HEADINGS = ["What happened", "Summary, by people", "Timeline", "Actions, by people"]
MINE = {"summary": "One line of *mine*.\n\n- and a list", "actions": "1. do it (ann)"}


def page(parts: dict[str, str], made: str = "made by the layer") -> str:
    """A small page with two parts."""
    sections = [
        Section("a", HEADINGS[0], [Para(made)]),
        Section("b", HEADINGS[1], [Written("summary", "three lines", parts.get("summary", ""))]),
        Section("c", HEADINGS[2], [Para("a line"), Para("another line")]),
        Section("d", HEADINGS[3], [Written("actions", "one a line", parts.get("actions", ""))]),
        *(Section(k, k, [Written(k, "", v)]) for k, v in parts.items() if k not in TITLES),
    ]
    return marked.sealed(as_markdown.document("Title", sections), "incident-1")


HINTS = ["three lines", "one a line"]


def read(text: str) -> marked.Found:
    return marked.read(text, TITLES, HEADINGS, HINTS)


@pytest.mark.parametrize("parts", [{}, MINE, {"summary": "only this"}, {**MINE, "my-own": "more"}])
def test_parts_of_an_untouched_page_come_back_as_they_are(parts: dict[str, str]) -> None:
    found = read(page(parts))
    assert (found.parts, found.of, found.untouched, found.lost) == (parts, "incident-1", True, ())


def test_a_page_that_is_made_again_is_the_same_to_the_byte() -> None:
    once = page(MINE)
    assert page(dict(read(once).parts)) == once


@pytest.mark.parametrize(
    "edit",
    [
        lambda t: t.replace("\n", "\r\n"),
        lambda t: re.sub(r"\n\n+", "\n", t),
        lambda t: "\n".join(line + "  " for line in t.splitlines()),
        lambda t: t.replace("<!-- written by people: summary -->", "<!--written by people:  SUMMARY-->"),
    ],
    ids=["line ends", "blank lines", "blanks at the end", "marks set otherwise"],
)
def test_what_an_editor_does_to_white_space_touches_nothing(edit: object) -> None:
    found = read(edit(page({"summary": "A", "actions": "B"})))  # type: ignore[operator]
    assert {k: v.strip() for k, v in found.parts.items()} == {"summary": "A", "actions": "B"}
    assert found.untouched


BEGIN, END = "<!-- written by people: summary -->", "<!-- end of what people wrote: summary -->"


@pytest.mark.parametrize(
    "edit",
    [
        lambda t: t.replace(END, ""),
        lambda t: t.replace(BEGIN, ""),
        lambda t: t.replace(BEGIN, "").replace(END, ""),
        lambda t: t.replace(END, END.replace("summary", "sumary")),
        lambda t: t.replace("## Summary, by people\n", ""),
        lambda t: t.replace("made by the layer", "made better by me"),
        lambda t: t[t.index("## Timeline") :] + t[: t.index("## Timeline")],
        lambda t: "# Another title\n\n" + t.split("\n", 1)[1],
    ],
    ids=["no end", "no begin", "no marks", "another end", "no heading", "other words", "moved", "title"],
)
def test_a_part_is_found_after_a_heavy_edit_and_the_page_is_known_to_be_touched(edit: object) -> None:
    found = read(edit(page(MINE)))  # type: ignore[operator]
    assert found.parts["summary"].strip() == MINE["summary"]
    assert found.parts["actions"] == MINE["actions"]
    assert not found.untouched
    assert "made by the layer" not in "".join(found.parts.values())


@pytest.mark.parametrize(
    "edit",
    [
        lambda t: t.replace("three lines", "three lines: shard 7 was broken"),
        lambda t: t.replace("<!-- what belongs here: three lines -->", "<!-- what belongs here: shard 7 -->"),
        lambda t: t.replace("three lines -->", "three lines\n\nshard 7 was broken"),
        lambda t: t.replace("what belongs here: three lines", "shard 7 was broken"),
        lambda t: t.replace(marked.NOBODY, f"{marked.NOBODY} shard 7", 1),
    ],
    ids=["into the hint", "in its place", "without its end", "without its name", "behind nobody"],
)
def test_what_was_written_into_the_hint_or_beside_it_is_kept(edit: object) -> None:
    found = read(edit(page({})))  # type: ignore[operator]
    assert "shard 7" in found.parts["summary"]
    assert list(found.parts) == ["summary"]


@pytest.mark.parametrize(
    "edit",
    [
        lambda t: t.replace("*Nobody has written this yet.*", "_Nobody has written this yet._"),
        lambda t: t.replace("three lines", "three\n     lines"),
    ],
    ids=["other emphasis", "broken lines"],
)
def test_what_a_formatter_makes_of_an_empty_part_is_nobodys_words(edit: object) -> None:
    found = read(edit(page({})))  # type: ignore[operator]
    assert (dict(found.parts), found.untouched) == ({}, True)


def test_characters_that_only_python_takes_for_line_ends_are_kept() -> None:
    odd = {"summary": "a\u2028b\x0bc\x0cd\x85e\x1cf\u2029g"}
    once = page(odd)
    assert (read(once).parts, read(once).untouched) == (odd, True)
    assert page(dict(read(once).parts)) == once


def test_a_part_that_stands_twice_is_kept_twice() -> None:
    text = page(MINE)
    part = text[text.index(BEGIN) : text.index(END) + len(END)]
    found = read(text.replace(part, f"{part}\n\n{part.replace('One line', 'Another line')}"))
    assert "One line of *mine*." in found.parts["summary"]
    assert "Another line of *mine*." in found.parts["summary"]


def test_a_part_whose_marks_and_heading_are_gone_is_named_as_lost() -> None:
    text = page(MINE)
    cut = text[: text.index("## Actions")] + text[text.index("<!-- made by lineage") :]
    found = read(cut)
    assert found.lost == ("actions",)
    assert not found.untouched


def test_a_text_of_somebody_else_is_no_page_of_ours() -> None:
    for text in ("", "# My notes\n\nthey are mine", "\x00\udcff"):
        found = read(text)
        assert (found.of, found.untouched) == (None, False)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_word_is_lost_whatever_lines_are_cut_moved_and_added(data: st.DataObject) -> None:
    """A page that counts as untouched has every line that a person added in its parts: all else is kept beside it."""
    lines = page(MINE).splitlines()
    for n in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines)))
        what = data.draw(st.sampled_from(["add", "cut", "double", "move"]))
        if what == "add" or not lines[at:]:
            lines.insert(at, f"added by me {n}")
        elif what == "cut":
            del lines[at]
        elif what == "double":
            lines.insert(at, lines[at])
        else:
            lines.insert(data.draw(st.integers(0, len(lines) - 1)), lines.pop(at))
    found = read("\n".join(lines))
    kept = "\n".join(found.parts.values())
    if found.untouched:
        assert all(line in kept for line in lines if line.startswith("added by me"))


@pytest.mark.parametrize(
    ("text", "not_there"),
    [
        ("<script>alert(1)</script>", "<script"),
        ("[x](javascript:alert(1))", "href"),
        ("![x](http://evil/y.png)", "<img"),
        ("<img src=http://evil onerror=x()>", "<img"),
        ("a <!-- hidden --> b", "hidden"),
        ("# Title", "<h1"),
    ],
)
def test_a_part_as_html_runs_and_loads_nothing(text: str, not_there: str) -> None:
    assert not_there not in marked.as_html(Written("summary", "", text))


@pytest.mark.parametrize(
    "code", ["`<!-- x -->`", "``a ` <!-- x -->``", "```\n<!-- x -->\n```", "~~~\n<!-- x -->\n~~~"]
)
def test_a_comment_within_code_of_people_is_shown_as_code(code: str) -> None:
    html = marked.as_html(Written("summary", "", f"{code}\n\n<!-- hidden -->"))
    assert "&lt;!-- x --&gt;" in html
    assert "hidden" not in html


def test_a_part_that_stands_in_a_comment_is_told_apart_from_one_that_nobody_wrote() -> None:
    within = marked.as_html(Written("summary", "", "<!-- shard 7 -->"))
    assert "in a comment, which is not shown" in within
    assert "Nobody has written" not in within
    assert "Nobody has written" in marked.as_html(Written("summary", "", ""))


def test_tables_and_code_of_people_can_be_reached_by_the_keyboard_and_read_aloud() -> None:
    html = marked.as_html(
        Written("actions", "", "| a | b |\n| - | - |\n| 1 | 2 |\n\n```\nx\n```\n\n<http://ci/7>")
    )
    found = pages.Page(f"<main>{html}</main>")
    attributes = {tag: dict(a) for tag, a in found.elements}
    assert attributes["div"]["tabindex"] == attributes["pre"]["tabindex"] == "0"
    assert attributes["th"]["scope"] == "col"
    assert "thead" in attributes
    assert attributes["a"] == {"rel": "noreferrer", "href": "http://ci/7"}
