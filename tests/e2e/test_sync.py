"""`lineage sync`: what it brings to a page, and what it writes down about it in the ledger."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from lineage.cli.sync import pages, sync
from lineage.ledger import layout, scan
from lineage.ledger.verify import verify
from lineage.recorder.delivery import Delivered
from tests.recorder.loop import Loop, only
from tests.trackers.wandb.stub_backend import StubBackend

from .conftest import Store
from .training import CHANGED, FIRST, attach, finished, points, resumed, settle, start_wandb, train

NOWHERE = "http://127.0.0.1:9"
"""A tracker that refuses every connection."""


def lineage(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user would."""
    code = "from lineage.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def journals(ledger: Path) -> dict[str, bytes]:
    """Journal file -> content."""
    folder = layout.journal_folder(ledger)
    return {str(p.relative_to(folder)): p.read_bytes() for p in scan.journal_files(ledger)}


@pytest.fixture
def behind(store: Store, tmp_path: Path) -> tuple[Path, str]:
    """A ledger whose run's MLflow store was out of reach all the time, and the run's id there."""
    run_id = store.client.create_run(store.experiment).info.run_id
    loop = Loop()
    with attach(
        loop, tmp_path / "runs", run=(MlflowClient(NOWHERE), run_id), config=FIRST, exit_timeout=0.2
    ) as rec:
        loop.run(rec, 4)
        rec.checkpoint(loop.save(tmp_path / "ck"), step=4)
    return only(tmp_path / "runs").path, run_id


def test_the_ledger_says_afterwards_which_root_stands_where_in_a_file_of_the_sync_s_own(
    store: Store, behind: tuple[Path, str]
) -> None:
    ledger, run_id = behind
    before = journals(ledger)
    done = lineage("sync", str(ledger), "--uri", store.uri, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads(done.stdout)
    assert result["problems"] == []

    root = json.loads(store.client.get_run(run_id).data.tags["lineage/anchor"])["root"]
    opened = only(ledger.parent)
    (anchor,) = opened.of("anchor")
    assert anchor.payload.root == root == opened.of("seal")[-1].payload.root == result["anchor"]["root"]
    assert anchor.payload.place == f"runs/{run_id}/tags/lineage/anchor of {store.uri}"
    after = journals(ledger)
    assert {name: after[name] for name in before} == before  # no file of another process has changed
    (new,) = set(after) - set(before)
    assert anchor.file == new
    header = next(r for r in opened.records if r.file == new and r.kind == "journal_header").payload
    assert {h.file for h in header.previous} == set(before)

    found = verify(ledger, [root])
    assert (found.whole, found.anchored, found.notes) == (True, [f"mlflow: {anchor.payload.place}"], [])
    assert sync(opened, *opened.of("run")[0].payload.aliases, uri=store.uri).anchor is None
    assert journals(ledger) == after  # what stands there is written down once


def test_a_tail_that_is_cut_after_a_sync_is_found_by_the_anchor_that_it_wrote(
    store: Store, behind: tuple[Path, str]
) -> None:
    ledger, _ = behind
    opened = only(ledger.parent)
    written = sync(opened, *opened.of("run")[0].payload.aliases, uri=store.uri)
    assert written.anchor is not None
    sealed = opened.of("seal")[-1]
    file = layout.journal_folder(ledger) / sealed.file
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[: sealed.line - 1]))
    (anchor,) = only(ledger.parent).of("anchor")
    damage = {(d.code, d.file, d.line) for d in verify(ledger).damage}
    assert ("LIN-J009", anchor.file, anchor.line) in damage


