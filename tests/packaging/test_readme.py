"""The README says what is there: its code runs, its commands and targets exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import REPOSITORY

README = (REPOSITORY / "README.md").read_text()


def test_the_first_line_names_the_distribution() -> None:
    assert "`runlineage`" in README.splitlines()[0]


def test_the_table_lists_exactly_the_commands_that_exist() -> None:
    import typer.main

    from lineage.cli import app

    there = set(typer.main.get_command(app.app).commands)  # type: ignore[attr-defined]
    assert set(re.findall(r"^\| `lineage ([\w-]+)`", README, re.M)) == there


def test_make_alone_lists_every_target_with_what_it_does() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    shown = subprocess.run(["make"], capture_output=True, text=True, check=True, cwd=REPOSITORY).stdout
    assert set(re.findall(r"^  make ([a-z-]+) +\S", shown, re.M)) == targets
    for page in ("README.md", "CONTRIBUTING.md"):
        named = re.findall(r"(?:^    |`)make ([a-z-]+)", (REPOSITORY / page).read_text(), re.M)
        assert {"test"} <= set(named) <= targets, page


def test_the_loop_of_the_readme_runs_and_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from lineage import open_ledger
    from lineage.recorder.written import GONE

    (code,) = re.findall(r"<!-- tested -->\n```python\n(.*?)```", README, re.S)
    code = code.replace("attach(run,", "attach(None,").replace("step % 1000", "step % 2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LINEAGE_RUN_ID", "readme")
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    logged: list[int] = []

    class Run:
        def log(self, values: dict[str, Any], step: int) -> None:
            logged.append(step)

    def train_step(batch: Any) -> Any:
        optimizer.zero_grad()
        loss = (model(batch) ** 2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        return loss

    def save(path: Path) -> None:
        path.mkdir(exist_ok=True)
        torch.save(model.state_dict(), path / "model.pt")

    names = {
        "run": Run(),
        "model": model,
        "optimizer": optimizer,
        "scheduler": scheduler,
        "loader": torch.utils.data.DataLoader(torch.randn(16, 4), batch_size=4),
        "config": {"lr": 0.1},
        "resume_path": None,
        "done": 0,
        "path": tmp_path / "checkpoint",
        "train_step": train_step,
        "save": save,
    }
    exec(compile(code, "README.md", "exec"), names)
    assert logged == [1, 2, 3, 4]
    ledger = open_ledger(tmp_path / "lineage-runs" / "readme")
    assert ledger.damage == []
    newest = {r.payload.step: r.payload for r in ledger.of("checkpoint")}
    assert list(newest) == [2, 4]
    assert newest[4].status == "complete"
    # one folder for all saves: the first is digested in time, or is told to be written over
    assert newest[2].status == "complete" or newest[2].missing == [GONE]
    assert ledger.series("probes", ["step", "signal"]).num_rows >= 4
    assert (tmp_path / "checkpoint" / "lineage.json").exists()
