"""Incidents that a person opens and closes from the training process, and what people write, without secrets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from lineage import report
from lineage.ledger import chunks
from lineage.ledger.reader import Ledger
from tests.secret_samples import SAMPLES, planted

from .loop import Loop, attach, only


def command(*arguments: str) -> str:
    """What a `lineage` command prints."""
    return subprocess.run(
        [sys.executable, "-c", "from lineage.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "160"},
    ).stdout


def opened(root: Path, **said: Any) -> tuple[Ledger, str]:
    """A healthy run in which somebody opened an incident."""
    loop = Loop()
    with attach(loop, root) as rec:
        loop.run(rec, 6)
        uid = rec.incident("[loss] looks too good", owner="ann", **said)
        assert uid is not None
        loop.run(rec, 9)
    return only(root), uid


def test_an_incident_by_hand_is_on_record_at_once_and_sealed(tmp_path: Path) -> None:
    """Durable when the verb returns, before the segment ends; who, what, since when."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 6)
        uid = rec.incident("loss looks too good", owner="ann", concept="lr", step=4, rank=0)
        found = only(tmp_path).last("incident")
    assert found is not None
    p = found.payload
    assert (p.uid, p.opened_by, p.status, p.title, p.owner) == (
        uid,
        "person",
        "open",
        "loss looks too good",
        "ann",
    )
    assert (p.concept, p.first_bad_step, p.first_bad_rank, found.step) == ("learning_rate", 4, 0, 6)
    assert "incident" in {r.payload.why for r in only(tmp_path).of("seal")}


def test_a_loop_that_counts_from_zero_names_the_step_in_its_own_way(tmp_path: Path) -> None:
    loop = Loop()
    with attach(loop, tmp_path, step_base=0) as rec, rec.step(0):
        rec.incident("odd", step=0)
    assert only(tmp_path).last("incident").payload.first_bad_step == 1


def test_show_first_bad_and_report_tell_of_an_incident_by_hand(tmp_path: Path) -> None:
    """As what a person said, beside what was measured; no bad cell is made of it."""
    ledger, uid = opened(tmp_path, step=4, rank=0, concept="[odd thing]")
    line = f"incident {uid[-8:]}, opened by hand, bad from step 4 on rank 0, about [odd thing]: "
    line += "[loss] looks too good (owner: ann)"
    assert line in command("show", str(ledger.path))
    first_bad = command("first-bad", str(ledger.path))
    assert line in first_bad
    assert "No bad cell" in first_bad
    assert json.loads(command("first-bad", str(ledger.path), "--json"))["incidents"][0]["uid"] == uid
    assert json.loads(command("show", str(ledger.path), "--json"))["incidents"][0]["owner"] == "ann"
    assert "looks too good; owner ann" in report.markdown(ledger)


def test_closing_an_incident_is_a_record_of_its_own_with_its_reason(tmp_path: Path) -> None:
    """The first record stays; show tells of open ones only; an unknown uid is said and left alone."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 3)
        uid = rec.incident("odd", owner="ann")
        rec.close_incident("nobody", why="?")
        rec.close_incident(uid, why="the plot was of another run", owner="bo")
    ledger = only(tmp_path)
    first, last = [r.payload for r in ledger.of("incident")]
    assert (first.status, last.status, last.uid, last.owner) == ("open", "closed", uid, "bo")
    assert (last.title, last.note) == ("odd", "the plot was of another run")
    assert "opened by hand" not in command("show", str(ledger.path))


def test_an_unknown_incident_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with attach(Loop(), tmp_path) as rec:
        rec.close_incident("nobody", why="?")
    assert "no incident nobody is on record" in caplog.text
    assert only(tmp_path).of("incident") == []


@pytest.mark.parametrize(
    "place", ["name", "why", "hypothesis", "who", "smallest_justified", "before", "after", "concept"]
)
def test_no_secret_in_what_a_person_writes_reaches_the_ledger(
    tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of fifty secrets, in each text of a mitigation and in the run's name; the words beside stay."""
    loop = Loop()
    name = " ".join(planted(n) for n in SAMPLES) if place == "name" else "plain"
    with attach(loop, tmp_path, name=f"a name, {name}") as rec:
        for sample in SAMPLES if place != "name" else ["none"]:
            said = {"concept": "grad_clip", "why": "spikes"}
            if place != "name":
                said[place] = f"harmless, {planted(sample)}"
            rec.mitigate(**said)
    check(tmp_path, caplog, "a name, " if place == "name" else "harmless, ")


@pytest.mark.parametrize("shape", ["list", "dict", "object"])
def test_no_secret_in_a_value_of_any_shape_reaches_the_ledger(
    tmp_path: Path, shape: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A list, a mapping, and an object that shows it in its repr."""

    class Holder:
        def __init__(self, text: str) -> None:
            self.text = text

        def __repr__(self) -> str:
            return f"Holder(harmless, {self.text})"

    made = {"list": lambda t: ["harmless, ", t], "dict": lambda t: {"harmless, ": t}, "object": Holder}[shape]
    with attach(Loop(), tmp_path) as rec:
        for sample in SAMPLES:
            rec.mitigate("data_mix", why="shard", before=made(planted(sample)), after=made(planted(sample)))
    check(tmp_path, caplog, "harmless, ")


@pytest.mark.parametrize("place", ["message", "owner", "concept", "why"])
def test_no_secret_in_an_incident_by_hand_reaches_the_ledger(
    tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    with attach(Loop(), tmp_path) as rec:
        for sample in SAMPLES:
            said = {"message": "odd"}
            text = f"harmless, {planted(sample)}"
            if place != "why":
                said[place] = text
            uid = rec.incident(**said)
            rec.close_incident(uid, why=text if place == "why" else "was nothing")
    check(tmp_path, caplog, "harmless, ")


def check(root: Path, caplog: pytest.LogCaptureFixture, kept: str) -> None:
    """No secret below a folder or in the log, in any form that JSON gives it; the harmless words are there."""
    written = "".join(p.read_text(errors="replace") for p in root.rglob("*") if p.is_file()) + caplog.text
    assert kept in written
    forms = {n: {s, json.dumps(s)[1:-1], repr(s)[1:-1]} for n, s in SAMPLES.items()}
    assert [n for n, f in forms.items() if any(x in written for x in f)] == []


def test_what_a_person_wrote_stays_on_the_machine_unless_text_is_shared() -> None:
    """Title, owner and note of an incident are blanked in what a tracker gets of the journal."""
    line = json.dumps(
        {"payload": {"kind": "incident", "title": "t", "owner": "ann", "note": "n", "uid": "u"}}
    )
    shown = json.loads(chunks.without_text(line.encode()))["record"]["payload"]
    assert {shown[k] for k in ("title", "owner", "note")} == {"(not shared)"}
    assert shown["uid"] == "u"
