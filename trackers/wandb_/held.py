"""A W&B run read back from its folder on disk (`offline-run-*`, `run-*`): its log, and our files beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ..base import PREFIX, TrackerRefused
from ..held import About, Asked, HeldFile, HeldRoot, Logged, bounded, copy_into, in_folder
from . import offline_log, rows


class WandbFolderHeld:
    """One run folder of the client. The log is read as far as it is whole."""

    tracker = "wandb"

    def __init__(self, folder: Path) -> None:
        self._log_path = offline_log.find_log(folder)
        self._folder = self._log_path.parent
        self.id = self._log_path.stem.removeprefix("run-")
        self.place = (
            f"offline:{self._folder.name}" if "offline-run-" in self._folder.name else str(self._folder)
        )
        self.source = str(self._folder)

    @cached_property
    def _log(self) -> offline_log.OfflineRun:
        try:
            return offline_log.read_run(self._log_path)
        except (offline_log.NotARunLog, OSError) as e:
            raise TrackerRefused(str(e)) from None

    def run(self) -> str | None:
        """The config key `lineage/run`."""
        return run_of(self._log.config)

    def about(self) -> About:
        """What the log says beside its values."""
        log = self._log
        gaps = ["W&B writes a row when the next one begins: a change of the config may stand one row early"]
        if log.torn:
            gaps.append("the log ends within a record: the run was killed, or still writes")
        if log.damaged:
            gaps.append(
                f"{len(log.damaged):,} blocks of 32 KiB of the log cannot be read; what stood there is missing"
            )
        if log.exit_code is None and not log.torn:
            gaps.append("the log has no end of the run")
        axes = [(name, str(m["step_metric"])) for name, m in log.metrics.items() if m.get("step_metric")]
        tags = {"tags": ", ".join(t for t in log.tags if not t.startswith("lineage:"))}
        status = "" if log.exit_code is None else f"exit code {log.exit_code}"
        return About(
            name=log.name,
            status=status,
            tags={k: v for k, v in tags.items() if v},
            commit=log.commit,
            axes=[a for a in axes if not a[0].startswith(PREFIX)],
            gaps=gaps,
        )

    def anchors(self) -> list[HeldRoot]:
        """The config key `lineage/anchor`: the newest root."""
        log = self._log
        return anchors_of(log.config, "/".join(p for p in (log.entity, log.project, log.id) if p), self.place)

    def files(self) -> list[HeldFile]:
        """The chunks of the journal, beside the log."""
        return bounded([f for f in in_folder(self._home) if f.name.startswith("journal/")], self.place)

    def fetch(self, folder: Path) -> None:
        """Copy them."""
        copy_into(self._home, self.files(), folder)

    def rows(self) -> Iterator[Logged]:
        """All rows of the log."""
        return rows.rows(self._log.history, self._log.row_numbers)

    def configs(self) -> list[Asked]:
        """Every config that the log tells of: the first one too, which the page loses on a resume."""
        return rows.configs(self._log.config_changes, self._log.row_numbers)

    def others(self) -> list[WandbFolderHeld]:
        """Folders beside this one, of the same W&B run or the same lineage run: each segment has one of its own."""
        run, out = self.run(), []
        for folder in sorted(self._folder.parent.glob("*run-*")):
            if folder == self._folder or not folder.is_dir() or folder.is_symlink():
                continue
            try:
                other = WandbFolderHeld(folder)
                same = other.id == self.id
                ours = not same and run is not None and other._home.is_dir() and other.run() == run
            except (offline_log.NotARunLog, TrackerRefused, OSError):
                continue
            if same or ours:
                out.append(other)
        return out

    @property
    def _home(self) -> Path:
        return self._folder / "files" / PREFIX


def run_of(config: Mapping[str, Any]) -> str | None:
    """The lineage run id in a run's config."""
    found = config.get(f"{PREFIX}run")
    return str(found["id"]) if isinstance(found, Mapping) and found.get("id") else None


def anchors_of(config: Mapping[str, Any], path: str, place: str) -> list[HeldRoot]:
    """The newest root in a run's config."""
    found = config.get(f"{PREFIX}anchor")
    if not isinstance(found, Mapping) or not isinstance(found.get("root"), str):
        return []
    return [HeldRoot(str(found["root"]), f"wandb:{path}#{PREFIX}anchor of {place}")]
