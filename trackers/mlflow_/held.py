"""An MLflow run read back through MLflow's own client: params, tags, metrics with their steps, our artifacts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlflow import MlflowClient

from ..base import PREFIX, TrackerRefused
from ..held import About, Asked, HeldFile, HeldRoot, Logged, bounded
from .client import _outcomes
from .limits import key
from .store import mask_uri

_JOURNAL = f"{PREFIX}journal"
APART = ("system/", PREFIX)
"""Metrics with a count of their own: of the machine, and ours."""
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
"""MLflow's own limits make a call to a dead server last four minutes; a person who waits at a terminal has less."""
QUIET = {"MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"}
_AXIS = "step of log_metric"


class MlflowHeld:
    """One MLflow run. Reading changes nothing on the server."""

    tracker = "mlflow"

    def __init__(self, uri: str, run_id: str) -> None:
        for name, value in {**PATIENCE, **QUIET}.items():
            os.environ.setdefault(name, value)
        self._uri, self.id = uri, run_id
        self.place = mask_uri(uri)
        self.source = f"mlflow://{self.place}/{run_id}"
        self._made: Any = None
        self._known: Any = None
        self._files: list[HeldFile] | None = None

    @property
    def _client(self) -> Any:
        if self._made is None:
            with _outcomes(f"opening {self.place}"):
                self._made = MlflowClient(self._uri)
        return self._made

    @property
    def _run(self) -> Any:
        if self._known is None:
            client = self._client
            with _outcomes(f"get_run {self.id} at {self.place}"):
                self._known = client.get_run(self.id)
        return self._known

    @property
    def _tags(self) -> dict[str, str]:
        return dict(self._run.data.tags)

    def run(self) -> str | None:
        """The tag `lineage/run`."""
        return self._tags.get(key("run"))

    def about(self) -> About:
        """Name, status, and everybody's tags; ours are told by the journal."""
        info, tags = self._run.info, self._tags
        gaps = ["params keep the first segment's values: MLflow refuses another value for the same key"]
        return About(
            name=info.run_name or "",
            status=str(info.status),
            tags={k: v for k, v in tags.items() if not k.startswith(PREFIX)},
            commit=tags.get("mlflow.source.git.commit", ""),
            began=_time(info.start_time),
            gaps=gaps if self._run.data.params else [],
        )

    def anchors(self) -> list[HeldRoot]:
        """The tag `lineage/anchor`: the newest root."""
        try:
            found = json.loads(self._tags.get(key("anchor"), "{}"))
            root = str(found["root"])
        except (ValueError, KeyError, TypeError):
            return []
        return [HeldRoot(root, f"runs/{self.id}/tags/{key('anchor')} of {self.place}")]

    def files(self) -> list[HeldFile]:
        """The artifacts under `lineage/journal`, with their sizes."""
        if self._files is None:
            with _outcomes(f"listing the artifacts of {self.id} at {self.place}"):
                found = list(self._listed(_JOURNAL))
            self._files = bounded(found, self.place)
        return self._files

    def _listed(self, folder: str) -> Iterator[HeldFile]:
        for f in self._client.list_artifacts(self.id, folder):
            if f.is_dir:
                yield from self._listed(f.path)
            else:
                yield HeldFile(f.path.removeprefix(PREFIX), int(f.file_size or 0))

    def fetch(self, folder: Path) -> None:
        """Download `lineage/journal`; MLflow's client fetches several files at once."""
        if not self.files():
            return
        import mlflow.artifacts

        inside = folder / ".download"  # MLflow puts a folder into it whose name depends on the store
        inside.mkdir(mode=0o700)
        with _outcomes(f"downloading the journal of {self.id} from {self.place}"):
            got = mlflow.artifacts.download_artifacts(
                run_id=self.id, artifact_path=_JOURNAL, dst_path=str(inside), tracking_uri=self._uri
            )
        if not Path(got).resolve().is_relative_to(inside.resolve()):
            raise TrackerRefused(f"MLflow gave {got} itself in place of a copy; it was left as it is")
        Path(got).rename(folder / "journal")

    def rows(self) -> Iterator[Logged]:
        """All points of all metrics; those of one step that follow each other are one row.

        MLflow keeps points by key: which were logged together is told by their step and their time.
        """
        points: list[tuple[int, int, str, float]] = []
        for name in sorted(self._run.data.metrics):
            if not name.startswith(APART):
                with _outcomes(f"get_metric_history {name} of {self.id} at {self.place}"):
                    history = self._client.get_metric_history(self.id, name)
                points += [(p.timestamp, p.step, name, float(p.value)) for p in history]
        held: dict[str, float] = {}
        step = at = number = 0
        for stamp, of, name, value in sorted(points, key=lambda p: p[:3]):
            if held and (of != step or name in held):
                number += 1
                yield Logged(step, _AXIS, held, _time(at), number)
                held = {}
            if not held:
                step, at = of, stamp
            held[name] = value
        if held:
            yield Logged(step, _AXIS, held, _time(at), number + 1)

    def configs(self) -> list[Asked]:
        """The params, which never change."""
        params = dict(self._run.data.params)
        return [Asked(params, 1, tuple(params), 0, _time(self._run.info.start_time))] if params else []

    def others(self) -> list[MlflowHeld]:
        """The other runs of the experiment that bear the same lineage run id: each segment may have had its own."""
        run = self.run()
        if run is None or "'" in run:
            return []
        with _outcomes(f"search_runs at {self.place}"):
            found = self._client.search_runs(
                [self._run.info.experiment_id],
                filter_string=f"tags.`{key('run')}` = '{run}'",
                max_results=1000,
            )
        return [MlflowHeld(self._uri, r.info.run_id) for r in found if r.info.run_id != self.id]


def _time(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
