"""Ledgers in a store are judged where they lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("duckdb")

from typer.testing import CliRunner

from benchmarks.fleet_ledger import Size, draw, write
from lineage.cli.app import app
from lineage.cli.common import CliError, find
from lineage.fleet import remote
from lineage.ledger import cells, reader, tensors
from tests.fleet.drawn import Drawn


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small fleet's."""
    path = tmp_path_factory.mktemp("fleet") / "run"
    size = Size(4, 260, 6)
    write(path, size, 5, draw(5, size), leave=0, processes=1)
    return path


def put(ledger: Path, url: str) -> Any:
    store, root = fsspec.core.url_to_fs(url)
    for path in sorted(ledger.rglob("*")):
        if path.is_file():
            target = f"{root}/{path.relative_to(ledger)}"
            store.makedirs(target.rpartition("/")[0], exist_ok=True)
            store.pipe_file(target, path.read_bytes())
    return store


def asked(where: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, ["first-bad", "--json", where])
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_url_gives_the_answer_of_the_folder(
    ledger: Path, tmp_path: Path, kind: str, big: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small ledger, which is copied, and a big one, of which queries read what they need."""
    if big:
        monkeypatch.setattr(cells, "MOST_VALUES", 100)
        monkeypatch.setattr(tensors, "MOST_NORMS", 100)
    url = f"memory://fleet-{big}/run" if kind == "memory" else f"file://{tmp_path}/run"
    put(ledger, url)
    code, answer = asked(url)
    of_folder = asked(str(ledger))
    assert {k: (answer.get(k), v) for k, v in of_folder[1].items() if answer.get(k) != v} == {}
    assert (code, answer) == of_folder
    assert code == 1
    assert answer["first_bad"]["cell"]["layer"] == f"blocks.{draw(5, Size(4, 260, 6)).layer[2]}"  # type: ignore[index]
    opened = remote.open_url(url)
    assert ("tensors" in opened.not_copied) is big
    assert opened.reached == reader.open_ledger(ledger).reached


def test_what_is_no_ledger_and_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    """A URL without a journal; one of a kind that nobody knows."""
    with pytest.raises(reader.LedgerNotFound, match=r"memory://nothing/here holds no ledger"):
        remote.open_url("memory://nothing/here")
    with pytest.raises(remote.NoStore, match="nosuchkind://x cannot be read"):
        remote.open_url("nosuchkind://x")


def test_commands_that_need_the_folder_refuse_a_url() -> None:
    """They would write into a copy that goes with the process."""
    with pytest.raises(CliError, match="needs the ledger's folder"):
        find("memory://fleet-False/run")


@pytest.mark.parametrize("seed", [2, 9])
def test_streams_and_torn_files_in_a_store_are_read_as_in_a_folder(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hot series, several processes of a rank, a file that was cut: by queries, from both places."""
    Drawn(tmp_path, seed)
    monkeypatch.setattr(cells, "MOST_VALUES", 100)
    monkeypatch.setattr(tensors, "MOST_NORMS", 100)
    put(tmp_path, f"memory://drawn-{seed}/{tmp_path.name}")
    one = cells.find(reader.open_ledger(tmp_path))
    other = cells.find(remote.open_url(f"memory://drawn-{seed}/{tmp_path.name}"))
    assert [b.model_dump_json() for b in other.first_bads.values()] == [
        b.model_dump_json() for b in one.first_bads.values()
    ]
    assert {uid: s.ranks for uid, s in other.seen.items()} == {uid: s.ranks for uid, s in one.seen.items()}


def test_a_file_name_that_leads_out_of_the_ledger_is_refused() -> None:
    """A store may list what it likes."""
    with pytest.raises(remote.NoStore, match="does not lie in"):
        remote._inside("/bucket/run/../../etc/x", "/bucket/run")
