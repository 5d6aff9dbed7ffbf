"""A script's own W&B calls, and the local logs that come of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from trackers.wandb_ import offline_log


class WandbSide:
    """Runs in one project: offline, or online where a backend's address is in the environment."""

    def __init__(self, *, mode: str = "offline", project: str = "pretraining") -> None:
        self.mode, self.project = mode, project
        self.logs: dict[str, list[Path]] = {}
        self._run: Any = None

    def begin(self, name: str, config: Mapping[str, Any], notes: str) -> Any:
        """Start or resume a run; as scripts do, with the new config over the old."""
        self._run = wandb.init(
            project=self.project,
            id=name,
            name=name,
            notes=notes,
            mode=self.mode,
            resume="must" if self.mode == "online" and name in self.logs else None,
            settings=wandb.Settings(x_disable_stats=True, x_disable_meta=True, console="off"),
        )
        self._run.config.update(dict(config), allow_val_change=True)
        self._run.define_metric("loss", step_metric="step")
        self.logs.setdefault(name, []).append(Path(self._run.settings.sync_file))
        return self._run

    def log(self, losses: Mapping[int, float]) -> None:
        """Log the losses with the step as a column, as loops do that may go back."""
        for step, loss in losses.items():
            self._run.log({"step": step, "loss": loss})

    def end(self) -> None:
        """End the run as a script does."""
        self._run.finish()

    def log_of(self, name: str) -> Path:
        """The local log of a run's newest process."""
        return self.logs[name][-1]

    def panel(self, name: str) -> Path:
        """The file that W&B puts into the frame of the panel `lineage/report`."""
        log = self.log_of(name)
        return log.parent / "files" / str(offline_log.read_run(log).summary["lineage/report"]["path"])
