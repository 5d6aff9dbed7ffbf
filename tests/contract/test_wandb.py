"""The contract on W&B: the real client, offline, read back from its log."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

wandb = pytest.importorskip("wandb")

import lineage
from lineage.ledger.reader import Ledger
from tests.wandb_home import own_home
from trackers.contract import Seen, TrackerContract
from trackers.wandb_ import offline_log
from trackers.wandb_.adapter import WandbTracker
from trackers.wandb_.held import WandbFolderHeld

pytestmark = pytest.mark.slow

OWN_BUSINESS = ("_wandb", "lineage/state", "lineage/shown", "_timestamp", "_runtime", "_step", "lineage/step")
"""What the client and the adapter note for themselves."""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    with own_home(home, monkeypatch):
        yield


def begin(folder: Path) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    settings = wandb.Settings(console="off", disable_git=True)
    return wandb.init(project="p", mode="offline", dir=str(folder), settings=settings)


def ended(run: Any) -> offline_log.OfflineRun:
    """Finish a run and read its log, whose last block is written a moment later."""
    folder = Path(run.settings.sync_dir)
    run.finish()
    end = time.monotonic() + 120
    while time.monotonic() < end:
        with contextlib.suppress(offline_log.NotARunLog):  # not even its beginning is written yet
            log = offline_log.read_run(folder)
            if log.exit_code is not None:
                return log
        time.sleep(0.05)
    raise AssertionError(f"{folder} has no end after 120 s")


def kill_core() -> None:
    """Kill the client's service as the kernel does when memory runs out."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            name = (folder / "comm").read_text().strip()
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if name.startswith("wandb-core") and state != "Z" and int(parent) == os.getpid():
                os.kill(int(folder.name), signal.SIGKILL)


def forget_the_dead() -> None:
    """Let the client find out that its service is gone, so that the next run begins a new one."""
    with contextlib.suppress(
        Exception, SystemExit
    ):  # before 0.20 it ends with the exit code of the killed one
        wandb.teardown()


class TestWandbOffline(TrackerContract):
    kind = "wandb"
    not_shown = frozenset({"segment_end"})

    @pytest.fixture(autouse=True)
    def _runs(self) -> Iterator[None]:
        self.runs: dict[Path, Any] = {}
        self.alive = True
        yield
        if not self.alive:
            forget_the_dead()

    def open(self, place: Path) -> WandbTracker:
        if not self.alive:
            forget_the_dead()
            self.runs.clear()
            self.alive = True
        if place not in self.runs:
            for other in self.runs.values():
                other.finish()  # one run at a time is the client's own rule
            self.runs[place] = begin(place)
        return WandbTracker(self.runs[place], sole_writer=True)  # as `lineage sync` opens it

    def seen(self, place: Path) -> Seen:
        run = self.runs[place]
        log = ended(run)
        held = [
            ("config", {k: v for k, v in log.config.items() if k not in OWN_BUSINESS}),
            ("summary", {k: v for k, v in log.summary.items() if k not in OWN_BUSINESS}),
            ("rows", [{k: v for k, v in row.items() if k not in OWN_BUSINESS} for row in log.history]),
            ("tags", sorted(log.tags)),
            ("alerts", [(a.title, a.text) for a in log.alerts]),
            # Logged twice with one content, W&B keeps one version.
            ("artifacts", {a.digest: (a.name, sorted(a.aliases), a.metadata) for a in log.artifacts}),
        ]
        text = "\n".join(f"{where} {line}" for where, lines in held for line in _lines(lines))
        # Each key is written by one record; the first time counts.
        order = dict.fromkeys(
            c.value["record"]
            for c in log.config_changes
            if c.key.startswith("lineage/regime/") and isinstance(c.value, dict)
        )
        home = log.path.parent / "files" / "lineage"
        files = {p.relative_to(home).as_posix(): p.read_bytes() for p in home.rglob("*") if p.is_file()}
        return Seen(text, [str(i) for i in order], files)

    @contextmanager
    def dead(self, place: Path) -> Iterator[None]:
        """The client's service is killed. Nothing brings it back in this process but a new one."""
        self.alive = False
        kill_core()
        yield

    def held(self, place: Path) -> WandbFolderHeld:
        return WandbFolderHeld(Path(self.runs[place].settings.sync_dir))


def _lines(held: Any) -> list[str]:
    return (
        [f"{k}: {v}" for k, v in sorted(held.items())] if isinstance(held, dict) else [str(h) for h in held]
    )


def test_a_loop_with_the_layer_on_ends_and_its_page_has_the_verdict_and_a_loss(tmp_path: Path) -> None:
    run = begin(tmp_path)
    rec = lineage.attach(run, config={"lr": 0.1}, dir=tmp_path / "ledgers", exit_timeout=120, quiet=True)
    for step in (1, 2):
        with rec.step(step) as st:
            st.loss(1.0)
        run.log({"loss": 1.0}, step=step)
    rec.close()
    log = ended(run)
    assert log.summary["loss"] == 1.0
    assert "lineage/verdict" in log.config
    ledger = Ledger(next((tmp_path / "ledgers").iterdir()))
    assert not ledger.of("degraded"), ledger.of("degraded")
    assert [r.payload.tracker for r in ledger.of("anchor")] == ["wandb"]
