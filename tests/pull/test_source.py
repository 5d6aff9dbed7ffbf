"""What a source may be, and how it is understood."""

from __future__ import annotations

from pathlib import Path

import pytest

from lineage.pull.source import PullTrouble, is_source, parse

RUN = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        (f"mlflow://https://ml.example.org/prefix/{RUN}", "https://ml.example.org/prefix"),
        (f"mlflow://http://10.0.0.7:5000/{RUN}/", "http://10.0.0.7:5000"),
        (f"mlflow://ml.example.org/{RUN}", "https://ml.example.org"),
        (f"mlflow://localhost:5000/{RUN}", "http://localhost:5000"),
        (f"mlflow://127.0.0.1:5000/{RUN}", "http://127.0.0.1:5000"),
        (f"mlflow://sqlite:////data/mlflow.db/{RUN}", "sqlite:////data/mlflow.db"),
        (f"mlflow:///data/mlruns/{RUN}", "/data/mlruns"),
        (f"mlflow://file:///data/mlruns/{RUN}", "file:///data/mlruns"),
        (f"https://ml.example.org/#/experiments/3/runs/{RUN}", "https://ml.example.org"),
        (f"http://127.0.0.1:5000/#/experiments/3/runs/{RUN}/artifacts", "http://127.0.0.1:5000"),
    ],
)
def test_an_mlflow_source_names_server_or_store_and_run(text: str, uri: str) -> None:
    assert is_source(text)
    assert (parse(text).kind, parse(text).arguments) == ("mlflow", (uri, RUN))


def test_a_run_id_alone_is_looked_for_where_mlflow_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///m.db")
    assert parse(f"mlflow://{RUN}").arguments == ("sqlite:///m.db", RUN)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with pytest.raises(PullTrouble, match="MLFLOW_TRACKING_URI is not set"):
        parse(f"mlflow:{RUN}")


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("wandb://team/p/r1", (None, "team", "p", "r1")),
        ("wandb://https://wandb.example/team/p/r1", ("https://wandb.example", "team", "p", "r1")),
        ("https://wandb.ai/team/p/runs/r1?nw=x", ("https://wandb.ai", "team", "p", "r1")),
    ],
)
def test_a_wandb_source_names_server_entity_project_and_run(text: str, arguments: tuple[str, ...]) -> None:
    assert is_source(text)
    assert (parse(text).kind, parse(text).arguments) == ("wandb", arguments)


@pytest.mark.parametrize(
    "text", ["wandb://team/r1", "mlflow://host/a b", "https://example.org/x", "s3://b/x"]
)
def test_anything_else_is_refused_with_the_forms_that_there_are(text: str) -> None:
    with pytest.raises(PullTrouble, match=r"wandb://|mlflow://"):
        parse(text)


def test_a_ledger_is_no_source_and_a_download_is(tmp_path: Path) -> None:
    journal = tmp_path / "run" / "journal" / "segment"
    journal.mkdir(parents=True)
    (journal / "n-00000-1-1.jsonl").write_text("{}\n")
    assert not is_source(str(tmp_path / "run"))
    part = tmp_path / "got" / "lineage" / "journal" / "segment" / "n-00000-1-1"
    part.mkdir(parents=True)
    (part / "000000-000000.jsonl").write_text("{}\n")
    assert parse(str(tmp_path / "got")).kind == "folder"
