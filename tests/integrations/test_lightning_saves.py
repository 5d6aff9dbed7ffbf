"""Lightning's saves with the layer: when they are there, which rotation may delete, and where the run is told."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("lightning")

from lightning.pytorch.plugins import AsyncCheckpointIO, TorchCheckpointIO

from lineage.integrations.lightning import LineageCallback, LineageCheckpointIO
from lineage.ledger import sidecars
from lineage.ledger.reader import find
from lineage.recorder.protection import Protection

from . import lightning_loops as loops
from .printed import Told

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning:lightning.*", "ignore::FutureWarning:lightning.*"),
]


def test_importing_lineage_imports_no_framework() -> None:
    code = (
        "import lineage, lineage.integrations, sys; "
        "sys.exit(any(m.split('.')[0] in ('lightning', 'torch') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Held(TorchCheckpointIO):  # type: ignore[misc]
    """Writes only when it is let."""

    def __init__(self) -> None:
        self.may = threading.Event()

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        assert self.may.wait(60)
        super().save_checkpoint(*args, **kwargs)


@pytest.mark.parametrize(
    "outside", [False, True], ids=["AsyncCheckpointIO outside", "AsyncCheckpointIO inside"]
)
def test_an_asynchronous_save_is_complete_when_its_file_is_there_and_has_the_state_of_its_step(
    outside: bool, tmp_path: Path
) -> None:
    """The file is written only after the next steps; the sidecar holds the digests of the step that was saved."""
    held, seen = Held(), []

    class Watch(loops.lightning.Callback):  # type: ignore[name-defined,misc]
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == 4:
                seen.append(list(tmp_path.glob("*.lineage.json")))
                held.may.set()

    io = (
        LineageCheckpointIO(AsyncCheckpointIO(held))
        if outside
        else AsyncCheckpointIO(LineageCheckpointIO(held))
    )
    loops.fit(tmp_path, steps=5, io=io, callbacks=(Watch(),), saves={"every_n_train_steps": 3})
    assert seen == [[]]
    sidecar = sidecars.read(loops.checkpoint(tmp_path, 3))
    assert sidecar is not None
    assert (sidecar.checkpoint.step, sidecar.checkpoint.status) == (3, "complete")
    (tmp_path / "again").mkdir()
    (tmp_path / "random-3-0.pt").rename(tmp_path / "again" / "random-3-0.pt")
    loops.fit(tmp_path / "again", steps=5, start=loops.checkpoint(tmp_path, 3), runs=tmp_path / "runs")
    assert set(Told(tmp_path / "runs").statuses().values()) == {"restored"}


def test_an_asynchronous_save_that_nothing_can_follow_is_said(tmp_path: Path) -> None:
    loops.fit(tmp_path, steps=3, io=AsyncCheckpointIO(), saves={"every_n_train_steps": 2})
    (coverage,) = Told(tmp_path / "runs").payloads("coverage")
    assert "plugins=[AsyncCheckpointIO(LineageCheckpointIO())]" in " ".join(coverage.gaps)


class Breaks(loops.Net):
    """Every loss from step 12 on is no number."""

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = super().training_step(batch, index)
        return loss * (float("nan") if self.trainer.global_step >= 11 else 1.0)


def test_rotation_keeps_the_last_good_and_the_first_bad_checkpoint_of_an_open_incident(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`save_top_k=1` deletes each save at the next one; of 5, 10, 15, 20 and 25 those around the NaN stay."""
    loops.fit(tmp_path, module=Breaks(), steps=27, saves={"every_n_train_steps": 5, "save_top_k": 1})
    left = {int(p.stem.partition("step=")[2]) for p in tmp_path.glob("*.ckpt")}
    assert {10, 15, 25} <= left
    assert not {5, 20} & left
    assert "step=10.ckpt stays, though rotation would delete it" in caplog.text
    told = Told(tmp_path / "runs")
    marks = {(m.mark, step_of(told, m.checkpoint)) for m in told.payloads("checkpoint_mark")}
    assert {("last_good", 10), ("first_bad", 15), ("deleted", 5), ("deleted", 20)} <= marks
    assert not (tmp_path / "epoch=0-step=5.ckpt.lineage.json").exists()