def test_two_branches_on_two_pages_stay_apart(store: Store, tmp_path: Path) -> None:
    """A faithful recovery in a run of its own is not flagged for what another recovery changed."""
    root, ck = tmp_path / "runs", tmp_path / "ck"
    run_ids = [store.client.create_run(store.experiment).info.run_id for _ in range(3)]
    loop = Loop()
    with attach(loop, root, run=(MlflowClient(NOWHERE), run_ids[0]), config=FIRST, exit_timeout=0.2) as rec:
        loop.run(rec, 4)
        rec.checkpoint(loop.save(ck), step=4)
    for run_id, config, after in ((run_ids[1], FIRST, Loop().load(ck)), (run_ids[2], CHANGED, resumed(ck))):
        options = {"config": config, "resumed_from": ck, "exit_timeout": 0.2}
        with attach(after, root, run=(MlflowClient(NOWHERE), run_id), **options) as rec:
            after.run(rec, 8)
    done = lineage("sync", str(only(root).path), "--uri", store.uri, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [r["id"] for r in json.loads(done.stdout)] == run_ids
    status = [store.client.get_run(i).data.tags["lineage/status"] for i in run_ids]
    assert status == ["holds", "holds", "broken"]
    assert len({r.payload.root for r in only(root).of("anchor")}) == 3


def test_a_page_that_cannot_be_reached_is_no_anchor(behind: tuple[Path, str]) -> None:
    ledger, _ = behind
    before = journals(ledger)
    done = lineage("sync", str(ledger), "--uri", NOWHERE)
    assert done.returncode == 1
    assert "not available" in done.stdout
    assert journals(ledger) == before


def page_of(store: Store, run_id: str) -> tuple[dict[str, str], list[Any], list[Any]]:
    """Tags, points of the regime and models of a run's page."""
    run, client = store.client.get_run(run_id), store.client
    outputs = getattr(run, "outputs", None)
    models = sorted((m.model_id, m.step) for m in outputs.model_outputs) if outputs else []
    points = client.get_metric_history(run_id, "lineage/regime")
    return run.data.tags, sorted((m.step, m.value) for m in points), models


def test_two_syncs_at_once_leave_one_page_with_each_thing_once(
    store: Store, behind: tuple[Path, str]
) -> None:
    """One of them does the work; another that meets it says so, and what to do."""
    ledger, run_id = behind
    code = "from lineage.cli import main; main()"
    command = [sys.executable, "-c", code, "sync", str(ledger), "--uri", store.uri, "--json"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [json.loads(p.communicate(timeout=600)[0])[0] for p in both]
    whole = [s for s in said if not s["problems"]]
    assert whole
    met = [s["problems"] for s in said if s["problems"]]
    assert all(len(p) == 1 and "another `lineage sync` is at work on this page" in p[0] for p in met)
    page = page_of(store, run_id)
    assert len([k for k in page[0] if k.startswith("lineage/regime/")]) == 1
    assert [step for _, step in page[2]] == [4]
    assert len(only(ledger.parent).of("anchor")) == 1
    assert lineage("sync", str(ledger), "--uri", store.uri).returncode == 0
    assert page_of(store, run_id) == page


def test_a_sync_leaves_a_page_alone_that_another_process_works_on(
    store: Store, behind: tuple[Path, str], tmp_path: Path
) -> None:
    """Another sync, or training itself: two that number tags would write over each other."""
    ledger, run_id = behind
    opened = only(ledger.parent)
    (alias,) = opened.of("run")[0].payload.aliases
    with Delivered(ledger, alias).alone():
        done = lineage("sync", str(ledger), "--uri", store.uri)
    assert done.returncode == 1
    assert "another `lineage sync` is at work" in " ".join(done.stdout.split())
    held = layout.journal_folder(ledger) / opened.of("run")[0].file
    fd = os.open(held, os.O_RDWR)
    layout.hold(fd)
    try:
        busy = sync(opened, alias, uri=store.uri)
    finally:
        os.close(fd)
    assert "a process that trains shows this page" in busy.problems[0]
    assert "lineage/run" not in store.client.get_run(run_id).data.tags
    assert sync(opened, alias, uri=store.uri).problems == []


def two_offline_segments(home: Path) -> tuple[list[Any], Any]:
    """One W&B run id, trained offline in two segments; the second one's user finished the run too early."""
    root, ck = home / "runs", home / "ck"
    first, loop = start_wandb(id="r1", config=FIRST), Loop()
    with attach(loop, root, run=first) as rec:
        train(loop, rec, 4, lambda step, loss: first.log({"loss": loss}, step=step))
        rec.checkpoint(loop.save(ck), step=4)
        settle(rec)
    logs = [finished(first)]
    second, loop = start_wandb(id="r1", config=CHANGED), resumed(ck)
    rec = attach(loop, root, run=second, config=CHANGED, resumed_from=ck, exit_timeout=1.0)
    train(loop, rec, 8, lambda step, loss: second.log({"loss": loss}, step=step))
    logs.append(finished(second))
    rec.close()
    return [first, second], only(root)


def test_two_offline_segments_of_one_w_b_run_have_notes_of_their_own_and_are_both_named(home: Path) -> None:
    runs, ledger = two_offline_segments(home)
    folders = [Path(r.settings.sync_dir).name for r in runs]
    aliases = [a for r in ledger.of("run") for a in r.payload.aliases]
    assert [a.uri for a in aliases] == [f"offline:{f}" for f in folders]
    segments = [s.uid for s in ledger.segments]
    by_id = {r.id: r.segment for r in ledger.records}
    for alias, segment in zip(aliases, segments, strict=True):
        noted = Delivered(ledger.path, alias).ids() & set(by_id)
        assert noted
        assert {by_id[i] for i in noted} == {segment}
    assert len(pages(ledger, None, None)) == 2
    done = lineage("sync", str(ledger.path))
    assert done.returncode == 2
    assert [f"wandb sync wandb/{f}" in done.stderr for f in folders] == [True, True]


def test_where_both_logs_were_sent_one_sync_makes_the_page_whole(backend: StubBackend, home: Path) -> None:
    """The config of the first log went when the second was sent, and neither holds the end of the second."""
    runs, ledger = two_offline_segments(home)
    for run in runs:
        command = [sys.executable, "-m", "wandb", "sync", run.settings.sync_dir]
        sent = subprocess.run(command, capture_output=True, text=True, check=False)
        assert sent.returncode == 0, sent.stdout + sent.stderr
    page = backend.runs["r1"]
    assert "lineage/anchor" not in page.values
    (aliases,) = pages(ledger, backend.url, None)
    assert sync(ledger, *aliases, uri=backend.url).problems == []
    starts = [page.values[f"lineage/segments/{n}/start"]["start"] for n in ("001", "002")]
    assert starts == ["fresh", "resume"]
    assert page.values["lineage/anchor"]["root"] == ledger.of("seal")[-1].payload.root
    assert {(1, 0), (5, 1)} <= set(points(page.history))
    assert only(home / "runs").of("anchor")[-1].payload.place.endswith(f"r1#lineage/anchor of {backend.url}")
    again = sync(only(home / "runs"), *aliases, uri=backend.url)
    assert (again.shown, again.anchor, again.problems) == (0, None, [])
