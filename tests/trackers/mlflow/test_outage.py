from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.connections import connecting, mine
from trackers import Outbox, TrackerRefused, TrackerUnavailable
from trackers.mlflow_ import rest

from . import builders as b
from .conftest import MODELS, Case
from .servers import Faulty, Server


@pytest.mark.slow
def test_a_server_killed_in_the_middle_and_restarted_has_every_record_exactly_once(
    server: Server, tmp_path: Path
) -> None:
    case = Case(server.uri, tmp_path)
    shown: list[str] = []
    troubles: list[tuple[Exception, bool]] = []
    outbox = Outbox(
        case.tracker,
        case.page,
        on_shown=lambda record, place: shown.append(record.id),
        on_trouble=lambda error, item, final: troubles.append((error, final)),
    )
    payloads = [
        b.segment(case.segment),
        *(b.regime(i, 10 * i + 1, previous=b.SHA if i else None, lr=1.0 / (i + 1)) for i in range(4)),
        *(b.checkpoint(10 * i) for i in range(1, 5)),
        *(b.seal(f"sha256:{i:064x}") for i in range(4)),
        b.drift(b.change("learning_rate", 1.0, 0.5)),
        b.verdict(),
    ]
    records = [b.record(p, segment=case.segment) for p in payloads]
    for made in records[:6]:
        outbox.put(made)
    while len(shown) < 3:
        time.sleep(0.01)
    server.kill()
    with connecting() as threads:
        for made in records[6:]:
            outbox.put(made)
    assert mine(threads) == 0  # the caller never waits for the server
    while not troubles:
        time.sleep(0.01)
    assert outbox.drain(1.0) > 0
    server.start()
    assert outbox.close(600.0) == 0

    assert shown == [r.id for r in records]
    assert all(isinstance(e, TrackerUnavailable) and not final for e, final in troubles)
    tags = case.tags()
    seals = [r for r in records if r.payload.kind == "seal"]
    assert json.loads(tags["lineage/anchor"])["record"] == seals[-1].id
    assert sorted(t for t in tags if t.startswith("lineage/regime/")) == [
        f"lineage/regime/00{n}" for n in range(1, 5)
    ]
    assert tags["lineage/status"] == "broken"
    history = case.client.get_metric_history(case.run_id, "lineage/regime")
    assert len(history) == 7  # four regimes, and the step before three of them
    names = sorted(m.name for m in case.models())  # type: ignore[attr-defined]
    assert names == [f"ckpt-step-{10 * n}" for n in range(1, 5) if MODELS]
    assert len(case.outputs()) == len(names)


def test_a_call_to_a_dead_server_fails_at_the_first_try_where_mlflow_takes_minutes(served: Case) -> None:
    tracker = served.attach("http://127.0.0.1:1")
    with connecting() as threads, pytest.raises(TrackerUnavailable, match=r"127\.0\.0\.1:1"):
        tracker.show(b.record(b.verdict(), segment=served.segment), served.page)
    assert len(threads) == 1  # MLflow's client tries eight times, with longer and longer pauses


def test_a_server_that_never_answers_is_given_up_after_the_time_limit(
    served: Case, faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "TIMEOUT", (10.0, 1.5))
    faulty.fail("hang")
    with pytest.raises(TrackerUnavailable, match="timeout"):  # and not that the server hung up, 60 s later
        served.attach(faulty.uri).show(b.record(b.verdict(), segment=served.segment), served.page)
    assert len(faulty.seen) == 1  # tried once: the outbox decides when to try again


@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        ("503", TrackerUnavailable, "503"),
        ("login", TrackerUnavailable, "login page"),
        ("401", TrackerRefused, "lineage sync"),
        ("403", TrackerRefused, "not yours.*lineage sync"),
    ],
)
def test_an_answer_that_passes_is_told_from_one_that_does_not(
    served: Case, faulty: Faulty, fault: str, kind: type[Exception], says: str
) -> None:
    faulty.fail(fault)
    with pytest.raises(kind, match=says):
        served.attach(faulty.uri).show(b.record(b.verdict(), segment=served.segment), served.page)


def test_what_mlflow_calls_invalid_is_refused_for_good(served: Case) -> None:
    with pytest.raises(TrackerRefused, match="INVALID_PARAMETER_VALUE"):
        rest.RestStore(served.client.tracking_uri, served.run_id).log({"bad[key]": "x"})


def test_credentials_in_the_address_do_not_reach_the_error(served: Case) -> None:
    tracker = served.attach("http://user:tok-123@127.0.0.1:1")
    with pytest.raises(TrackerUnavailable) as caught:
        tracker.show(b.record(b.verdict(), segment=served.segment), served.page)
    assert "tok-123" not in str(caught.value)


def test_an_upload_that_fails_is_tried_again_and_lies_there_once(
    served: Case, faulty: Faulty, tmp_path: Path
) -> None:
    report = tmp_path / "report.md"
    report.write_text("# r")
    tracker = served.attach(faulty.uri)
    faulty.fail("503", "mlflow-artifacts", times=1)
    with pytest.raises(TrackerUnavailable, match="503"):
        tracker.publish(report, "report.md")
    tracker.publish(report, "report.md")
    assert [f.path for f in served.client.list_artifacts(served.run_id, "lineage")] == ["lineage/report.md"]
