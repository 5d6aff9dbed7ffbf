"""What a post-mortem says of a real incident that was closed, and of one of which little is known."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

import schemas
from lineage.cli import postmortem as command
from lineage.cli.common import Subject
from lineage.ledger import blanked
from lineage.ledger.reader import Ledger
from lineage.report import postmortem
from lineage.report.postmortem import five
from tests.report import pages as reading

from .story import HOSTILE, Story

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["markdown", "html"])
def text(request: pytest.FixtureRequest, pages: Path) -> str:
    """The words of each format, without its mark-up."""
    if request.param == "html":
        return reading.words((pages / "postmortem.html").read_text())
    return reading.words(reading.from_markdown((pages / "postmortem.md").read_text()))


def test_five_lines_say_what_broke_how_far_why_what_was_done_and_where_it_stands(text: str) -> None:
    lines = text[text.index("What broke:") : text.index("At a glance")]
    assert re.findall(r"(What broke|How far it went|Cause|What was done|Where it stands):", lines) == [
        "What broke",
        "How far it went",
        "Cause",
        "What was done",
        "Where it stands",
    ]
    assert "step 12, rank 0 of 1, segment 1" in lines
    assert "loss is NaN; found by an alarm" in lines
    assert "the last good step is 11; the last good checkpoint: step 10" in lines
    assert "4 further steps made on it, to step 16; 1 checkpoint saved from it on" in lines
    assert "ann decided to go on from step 10 with 1 change; segment 2 does so" in lines
    assert "told: eval team, ops" in lines
    assert "Broken since step 11" in lines


def test_a_cause_is_told_with_the_replay_that_shows_it(story: Story, text: str) -> None:
    assert "data: sample 3 of step 12 is NaN (shown by a replay: with without-sample 3 changed alone" in text
    (flips,) = [r.payload for r in story.ledger.of("replay") if r.payload.flips]
    assert (
        f"Proof: replay {flips.uid[-8:]}, held against replay {flips.control[-8:]} with nothing changed"
        in text
    )
    assert "That training went on after a restart shows nothing of why it broke" in text


def test_every_replay_stands_with_its_change_its_result_and_whether_it_flips(
    pages: Path, story: Story
) -> None:
    rows = reading.table((pages / "postmortem.html").read_text(), "Replays", column="Changed")
    found = [(r["Changed"], r["Result"].split(",")[0], r["Does it flip?"]) for r in rows]
    assert found == [
        ("nothing", "reproduced", "the control"),
        ("without-sample 3", "not reproduced", "it flips"),
        ("nothing", "reproduced", "the control"),
        ("deterministic", "reproduced", "no"),
    ]
    for row, r in zip(rows, story.ledger.of("replay"), strict=True):
        assert r.payload.uid[-8:] in row["In words"]


def test_the_decision_has_its_options_costs_owner_and_who_was_told(text: str) -> None:
    said = text[
        text.index("From: step 10 of segment 1") : text.index("The repaired run", text.index("From: step 10"))
    ]
    for words in (
        "owner ann; written down by bo",
        "Told with it: ops: resumes",
        "the norm spiked. Hypothesis: one batch. Nothing smaller, because: 0.9 did not do",
        "comparison of loss curves: broken",
        "1 devices x 1 h = 1 device-hours x 2.5 = 2.50 EUR",
        "Made again",
    ):
        assert words in said, words
    assert "Segment 2 does otherwise: changed there and not decided: random-number state" in said


def test_every_kept_thing_and_bundle_stands_with_its_digest(story: Story, pages: Path) -> None:
    for name in ("postmortem.md", "postmortem.html"):
        page = (pages / name).read_text()
        roots = [r.payload.root for r in (*story.ledger.of("preserved"), *story.ledger.of("bundle"))]
        assert len(roots) >= 5
        assert all(root in page for root in roots)


def test_every_command_on_the_page_names_the_ledger_so_that_it_works_from_any_folder(
    early: Story, tmp_path: Path
) -> None:
    early.postmortem(tmp_path)  # named by a path that holds in one folder alone
    text = (tmp_path / "postmortem.md").read_text()
    said = [shlex.split(c) for c in re.findall(r"`(lineage [^`]+)`", text)]
    named = [word for words in said for word in words if "runs/" in word]
    assert len(named) > 3
    assert all(word.startswith(early.path) for word in named), named


def test_a_killed_run_and_a_title_that_no_tracker_got_are_told_by_what_is_on_record(early: Story) -> None:
    ledger = early.ledger
    (life,) = (r for r in ledger.records if r.kind == "incident")
    assert "no end of it is on record" not in str(_five(ledger, life))
    ledger.records = [r for r in ledger.records if r.kind != "segment_end"]
    life.payload.__dict__["title"] = blanked.NOT_SHARED  # as a ledger that was pulled has it
    assert "no end of it is on record: killed, or still running" in str(_five(ledger, life))
    given = command.gather(Subject(ledger), life.payload.uid)
    assert postmortem.title(given) == f"Post-mortem of {ledger.run}: rank 0, step 12: loss is NaN"


def _five(ledger: Ledger, life: schemas.Record) -> list[object]:
    return list(five.lines(command.gather(Subject(ledger), life.payload.uid)))


def test_the_timeline_names_who_said_what_and_leaves_the_rest_to_the_layer(text: str) -> None:
    for words in (
        "alarm onset: loss is NaN (LIN-A001, rank) (step 12, segment 1, rank 0)",
        "incident noted: owner ann; told eval team (by bo)",
        "step 12 made again: with without-sample: not reproduced; it flips",
        "recovery decided: from step 10, 1 change; owner ann (by bo)",
        "incident closed: a check of samples is planned (by ann)",
    ):
        assert words in text, words


def test_the_audit_on_the_page_is_the_audit_of_the_command(story: Story, pages: Path) -> None:
    found = json.loads(story.ok("audit", story.path, "--json"))["findings"]
    rows = reading.table((pages / "postmortem.html").read_text(), "Audit findings", column="Severity")
    assert {(r["Severity"], r["Code"]) for r in rows} == {(f["severity"], f["code"]) for f in found}
    assert len(rows) >= 3


def test_both_formats_have_the_same_sections_and_ask_people_for_four_parts(pages: Path) -> None:
    markdown, html = ((pages / f"postmortem.{x}").read_text() for x in ("md", "html"))
    titles = re.findall(r"^## (.+)$", markdown, re.M)
    assert titles == reading.headings(html, "h2")
    assert titles[0] == "What happened"
    assert [t for t in titles if t.endswith("by people")] == [
        "Summary, by people",
        "The cause in words, by people",
        "Lessons, by people",
        "Actions, by people",
    ]
    assert markdown.count("*Nobody has written this yet.*") == 4


def without_known_scripts(html: str) -> str:
    """The page without the scripts that its policy names by their digests, and without data, which is not run."""
    policy = re.search(r"script-src ([^;]*);", html)
    allowed = policy[1] if policy else ""

    def left(m: re.Match[str]) -> str:
        digest = base64.b64encode(hashlib.sha256(m["text"].encode()).digest()).decode()
        data = m["kind"] == ' type="application/json"' and "<" not in m["text"]
        return "" if data or f"'sha256-{digest}'" in allowed else m[0]

    return re.sub(r"<script(?P<kind>[^>]*)>(?P<text>.*?)</script>", left, html, flags=re.S)


def test_the_page_runs_only_its_charts_loads_nothing_and_shows_hostile_words_as_text(pages: Path) -> None:
    """What may run is named by digest; beside it there is no script, and no word of a person is one."""
    html = without_known_scripts((pages / "postmortem.html").read_text())
    page = reading.Page(html)
    assert HOSTILE in "".join(page.text)
    tags = {t for t, _ in page.elements}
    assert not tags & {"script", "iframe", "object", "embed", "link", "base", "form", "img", "foreignobject"}
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]
    links = [
        v for _, a in page.elements for k, v in a.items() if k in ("src", "href", "xlink:href", "action")
    ]
    assert links
    assert all(v is not None and v.startswith("#") for v in links)
    assert not re.search(r"url\((?!#)|@import", html)
    rendered = reading.Page(reading.from_markdown((pages / "postmortem.md").read_text()))
    assert HOSTILE in "".join(rendered.text)
    assert not {t for t, _ in rendered.elements} & {"script", "img"}


def test_the_page_is_built_for_reading_aloud(pages: Path) -> None:
    page = reading.Page((pages / "postmortem.html").read_text())
    assert len(page.headings["h1"]) == 1
    assert page.elements[0][1]["lang"] == "en"
    assert all(a.get("scope") in ("col", "row") for t, a in page.elements if t == "th")
    drawn = [a for t, a in page.elements if a.get("role") == "img" and t in ("figure", "svg")]
    assert len(drawn) == 3
    assert all(len(a["aria-label"] or "") > 40 for a in drawn)
    levels = [int(t[1]) for t, _ in page.elements if re.fullmatch("h[1-6]", t)]
    assert all(b <= a + 1 for a, b in pairwise(levels)), "no level is left out"
    ids = [a["id"] for _, a in page.elements if a.get("id")]
    assert len(ids) == len(set(ids))
    assert {a["href"] for t, a in page.elements if t == "a"} <= {f"#{i}" for i in ids}


@pytest.fixture(scope="module")
def early(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """A run that broke a moment ago, and nobody has done anything."""
    made = Story(tmp_path_factory.mktemp("early"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made.folder)
        made.go(16)
    return made


def test_what_is_not_known_is_said_and_nothing_that_fits_is_called_the_cause(
    early: Story, tmp_path: Path
) -> None:
    early.postmortem(tmp_path)
    text = reading.words((tmp_path / "postmortem.html").read_text())
    lines = text[text.index("What broke:") : text.index("At a glance")]
    assert "Cause: not known. The step was not made again" in lines
    assert (
        "no decision how to go on is on record; nothing was resumed since; nobody is on record as told"
        in lines
    )
    assert "of the evidence that a cause needs, 1 of 4 held" in lines
    assert f"lineage incident note {early.path} --owner NAME" in lines
    for words in (
        "Owner: nobody is named",
        "What it took: not known: no decision is on record, which would have the cost",
        "The step was not made again, so nothing shows what makes the symptom come or go",
        "No decision is on record",
    ):
        assert words in text, words
    assert "shown by a replay" not in text
    assert re.search(r"Evidence on record fits: .*That shows no cause", lines) or "fits" not in lines


def test_an_incident_by_hand_of_which_nothing_is_on_record_says_so(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.batch = lambda step, batch: batch
    story.go(16)
    assert story.run("postmortem", story.path).returncode == 4, "there is no incident yet"
    story.ok("incident", "open", story.path, "--title", "evals got worse", "--step", "7", "--by", "bo")
    story.postmortem(tmp_path / "out")
    text = reading.words((tmp_path / "out" / "postmortem.html").read_text())
    assert "What broke: evals got worse (said by bo, step 7" in text
    assert "Nothing on record is abnormal there" in text
    assert "Not known: step 7 was named by hand, and nothing on record is abnormal there" in text
    assert "Not known: there is no bad cell on record, so nothing can be suspected of one" in text


def test_by_default_it_lies_in_the_ledger_for_the_owner_only_and_the_ledger_stays_whole(early: Story) -> None:
    done = early.run("postmortem", early.path, "--json")
    data = json.loads(done.stdout)
    written = [Path(p) for p in data["written"]]
    assert [p.name for p in written] == ["postmortem.md", "postmortem.html"]
    assert all(
        p.parent == Ledger(Path(early.path)).path / "postmortem" / data["incident"][-8:] for p in written
    )
    assert all(p.stat().st_mode & 0o077 == 0 for p in written)
    assert early.run("verify", early.path).returncode == 0