def step_of(told: Told, uid: str) -> int:
    """The step of a checkpoint."""
    return next(c.step for c in told.payloads("checkpoint") if c.uid == uid)  # type: ignore[no-any-return]


def test_a_held_checkpoint_is_moved_away_before_it_is_written_over(tmp_path: Path) -> None:
    """`last.ckpt` is one file, written over at each save: the state before the NaN is kept beside it."""
    saves = {"every_n_train_steps": 5, "save_top_k": 0, "save_last": True}
    loops.fit(tmp_path / "a", module=Breaks(), steps=22, saves=saves, runs=tmp_path / "runs")
    kept = (tmp_path / "a.kept").rglob("last.ckpt")
    assert {10, 15} <= {torch.load(p, weights_only=False)["global_step"] for p in kept}
    assert torch.load(tmp_path / "a" / "last.ckpt", weights_only=False)["global_step"] == 20


def test_what_an_open_incident_holds_outlives_the_rotation_of_a_later_run_that_does_not_record(
    tmp_path: Path,
) -> None:
    """A person opened it. The CheckpointIO alone asks the ledger that the sidecar names."""
    recording = LineageCallback(dir=tmp_path / "runs", quiet=True, report=False)

    class Looks(loops.lightning.Callback):  # type: ignore[name-defined,misc]
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == 12:
                recording.rec.incident("the samples look odd", step=12)

    loops.fit(tmp_path, steps=12, layer=False, io=LineageCheckpointIO(), callbacks=(recording, Looks()))
    path = loops.checkpoint(tmp_path, 10)
    rotation = LineageCheckpointIO()
    rotation.remove_checkpoint(path)
    assert path.exists()
    (ledger,) = find(tmp_path / "runs")
    assert "samples look odd" in (Protection(ledger).holds(path) or "")


def test_mlflows_and_wandbs_loggers_give_the_run_that_they_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real clients, MLflow on SQLite and W&B offline."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    import mlflow
    import wandb
    from lightning.pytorch.loggers import MLFlowLogger, WandbLogger

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    mine = MLFlowLogger("runs", tracking_uri=uri, artifact_location=str(tmp_path / "artifacts"))
    loops.fit(tmp_path / "mlflow", steps=3, logger=mine)
    (run,) = Told(tmp_path / "mlflow" / "runs").payloads("run")
    assert [(a.tracker, a.id) for a in run.aliases] == [("mlflow", mine.run_id)]
    tags = mlflow.MlflowClient(uri).get_run(mine.run_id).data.tags
    assert any(k.startswith("lineage") for k in tags)
    theirs = WandbLogger(project="p", save_dir=tmp_path)
    loops.fit(tmp_path / "wandb", steps=3, logger=theirs)
    (run,) = Told(tmp_path / "wandb" / "runs").payloads("run")
    assert [(a.tracker, a.id) for a in run.aliases] == [("wandb", theirs.experiment.id)]
    wandb.finish()


def test_an_alarm_that_asks_to_stop_stops_the_trainer(tmp_path: Path) -> None:
    net = Breaks()
    loops.fit(tmp_path, module=net, steps=30, attach={"on_alarm": "request_stop"})
    assert 12 <= net.trainer.global_step < 20


def test_one_callback_records_two_fits_as_two_segments(tmp_path: Path) -> None:
    callback = LineageCallback(dir=tmp_path / "runs", run_id="two", quiet=True, report=False)
    for steps in (2, 3):
        loops.fit(tmp_path, steps=steps, layer=False, callbacks=(callback,), rng=False)
    told = Told(tmp_path / "runs")
    ends = [r.payload for r in told.ledger.of("segment_end")]
    assert [(e.reason, e.last_step) for e in ends] == [("finished", 2), ("finished", 3)]
