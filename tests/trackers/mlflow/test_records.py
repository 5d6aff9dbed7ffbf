from __future__ import annotations

import json
import math
import sqlite3
from pathlib import Path

import pytest
from mlflow import MlflowClient

from schemas import Coverage, Degraded, FirstBad, Mitigation, Run, TrackerNote, read_line
from trackers import Page, TrackerUnavailable
from trackers.mlflow_.limits import TAG_LIMIT, size

from . import builders as b
from .conftest import MODELS, Case


def test_resume_shows_the_old_and_the_new_learning_rate_and_clip_although_mlflow_refuses_the_new_params(
    case: Case,
) -> None:
    case.client.log_param(case.run_id, "lr", 3e-4)
    case.client.log_param(case.run_id, "clip", 1.0)
    case.show(b.segment(case.segment))
    case.show(b.config(lr=3e-4, clip=1.0))
    case.show(b.code("a" * 40))

    with pytest.raises(Exception, match="Changing param values is not allowed"):
        case.client.log_param(case.run_id, "lr", 1e-4)
    resumed = b.uid()
    case.page.number(resumed)
    changes = [b.change("learning_rate", 3e-4, 1e-4), b.change("clip", 1.0, 0.3)]
    case.show(b.segment(resumed, parent=b.uid(), parent_step=2000), segment=resumed)
    case.show(b.config("sha256:" + "cd" * 32, lr=1e-4, clip=0.3), segment=resumed)
    case.show(b.drift(*changes), segment=resumed)

    tags = case.tags()
    seen = {c["concept"]: c for c in json.loads(tags["lineage/drift/001"])["changes"]}
    assert seen["learning_rate"]["requested"] == {"before": 3e-4, "after": 1e-4}
    assert seen["clip"]["effective"] == {"before": 1.0, "after": 0.3}
    assert json.loads(tags["lineage/drift/001"])["confounded"] is True
    first, second = (json.loads(tags[f"lineage/segment/{n}"]) for n in ("001", "002"))
    assert first["config"][0]["digest"] == b.SHA
    assert first["code"]["revision"] == "a" * 40
    assert second["config"][0]["digest"] == "sha256:" + "cd" * 32
    assert second["parent_step"] == 2000
    assert json.loads(case.artifact("lineage/config_002.json")) == {"lr": 1e-4, "clip": 0.3}
    assert case.client.get_run(case.run_id).data.params == {"lr": "0.0003", "clip": "1.0"}


def test_a_process_that_was_not_told_of_earlier_segments_does_not_overwrite_them(case: Case) -> None:
    case.show(b.segment(case.segment))
    later = b.uid()
    fresh = Page(run=b.RUN)  # as in a new process
    case.attach().show(b.record(b.segment(later), segment=later), fresh)
    tags = case.tags()
    assert json.loads(tags["lineage/segment/001"])["uid"] == case.segment
    assert json.loads(tags["lineage/segment/002"])["uid"] == later


def test_every_numbered_record_shown_again_from_another_process_changes_nothing(case: Case) -> None:
    records = [
        b.record(p, segment=case.segment, step=7)
        for p in (
            b.segment(case.segment),
            b.drift(b.change("learning_rate", 3e-4, 1e-4)),
            b.regime(0, 1, learning_rate=3e-4),
            b.regime(1, 8, previous=b.SHA, learning_rate=1e-4),
            b.verdict(),
            b.alarm(math.nan),
            b.checkpoint(7),
            b.seal(),
        )
    ]
    places = [case.tracker.show(r, case.page) for r in records]
    before = case.tags()
    history = case.client.get_metric_history(case.run_id, "lineage/regime")

    again = [case.attach().show(r, case.page) for r in records]
    as_read = [case.attach().show(read_line(r.to_line()), case.page) for r in records]

    assert again == places == as_read
    assert case.tags() == before
    assert len(case.client.get_metric_history(case.run_id, "lineage/regime")) == len(history) == 3
    assert len(case.models()) == len(case.outputs()) == int(MODELS)


