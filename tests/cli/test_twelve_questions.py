"""Each of the twelve questions has a command that answers it, or says what evidence is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

import lineage
from lineage.cli.common import console
from tests.cli.in_process import Run, lineage_
from tests.integrations.printed import wide
from tests.recorder.loop import Loop, attach

__all__ = ["lineage_"]

PAGE = Path(__file__).parents[2] / "docs" / "twelve-questions.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if re.match(r"\| \d+ \|", line)
]
COMMANDS = {int(row[0]): row[2].strip("`") for row in ROWS}
ANSWERS = {
    1: r"last good checkpoint  step 20.*complete by its record; something is there.*first bad checkpoint  step 25"
    r".*complete by its record; something is there",
    2: r"gradient clipping .*1 .*0\.5",
    3: r"1 to 20 .*21 to 30 .*21 to 40",
    4: r"gradient clipping 1 -> 0\.5  \(declared, LIN-D001\).*Mitigations\n  gradient clipping 1 -> 0\.5, declared"
    r".*in effect from step 21 to step 40: .*nobody is named: the loss broke",
    5: r"went on from the checkpoint of step 20.*optimizer state .*restored",
    6: r"learning rate|gradient clipping",
    7: r"statement of which data was seen │ (holds|caveat|broken)",
    8: r"rank 0, step 24.*\[FIRST\]",
    9: r"unknown: nothing on record fits any family.*not shown",
    10: r"step 25 .*QUARANTINED",
    11: r"24 .*loss is NaN",
    12: r"whole  .*no seal is anchored outside",
}
"""Question -> what a run with everything on record answers."""
MISSING = {
    1: r"Cannot tell: .*st\.loss\(loss\)",
    2: r"one segment and no change",
    3: r"Learning rate +not shown",
    4: r"Mitigations: none is on record.*not shown.*lineage\.attach\(run, optimizer=optimizer\)",
    5: r"No segment of this run went on from a checkpoint",
    6: r"not shown",
    7: r"statement of which data was seen │ not shown │ not shown: data mix .*lineage\.attach\(run, loader=loader\)",
    8: r"Cannot tell: .*st\.loss\(loss\)",
    9: r"Cannot tell: .*st\.loss\(loss\)",
    10: r"segment 1 .*not shown",
    11: r"No bundle .*at the onset of an alarm",
    12: r"no seal is anchored outside",
}
"""Question -> what is said of a run of which nothing is on record."""


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that broke at step 24 and went on from step 20 with less clipping, and one that recorded nothing."""
    folder = tmp_path_factory.mktemp("questions")
    root, saved = folder / "runs", folder / "saved"
    config = {"learning_rate": 0.1, "max_grad_norm": 1.0}
    loop = Loop()
    with attach(loop, root, run_id="full", config=config) as rec:
        for step in range(1, 31):
            loop.run(rec, step, spoil=24)
            if step % 5 == 0:
                rec.checkpoint(loop.save(saved / str(step)), step=step)
    loop = Loop(clip=0.5).load(saved / "20")
    with attach(
        loop, root, run_id="full", config={**config, "max_grad_norm": 0.5}, resumed_from=saved / "20"
    ) as rec:
        rec.mitigate(concept="grad_clip", before=1.0, after=0.5, why="the loss broke")
        loop.run(rec, 40)
    with lineage.attach(None, dir=root, run_id="bare", quiet=True, report=False) as rec:
        for step in range(1, 6):
            with rec.step(step):
                pass
    return root


def asked(lineage_: Run, ledgers: Path, number: int, run: str) -> tuple[int, str]:
    """Run the command of a question on a run."""
    other = "bare" if run == "full" else "full"
    names = {"RUN": ledgers / run, "OTHER": ledgers / other}
    words = [names.get(word, word) for word in COMMANDS[number].split()[1:]]
    with wide(console, 240):
        done = lineage_(*words)
    return done.code, done.out + done.err


def test_the_page_has_all_twelve_with_tests_that_are_there() -> None:
    assert sorted(COMMANDS) == list(range(1, 13))
    for row in ROWS:
        tests = re.findall(r"`(tests/[\w/]+\.py)`", row[4])
        assert tests
        assert all((PAGE.parents[1] / t).is_file() for t in tests), tests


@pytest.mark.parametrize("number", range(1, 13))
def test_a_run_with_its_evidence_is_answered(lineage_: Run, ledgers: Path, number: int) -> None:
    code, text = asked(lineage_, ledgers, number, "full")
    assert code in (0, 1)
    assert re.search(ANSWERS[number], text, re.S), text


@pytest.mark.parametrize("number", range(1, 13))
def test_a_run_without_evidence_is_told_what_is_missing(lineage_: Run, ledgers: Path, number: int) -> None:
    code, text = asked(lineage_, ledgers, number, "bare")
    assert code in (0, 1, 4)
    assert re.search(MISSING[number], text, re.S), text


def test_a_checkpoint_that_is_gone_is_not_named_as_if_it_were_there(
    lineage_: Run, ledgers: Path, tmp_path: Path
) -> None:
    """The first question asks whether both are still there: gone where their folder is here, else not looked at."""
    saved = ledgers.parent / "saved"
    kept = tmp_path / "kept"
    (saved / "20").rename(kept)
    try:
        with wide(console, 240):
            gone = lineage_("first-bad", ledgers / "full").out
            audit = lineage_("audit", ledgers / "full", "--json").json
        saved.rename(tmp_path / "saved")
        with wide(console, 240):
            elsewhere = lineage_("first-bad", ledgers / "full").out
            unseen = lineage_("audit", ledgers / "full", "--json").json
    finally:
        (tmp_path / "saved").rename(saved)
        kept.rename(saved / "20")
    assert re.search(r"last good checkpoint  step 20.*\n.*not there any more", gone)
    assert "LIN-U020" in {f["code"] for f in audit["findings"]}
    assert "not there any more" not in elsewhere
    assert "not on this machine, not looked at" in elsewhere
    assert "LIN-U020" not in {f["code"] for f in unseen["findings"]}
    assert "are not on this machine" in unseen["not_judged"]["LIN-U020"]


def test_an_audit_fails_by_the_severity_that_is_asked_for(lineage_: Run, ledgers: Path) -> None:
    found = lineage_("audit", ledgers / "full", "--json").json
    assert found["counts"]["fault"] == 0
    assert found["counts"]["warning"] > 0
    by_code = {f["code"]: f for f in found["findings"]}
    assert {"LIN-I004", "LIN-U031", "LIN-U041"} <= set(by_code)
    early = by_code["LIN-I004"]
    assert early["remedy"]
    assert "lin-i004" in early["page"]
    codes = {
        level: lineage_("audit", ledgers / "full", "--fail-on", level).code
        for level in ("fault", "warning", "note")
    }
    assert codes == {"fault": 0, "warning": 1, "note": 1}
    assert lineage_("audit", ledgers / "full", "--fail-on", "often").code == 2


def test_an_audit_names_damage_as_a_fault_and_ends_with_its_code(
    lineage_: Run, ledgers: Path, tmp_path: Path
) -> None:
    import shutil

    copy = tmp_path / "cut"
    shutil.copytree(ledgers / "full", copy)
    journal = next((copy / "journal").rglob("*.jsonl"))
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:4], *lines[5:]]))
    done = lineage_("audit", copy)
    assert done.code == 3
    assert "LIN-U040" in done.out
    assert "chain broken" in done.out
