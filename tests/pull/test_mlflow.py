"""`lineage pull mlflow://...`: a ledger from MLflow alone, on a machine without the original disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient

from lineage.ledger import layout, scan
from lineage.ledger.reader import Ledger
from lineage.ledger.verify import verify
from lineage.pull import place
from lineage.pull.pulling import pull
from lineage.pull.source import PullTrouble, parse
from tests.recorder.loop import only
from tests.trackers.mlflow.servers import Server

from .command import asked, lineage
from .conftest import Trained, train_mlflow


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def parts(trained: Trained) -> list[Path]:
    """The files of the journal as the store keeps them."""
    return sorted((trained.away.parent / "artifacts").glob("*/artifacts/lineage/journal/*/*/*.jsonl"))


def test_the_ledger_is_whole_and_fits_the_anchor_and_says_what_no_tracker_has(
    trained: Trained, tmp_path: Path
) -> None:
    out = tmp_path / "pulled"
    done = asked(0, "pull", trained.source, "--out", out)
    root = json.loads(MlflowClient(trained.uri).get_run(trained.run_id).data.tags["lineage/anchor"])["root"]
    assert (done["whole"], done["layer"], done["pages"][0]["anchors"]) == (True, True, [root])
    assert root == Ledger(out).of("seal")[-1].payload.root
    told = asked(0, "verify", out)
    assert told["whole"]
    said = "\n".join(told["notes"])
    assert "held against 1 anchored root" in said
    assert "missing: the series" in said
    assert "without the words of persons" in said
    assert verify(out, ["sha256:" + "0" * 64]).whole is False


def test_every_line_up_to_the_last_seal_is_there_with_its_place_in_the_chain(
    trained: Trained, tmp_path: Path
) -> None:
    pull([parse(trained.source)], tmp_path, out=tmp_path / "pulled")
    here, there = Ledger(tmp_path / "pulled").records, trained.original.records
    sealed = there.index(next(r for r in reversed(there) if r.kind == "seal"))
    assert [(r.id, r.kind, r.seq, r.prev) for r in here] == [
        (r.id, r.kind, r.seq, r.prev) for r in there[: sealed + 1]
    ]
    assert {r.kind for r in there[sealed + 1 :]} == {"anchor"}  # written after what it anchors


def test_what_was_logged_stands_in_the_series_at_its_step(trained: Trained, tmp_path: Path) -> None:
    pull([parse(trained.source)], tmp_path, out=tmp_path / "pulled")
    history = MlflowClient(trained.uri).get_metric_history(trained.run_id, "loss")
    held = Ledger(tmp_path / "pulled").series("metrics", ["step", "key", "value"]).to_pylist()
    assert [(r["step"], r["value"]) for r in held if r["key"] == "loss"] == [
        (p.step, p.value) for p in history
    ]


def test_audit_diff_compare_verdict_and_report_work_on_it(
    tmp_path: Path, mlflow_database: Callable[[Path], str]
) -> None:
    trained = train_mlflow(tmp_path, mlflow_database(tmp_path), segments=2)
    out = tmp_path / "pulled"
    asked(0, "pull", trained.sources[1], "--out", out)  # this page leads to that of the first segment
    assert [s.info.start for s in Ledger(out).segments] == ["fresh", "resume"]
    here, there = (asked(0, "audit", p) for p in (out, only(trained.away).path))
    codes = {f["code"] for f in here["findings"]}
    assert "LIN-U005" in codes
    assert codes == {f["code"] for f in there["findings"]} - set(here["not_judged"])
    told = [
        lineage("verdict", p).stdout.split("claim")[0].splitlines()[1:]
        for p in (out, only(trained.away).path)
    ]
    assert "Broken since step 5" in told[0][0]
    assert told[0] == told[1]
    differs = [lineage("diff", p, "--json").stdout for p in (out, only(trained.away).path)]
    assert "learning_rate" in differs[0]
    assert json.loads(differs[0]) == json.loads(differs[1])
    assert lineage("compare", f"{out}:1", f"{out}:2").returncode in (0, 1)
    assert lineage("report", out).returncode == 0
    assert "peak learning rate" in (out / "report" / "report.md").read_text()


def test_pulling_twice_changes_not_one_byte(trained: Trained, tmp_path: Path) -> None:
    out = tmp_path / "pulled"
    asked(0, "pull", trained.source, "--out", out)
    before = content(out)
    assert asked(0, "pull", trained.source, "--out", out)["changed"] is False
    assert content(out) == before
    assert not (tmp_path / place.WORKSHOP).exists()


def test_a_journal_that_was_changed_in_the_tracker_is_said_and_never_replaces_a_good_one(
    trained: Trained, tmp_path: Path
) -> None:
    out = tmp_path / "pulled"
    asked(0, "pull", trained.source, "--out", out)
    before = content(out)
    file = next(p for p in parts(trained) if b'"kind":"checkpoint"' in p.read_bytes())
    file.write_bytes(file.read_bytes().replace(b'"kind":"checkpoint"', b'"kind":"checkpoint" '))
    refused = lineage("pull", trained.source, "--out", out)
    assert refused.returncode == 3
    assert "has another one than was read before" in refused.stderr
    assert "was left as it is" in refused.stderr
    assert content(out) == before
    beside = asked(3, "pull", trained.source, "--out", tmp_path / "beside")
    assert beside["whole"] is False
    assert "LIN-J003" in {d["code"] for d in beside["damage"]}
    assert lineage("audit", trained.source).returncode == 3


def test_an_anchor_that_no_seal_bears_is_said_loudly(trained: Trained, tmp_path: Path) -> None:
    client = MlflowClient(trained.uri)
    other = "sha256:" + "ab" * 32
    client.set_tag(trained.run_id, "lineage/anchor", json.dumps({"root": other, "at": "2026-01-01"}))
    done = lineage("pull", trained.source, "--out", tmp_path / "pulled")
    assert done.returncode == 3
    assert "DOES NOT FIT" in done.stdout
    assert f"anchor {other} is the root of no seal" in done.stdout


def test_parts_that_are_missing_are_named_and_not_filled(trained: Trained, tmp_path: Path) -> None:
    first, *_, last = parts(trained)
    assert len(parts(trained)) >= 2
    lines = first.read_bytes().splitlines(keepends=True)
    first.rename(first.with_name(f"000000-{len(lines) - 2:06d}.jsonl"))
    (first.parent / f"000000-{len(lines) - 2:06d}.jsonl").write_bytes(b"".join(lines[:-1]))
    done = asked(3, "pull", trained.source, "--out", tmp_path / "pulled")
    assert any(
        f"lines {len(lines):,} to {len(lines):,}" in n and "not on the page" in n for n in done["notes"]
    )
    assert "LIN-J009" in {d["code"] for d in done["damage"]}  # the anchored seal lies behind the gap
    assert last.exists()


def test_a_pull_that_breaks_off_leaves_nothing_and_the_former_one_as_it_was(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "pulled"

    def cut(made: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place, "put", cut)
        with pytest.raises(KeyboardInterrupt):
            pull([parse(trained.source)], tmp_path, out=out)
    assert not out.exists()
    assert not (tmp_path / place.WORKSHOP).exists()
    pull([parse(trained.source)], tmp_path, out=out)
    before = content(out)
    layout.make_folder(tmp_path / place.WORKSHOP)
    out.rename(tmp_path / place.WORKSHOP / "pulled.before")  # killed between its two moves
    left = layout.make_folder(tmp_path / place.WORKSHOP / "pulled.999999999.making" / "journal")
    assert pull([parse(trained.source)], tmp_path, out=out).changed is False
    assert content(out) == before
    assert not left.exists()


def test_the_runs_own_ledger_and_other_folders_are_never_written_over(
    trained: Trained, tmp_path: Path
) -> None:
    own = trained.original.path
    before = content(own)
    refused = lineage("pull", trained.source, "--out", own)
    assert refused.returncode == 2
    assert "the run's own" in refused.stderr
    assert content(own) == before
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    assert lineage("pull", trained.source, "--out", tmp_path / "notes").returncode == 2
    assert content(tmp_path / "notes") == {"a.txt": b"mine"}


def test_what_is_added_to_a_pulled_ledger_stays_through_the_next_pull(
    trained: Trained, tmp_path: Path
) -> None:
    out = tmp_path / "pulled"
    asked(0, "pull", trained.source, "--out", out)
    noted = lineage("incident", "open", out, "--title", "why")
    assert noted.returncode == 0, noted.stdout + noted.stderr
    MlflowClient(trained.uri).log_metric(
        trained.run_id, "loss", 1.0, step=5
    )  # so that the second pull writes
    assert asked(0, "pull", trained.source, "--out", out)["changed"] is True
    assert [r.payload.title for r in Ledger(out).of("incident")] == ["why"]
    assert verify(out).whole


def test_a_ledger_that_was_not_pulled_takes_no_line_without_its_words(
    trained: Trained, tmp_path: Path
) -> None:
    pull([parse(trained.source)], tmp_path, out=tmp_path / "pulled")
    (tmp_path / "pulled" / "pulled.json").unlink()
    assert {d.code for d in verify(tmp_path / "pulled").damage} >= {"LIN-J003"}


def test_a_page_of_a_real_server_is_pulled_and_a_dead_one_is_said(server: Server, tmp_path: Path) -> None:
    trained = train_mlflow(tmp_path, server.uri)
    assert asked(0, "pull", trained.source)["whole"] is True
    (run,) = (tmp_path / "here").glob("*")
    address = f"{server.uri}/#/experiments/1/runs/{trained.run_id}"
    assert pull([parse(address)], tmp_path / "here").ledger == run
    audited = lineage("audit", address)
    assert audited.returncode == 0, audited.stdout + audited.stderr
    assert "From the tracker alone" in audited.stdout
    gone = lineage("pull", f"mlflow://{server.uri}/{'0' * 32}")
    assert (gone.returncode, "refuses" in gone.stderr) == (2, True)


def test_a_server_that_nobody_answers_is_exit_code_4_and_nothing_is_written(tmp_path: Path) -> None:
    done = lineage("pull", f"mlflow://http://127.0.0.1:9/{'0' * 32}", "--out", tmp_path / "x")
    assert done.returncode == 4, done.stderr
    assert "cannot be reached" in done.stderr
    assert not (tmp_path / "x").exists()


def test_ranks_whose_journals_rank_0_did_not_see_are_named(trained: Trained, tmp_path: Path) -> None:
    for file in parts(trained):
        file.write_bytes(file.read_bytes().replace(b'"world_size":1', b'"world_size":4'))
    done = asked(3, "pull", trained.source, "--out", tmp_path / "pulled")
    assert any("segment 1: journals of ranks 1-3 of 4" in n for n in done["notes"])


def test_a_download_whose_names_leave_the_folder_or_are_links_is_not_followed(
    trained: Trained, tmp_path: Path
) -> None:
    got = tmp_path / "got"
    shutil.copytree(parts(trained)[0].parents[2], got / "journal")
    first = next((got / "journal").glob("*/*/*.jsonl"))
    (first.parent / "000900-000900.jsonl").symlink_to("/etc/passwd")
    (first.parent / "notes.jsonl").write_text("{}\n")
    done = pull([parse(str(got))], tmp_path, out=tmp_path / "pulled")
    said = " ".join(done.verification.notes)
    assert "notes.jsonl" in said
    assert "no chunk of a journal by its name" in said
    assert "root:" not in "".join(p.read_text() for p in scan.journal_files(tmp_path / "pulled"))
    assert "no anchor stands there" in said


def test_a_downloaded_journal_fits_the_root_that_is_given_by_hand(trained: Trained, tmp_path: Path) -> None:
    got = Path(
        MlflowClient(trained.uri).download_artifacts(
            trained.run_id, "lineage", str(layout.make_folder(tmp_path / "got"))
        )
    )
    root = trained.original.of("seal")[-1].payload.root
    fits = asked(0, "pull", got, "--anchor", root, "--out", tmp_path / "a")
    assert fits["whole"]
    wrong = lineage("pull", got, "--anchor", "sha256:" + "1" * 64, "--out", tmp_path / "b")
    assert wrong.returncode == 3


def test_a_run_that_is_not_there_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(PullTrouble, match="mlflow://"):
        parse(str(tmp_path / "nowhere"))
