"""`lineage pull wandb://...`: a ledger from a W&B server alone, here the stub on loopback with the real client."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lineage.ledger.reader import Ledger
from tests.e2e.training import FIRST, attach, settle, start_wandb, train
from tests.recorder.loop import Loop
from tests.trackers.wandb.stub_backend import ENTITY, StubBackend, served

from .command import asked, lineage


@pytest.fixture
def backend(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubBackend]:
    with served(monkeypatch) as stub:
        yield stub


def test_an_online_run_is_pulled_and_fits_the_anchor_on_its_page(backend: StubBackend, home: Path) -> None:
    run, loop = start_wandb(id="r1", mode="online", config=FIRST), Loop()
    with attach(loop, home / "runs", run=run, config=FIRST) as rec:
        train(loop, rec, 4, lambda step, loss: run.log({"loss": loss}, step=step), slow=False)
        rec.checkpoint(loop.save(home / "ck"), step=4)
        settle(rec)
    run.finish()
    shutil.move(home / "runs", home / "away")
    out = home / "pulled"
    done = asked(0, "pull", f"wandb://{ENTITY}/p/r1", "--out", out)
    assert [p["anchors"] for p in done["pages"]] == [[backend.runs["r1"].values["lineage/anchor"]["root"]]]
    assert asked(0, "verify", out)["whole"]
    logged = Ledger(out).series("metrics", ["step", "key"]).to_pylist()
    assert [r["step"] for r in logged if r["key"] == "loss"] == [1, 2, 3, 4]
    address = f"{backend.url}/{ENTITY}/p/runs/r1"
    assert lineage("audit", address).returncode == 0
    missing = lineage("pull", f"wandb://{ENTITY}/p/nobody", "--out", home / "none")
    assert missing.returncode in (2, 4)
    assert "nobody" in missing.stderr
    assert not (home / "none").exists()
