"""What people wrote is kept when the page is made again; what cannot be kept in place lies beside it, and is said."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.report import pages as reading

from .story import Story

pytestmark = pytest.mark.slow

NOBODY = "*Nobody has written this yet.*"


@pytest.fixture
def out(pages: Path, tmp_path: Path) -> Path:
    """A copy of the page's folder, with a summary by a person."""
    folder = Path(shutil.copytree(pages, tmp_path / "out"))
    write(folder, (folder / "postmortem.md").read_text().replace(NOBODY, "Shard 7 was **broken**.", 1))
    return folder


def write(folder: Path, text: str) -> None:
    (folder / "postmortem.md").write_text(text)


def beside(folder: Path) -> list[Path]:
    return sorted(folder.glob("postmortem.as-it-was-*.md"))


def test_a_part_is_kept_and_stands_on_the_html_page_too(story: Story, out: Path) -> None:
    said = story.postmortem(out)
    assert "kept in place, as people wrote it: summary" in said
    after = (out / "postmortem.md").read_text()
    assert after.count("Shard 7 was **broken**.") == 1
    assert after.count(NOBODY) == 3
    html = (out / "postmortem.html").read_text()
    assert "<p>Shard 7 was <strong>broken</strong>.</p>" in html
    assert beside(out) == []


def test_what_stands_outside_of_the_parts_is_kept_beside_the_page_and_said_once(
    story: Story, out: Path
) -> None:
    edited = (out / "postmortem.md").read_text().replace("## Timeline", "My own words.\n\n## Timeline")
    write(out, edited)
    said = story.postmortem(out)
    (kept,) = beside(out)
    assert kept.read_text() == edited
    assert str(kept) in said
    assert kept.stat().st_mode & 0o077 == 0
    page = (out / "postmortem.md").read_text()
    assert "My own words." not in page
    assert "Shard 7 was **broken**." in page
    assert "changed outside" not in story.postmortem(out)
    assert beside(out) == [kept]


def test_a_page_without_any_mark_is_kept_whole_and_its_lost_parts_are_named(story: Story, out: Path) -> None:
    write(out, "# Ours\n\nAll is said here.\n")
    said = story.postmortem(out)
    (kept,) = beside(out)
    assert kept.read_text() == "# Ours\n\nAll is said here.\n"
    for key in ("summary", "cause", "lessons", "actions"):
        assert f"the part {key} was not found in it" in said


def test_bytes_that_are_no_text_are_kept_as_they_are(story: Story, out: Path) -> None:
    data = (out / "postmortem.md").read_bytes().replace(b"Shard 7", b"Shard \xff7")
    (out / "postmortem.md").write_bytes(data)
    story.postmortem(out)
    assert b"Shard \xff7 was **broken**." in (out / "postmortem.md").read_bytes()
    assert reading.headings((out / "postmortem.html").read_text(), "h1")


def test_a_part_of_ones_own_is_kept(story: Story, out: Path) -> None:
    own = "<!-- written by people: costs -->\nFour nights.\n<!-- end of what people wrote: costs -->\n"
    write(out, f"{(out / 'postmortem.md').read_text()}\n{own}")
    story.postmortem(out)
    assert "Four nights." in (out / "postmortem.md").read_text()
    assert "Four nights." in reading.words((out / "postmortem.html").read_text())


def test_the_page_of_another_incident_is_refused_and_left_alone(story: Story, out: Path) -> None:
    text = (out / "postmortem.md").read_text()
    other = text.replace("made by lineage; of: 01", "made by lineage; of: 99")
    assert other != text
    write(out, other)
    done = story.run("postmortem", story.path, "--out", out)
    assert done.returncode == 2
    assert "is the post-mortem of incident 99" in done.stderr
    assert (out / "postmortem.md").read_text() == other
    assert beside(out) == []


def test_without_the_extra_the_markdown_is_written_and_the_html_says_what_to_install(
    story: Story, out: Path
) -> None:
    (out / "postmortem.html").unlink()
    code = "import sys; sys.modules['altair'] = None\nfrom lineage.cli import main; main()"
    done = story.run("postmortem", story.path, "--out", out, code=code)
    assert done.returncode == 2
    assert "the HTML report needs altair" in done.stderr
    assert "pip install 'runlineage[read]'" in done.stderr
    assert "Shard 7 was **broken**." in (out / "postmortem.md").read_text()
    assert not (out / "postmortem.html").exists()
