"""Clients of other versions than the tested ones: one clear word, nothing refused."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import lineage
from tests import matrix
from trackers import versions
from trackers.local import LocalTracker

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", ["wandb", "mlflow"])
def test_both_ends_of_the_range_and_a_later_patch_are_inside(kind: str) -> None:
    tested = versions.TESTED[kind]
    newest = ".".join(tested.newest.split(".")[:2])
    for version in (tested.oldest, tested.newest, f"{newest}.99", f"{newest}.1rc2"):
        assert versions.beyond(kind, version) is None, version


@pytest.mark.parametrize(
    ("kind", "version", "said"),
    [
        ("wandb", "0.28.1", r"0\.28\.1 is older.*pip install 'wandb>=0\.28\.2'"),
        ("wandb", "0.99.0.dev1", r"tested on wandb 0\.28\.2 to .*0\.99\.0\.dev1 is newer"),
        ("wandb", "1.0", "1.0 is newer"),
        ("mlflow", "2.22.5", "2.22.5 is older"),
        ("mlflow", "nightly", "'nightly', cannot be told"),
        ("mlflow", None, "None, cannot be told"),
    ],
)
def test_outside_the_range_it_says_what_was_found_what_is_tested_and_what_to_do(
    kind: str, version: str | None, said: str
) -> None:
    text = versions.beyond(kind, version)
    assert text is not None
    assert re.search(said, text), text
    assert "Training and the ledger do not depend on it" in text


def test_other_trackers_have_no_range() -> None:
    assert versions.said("local") is None
    assert versions.beyond("sqlite_sink", "0.1") is None


class Wandb(LocalTracker):
    """A page whose client says to be another version of W&B's."""

    kind = "wandb"


@pytest.mark.parametrize(("version", "told"), [("0.30.0", 0), ("9.0.0", 1)])
def test_it_is_said_once_in_the_log_and_in_the_ledger_and_training_goes_on(
    version: str,
    told: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(__version__=version))  # type: ignore[arg-type]
    rec = lineage.attach(Wandb(tmp_path / "page"), dir=tmp_path / "l", run_id="r", quiet=True)
    for step in (1, 2):
        with rec.step(step) as st:
            st.loss(1.0)
    rec.close()
    ledger = lineage.open_ledger(tmp_path / "l" / "r")
    notes = [r.payload.text for r in ledger.of("tracker_note") if r.payload.code == versions.CODE]
    assert len(notes) == caplog.text.count(versions.CODE) == told
    assert all("9.0.0 is newer" in n for n in notes)
    assert ledger.last("segment_end").payload.last_step == 2
    assert (tmp_path / "page" / "verdict.md").exists()


def test_the_floors_are_those_of_the_extras_and_of_the_oldest_environment() -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    oldest = (REPOSITORY / "constraints-oldest.txt").read_text()
    newest = (REPOSITORY / "constraints.txt").read_text()
    for kind, tested in versions.TESTED.items():
        (floor,) = (s.version for r in extras[kind] for s in Requirement(r).specifier)
        assert Version(floor) == Version(tested.oldest), extras[kind]
        assert f"{kind}=={tested.oldest}\n" in oldest
        assert f"{kind}=={tested.newest}\n" in newest


def test_the_page_of_versions_has_both_ends_as_run_and_passed() -> None:
    page = matrix.PAGE.read_text()
    for kind, tested in versions.TESTED.items():
        assert re.search(rf"^\| {kind} \| {tested.oldest} \| {tested.newest} \|", page, re.M)
        for version in (tested.oldest, tested.newest):
            assert re.search(rf"^\| {kind} \| {version} \| yes \| \d+ passed \|", page, re.M), (kind, version)


def test_a_later_run_of_the_matrix_keeps_the_rows_that_it_did_not_run() -> None:
    page = f"before\n{matrix.BEGIN}\n{matrix.END}\nafter"
    first = matrix.Outcome("wandb", "0.9.0", "3 passed", works=True)
    second = matrix.Outcome("wandb", "0.31.0", "2 failed, 1 passed", works=False)
    page = matrix.with_table(page, matrix.table([first], page))
    page = matrix.with_table(page, matrix.table([second], page))
    rows = [r for r in page.splitlines() if r.startswith("| wandb")]
    assert [r.split(" | ")[1:4] for r in rows] == [
        ["0.31.0", "yes", "2 failed, 1 passed"],
        ["0.9.0", "no", "3 passed"],
    ]
    assert page.startswith("before\n")
    assert page.endswith("\nafter")


def test_the_matrix_fails_for_a_fault_inside_the_range_and_for_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    works: dict[str, bool] = {}

    def run(tracker: str, version: str, folder: Path) -> matrix.Outcome:
        return matrix.Outcome(tracker, version, "", works=works[version], tried=version != "0.30.9")

    monkeypatch.setattr(matrix, "run", run)
    for version, ok, code in (
        ("0.28.2", False, 1),
        ("0.28.2", True, 0),
        ("0.19.0", False, 0),
        ("0.30.9", False, 0),
    ):
        works[version] = ok
        assert matrix.main(["--tracker", "wandb", version, "--folder", str(tmp_path)]) == code, version


def test_what_pytest_printed_becomes_words() -> None:
    names = "\n".join(f"FAILED tests/x.py::TestY::test_a_{n} - boom" for n in range(5))
    assert (
        matrix.told(f"{names}\n== 5 failed, 12 passed in 3.1s ==", 1)
        == "5 failed, 12 passed: a 0, a 1, a 2, and 2 more"
    )
    assert matrix.told("17 passed, 3 warnings in 9.1s", 0) == "17 passed"
    assert matrix.told("", 4) == "pytest ended with exit code 4"