def test_regime_is_a_step_shaped_series_at_the_users_steps_and_leaves_their_metrics_alone(case: Case) -> None:
    case.client.log_metric(case.run_id, "loss", 2.5, step=2000)
    case.show(b.regime(0, 1, learning_rate=3e-4))
    case.show(b.regime(1, 2001, previous=b.SHA, learning_rate=1e-4))
    points = {(m.step, m.value) for m in case.client.get_metric_history(case.run_id, "lineage/regime")}
    assert points == {(1, 0.0), (2000, 0.0), (2001, 1.0)}
    assert case.tags()["lineage/regime_now"] == "1 from step 2,001"
    listed = json.loads(case.artifact("lineage/regimes.json"))
    assert [r["values"]["learning_rate"] for r in listed] == [3e-4, 1e-4]
    assert set(case.client.get_run(case.run_id).data.metrics) == {"loss", "lineage/regime"}


@pytest.mark.parametrize(
    ("value", "word"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]
)
def test_a_non_finite_value_is_said_in_words(case: Case, value: float, word: str) -> None:
    case.show(b.alarm(value), step=1204, rank=3)
    tags = case.tags()
    assert f"loss was {word} at step 1,204, rank 3" in tags["lineage/first_non_finite"]
    assert json.loads(tags["lineage/alarm/001"])["value"] == word


def test_the_first_non_finite_value_is_the_earliest_step_whichever_arrives_first(case: Case) -> None:
    case.show(b.alarm(math.nan), step=12, rank=0)
    case.show(b.alarm(math.nan, signal="grad_norm_local"), step=11, rank=5)
    case.show(b.alarm(math.nan), step=13, rank=1)
    text = case.tags()["lineage/first_non_finite"]
    assert "grad_norm_local was NaN at step 11, rank 5" in text
    assert sorted(k for k in case.tags() if k.startswith("lineage/alarm/")) == [
        f"lineage/alarm/00{n}" for n in (1, 2, 3)
    ]


def test_a_long_drift_keeps_its_json_whole_says_what_was_left_out_and_lies_whole_in_an_artifact(
    case: Case,
) -> None:
    changes = [b.change(f"concept_{i}", "x" * 3000, "ü" * 3000) for i in range(60)]
    case.show(b.drift(*changes))
    value = case.tags()["lineage/drift/001"]
    data = json.loads(value)
    assert size(value) <= TAG_LIMIT
    assert data["left_out"]["changes"] + len(data["changes"]) == 60
    assert data["whole"] == "lineage/drift_001.json"
    whole = json.loads(case.artifact(data["whole"]))
    assert whole["changes"][59]["requested"]["after"] == "ü" * 3000


def test_a_seal_names_the_tag_in_which_an_auditor_finds_its_root(case: Case) -> None:
    first = b.record(b.seal("sha256:" + "11" * 32), segment=case.segment)
    case.tracker.show(first, case.page)
    place = case.show(b.seal("sha256:" + "22" * 32))
    assert (
        case.tracker.show(first, case.page) is None
    )  # shown late: the newest root stays, the older has no place
    assert place == f"runs/{case.run_id}/tags/lineage/anchor"
    run, tag = place.removeprefix("runs/").split("/tags/")
    assert json.loads(case.client.get_run(run).data.tags[tag])["root"] == "sha256:" + "22" * 32


