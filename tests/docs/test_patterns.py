"""The patterns for frameworks that are not installed here hold what those frameworks do, by their own sources."""

from __future__ import annotations

import ast
import importlib
import sys
import types
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from .blocks import DOCS

ROOT = DOCS.parent
EXAMPLES = ROOT / "examples"
TITAN = ROOT / ".frameworks" / "torchtitan-0.3.0" / "torchtitan"
OLMO = ROOT / ".frameworks" / "ai2-olmo-core-3.0.0" / "olmo_core" / "train"


def defined(path: Path, name: str) -> set[str]:
    """The methods of a class in a file, and the attributes that they set on `self`."""
    (found,) = (n for n in ast.parse(path.read_text()).body if isinstance(n, ast.ClassDef) and n.name == name)
    methods = {n.name for n in found.body if isinstance(n, ast.FunctionDef)}
    stored = {
        n.attr
        for n in ast.walk(found)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "self"
    }
    return methods | stored


def overridden(path: Path, name: str) -> set[str]:
    """The public methods that a class of an example has."""
    (found,) = (n for n in ast.parse(path.read_text()).body if isinstance(n, ast.ClassDef) and n.name == name)
    return {n.name for n in found.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")}


@pytest.mark.skipif(not TITAN.exists(), reason="`make test-frameworks` fetches torchtitan's source")
def test_the_torchtitan_pattern_overrides_and_reads_what_its_trainer_has() -> None:
    trainer = defined(TITAN / "trainer.py", "Trainer")
    assert overridden(EXAMPLES / "torchtitan_recorded.py", "Recorded") <= trainer
    assert {
        "model_parts",
        "optimizers",
        "lr_schedulers",
        "dataloader",
        "checkpointer",
        "step",
        "config",
    } <= trainer
    saver = defined(TITAN / "components" / "checkpointer" / "dcp.py", "CheckpointManager")
    assert {"folder", "save_future"} <= saver


@pytest.mark.skipif(not OLMO.exists(), reason="`make test-frameworks` fetches OLMo-core's source")
def test_the_olmo_core_callback_has_no_hook_that_its_trainer_does_not_call() -> None:
    hooks = defined(OLMO / "callbacks" / "callback.py", "Callback")
    assert overridden(EXAMPLES / "olmo_core_callback.py", "LineageCallback") <= hooks
    assert {"get_metric", "checkpointer", "train_module", "data_loader"} <= defined(
        OLMO / "trainer.py", "Trainer"
    )


@pytest.fixture
def callback(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The callback of the example, over a base class as OLMo-core's where that is not installed."""

    class Callback:
        trainer: Any = None
        step = property(lambda self: self.trainer.global_step)

    for name in ("olmo_core", "olmo_core.train", "olmo_core.train.callbacks"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["olmo_core.train.callbacks"].Callback = Callback  # type: ignore[attr-defined]
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "olmo_core_callback", raising=False)
    found = importlib.import_module("olmo_core_callback")
    yield found.LineageCallback
    sys.modules.pop("olmo_core_callback", None)


def test_the_olmo_core_callback_records_updates_and_both_kinds_of_saves(
    callback: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from lineage import open_ledger

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LINEAGE_RUN_ID", "olmo")
    model = torch.nn.Linear(4, 1)
    optim = torch.optim.SGD(model.parameters(), lr=0.1)
    losses: dict[int, Any] = {}

    class Saver:
        def save(self, path: Path) -> None:
            path.mkdir()
            torch.save(model.state_dict(), path / "model.pt")

        def save_async(self, path: Path) -> Future[None]:
            Saver.save(self, path)
            done: Future[None] = Future()
            done.set_result(None)
            return done

    trainer = SimpleNamespace(
        global_step=0,
        train_module=SimpleNamespace(model=model, optim=optim),
        data_loader=None,
        checkpointer=Saver(),
    )
    trainer.get_metric = lambda name: losses.get(trainer.global_step)
    mine = callback(config={"lr": 0.1})
    mine.trainer = trainer
    mine.pre_train()
    for step in range(1, 5):
        trainer.global_step = step
        batch = {"x": torch.randn(2, 4)}
        mine.pre_step(batch)
        optim.zero_grad()
        losses[step] = model(batch["x"]).square().mean()
        losses[step].backward()
        optim.step()
        mine.post_train_batch()
        if step == 2:
            trainer.checkpointer.save(tmp_path / "step2")
        if step == 4:
            trainer.checkpointer.save_async(tmp_path / "step4")
    mine.post_train()

    ledger = open_ledger(tmp_path / "lineage-runs" / "olmo")
    assert ledger.damage == []
    newest = {r.payload.step: r.payload.status for r in ledger.of("checkpoint")}
    assert newest == {2: "complete", 4: "complete"}
    rows = ledger.series("probes", ["step", "signal", "value"]).to_pylist()
    held = {r["step"]: r["value"] for r in rows if r["signal"] == "loss"}
    assert held == pytest.approx({s: float(v.detach()) for s, v in losses.items()})