def test_what_the_layer_says_about_itself_stands_in_words(case: Case) -> None:
    case.show(Run(uid=b.RUN))
    case.show(Coverage(recorded=["loss"], missing={"batches": "rec.step(step, batch)"}))
    case.show(FirstBad(cell=None, last_good_step=9, gaps=["rank 3"]))
    case.show(Degraded(code="LIN-L002", part="tracker", error="E: x", consequence="shown later."))
    case.show(Degraded(code="LIN-J012", part="journal", error="OSError: disk", consequence="kept in memory."))
    for _ in range(2):
        case.show(TrackerNote(code="LIN-T003", tracker="mlflow", text="loss is NaN and hidden"))
    case.show(TrackerNote(code="LIN-T003", tracker="mlflow", text="norm is Infinity, shown as 1.797e308"))
    assert case.show(TrackerNote(code="LIN-T001", tracker="wandb", text="not for MLflow's page")) is None
    tags = case.tags()
    assert tags["lineage/run"] == b.RUN
    assert "batches (add: rec.step(step, batch))" in tags["lineage/coverage"]
    assert "Last good step: 9" in tags["lineage/first_bad"]
    assert tags["lineage/degraded_parts"] == "journal, tracker"
    assert tags["lineage/degraded/journal"] == (
        "LIN-J012: journal failed with OSError: kept in memory. "
        f"The error's own words are in the ledger: lineage report {b.RUN}"
    )
    assert tags["lineage/note/LIN-T003"].splitlines() == [
        "loss is NaN and hidden",
        "norm is Infinity, shown as 1.797e308",
    ]
    assert "lineage/note/LIN-T001" not in tags


def test_free_text_of_a_mitigation_stays_on_the_machine(case: Case) -> None:
    case.show(Mitigation(uid=b.uid(), concept="clip", why="because of the secret customer", who="me"))
    value = case.tags()["lineage/mitigation/001"]
    assert "clip" in value
    assert "secret customer" not in value


def test_a_locked_database_is_a_passing_trouble_and_nothing_is_shown_twice(
    sqlite_uri: str, tmp_path: Path
) -> None:
    case = Case(sqlite_uri, tmp_path)
    lock = sqlite3.connect(sqlite_uri.removeprefix("sqlite:///"), isolation_level=None)
    made = b.record(b.regime(0, 1, learning_rate=3e-4), segment=case.segment)
    lock.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(TrackerUnavailable, match="locked"):
            case.tracker.show(made, case.page)
    finally:
        lock.execute("ROLLBACK")
        lock.close()
    case.tracker.show(made, case.page)
    assert len(MlflowClient(sqlite_uri).get_metric_history(case.run_id, "lineage/regime")) == 1


def test_every_numbered_tag_begins_with_words_because_the_page_shows_no_more_than_its_beginning(
    case: Case,
) -> None:
    for payload in (
        b.segment(case.segment),
        b.drift(b.change("learning_rate", 3e-4, 1e-4)),
        b.regime(1, 2001, previous=b.SHA, learning_rate=1e-4),
        b.verdict(),
    ):
        case.show(payload)
    tags = case.tags()
    assert tags["lineage/segment/001"].startswith('{"text": "fresh, world size 2"')
    assert tags["lineage/drift/001"].startswith('{"text": "learning_rate: 0.0003 -> 0.0001"')
    assert tags["lineage/regime/001"].startswith('{"text": "regime 1 from step 2,001: learning_rate')
    assert tags["lineage/verdicts/001"].startswith('{"text": "Broken since step 2,001')


def test_a_folder_store_which_keeps_tags_as_files_shows_everything_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    case = Case((tmp_path / "mlruns").as_uri(), tmp_path)
    degraded = Degraded(code="LIN-L002", part="tracker", error="E: x", consequence="shown later.")
    made = [
        b.record(p, segment=case.segment, step=7)
        for p in (
            b.segment(case.segment),
            b.drift(b.change("learning_rate", 3e-4, 1e-4)),
            b.regime(0, 1, learning_rate=3e-4),
            b.verdict(),
            b.alarm(math.nan),
            *(b.checkpoint(7, status=status) for status in ("complete", "incomplete", "incomplete")),
            b.seal(),
            degraded,
        )
    ]
    for r in [*made, *made]:
        case.attach().show(r, case.page)
    tags = case.tags()
    assert tags["lineage/status"] == "broken"
    assert "lineage/verdicts/002" not in tags
    assert len(case.client.get_metric_history(case.run_id, "lineage/regime")) == 1
    assert len(case.models()) == int(MODELS)
    assert not [k for k in tags if any(other.startswith(k + "/") for other in tags)]
