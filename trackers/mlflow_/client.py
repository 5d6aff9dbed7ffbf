"""MLflow through its own client: stores without a server (SQLite and other databases, folders, Databricks).

Never the fluent interface: the active run belongs to the user's thread.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlflow import MlflowClient, entities
from mlflow.exceptions import MlflowException

from ..base import TrackerRefused, TrackerUnavailable
from .store import TAGS_PER_BATCH, DatasetInput, ModelsUnsupported, Point, RunFacts, mask_text

_PASSING = (408, 425, 429)


@contextmanager
def _outcomes(what: str) -> Iterator[None]:
    """Turn MLflow's errors into later (`TrackerUnavailable`) or never (`TrackerRefused`)."""
    try:
        yield
    except NotImplementedError as e:
        raise ModelsUnsupported(f"{what}: this store has no LoggedModels ({mask_text(e)})") from None
    except MlflowException as e:
        status = e.get_http_status_code()
        passing = status >= 500 or status in _PASSING or "database is locked" in str(e)
        said = f"{what}: {e.error_code} {mask_text(e)}"
        raise (TrackerUnavailable if passing else TrackerRefused)(said) from None
    except OSError as e:
        raise TrackerUnavailable(f"{what}: {type(e).__name__}: {mask_text(e)}") from None
    except Exception as e:
        if type(e).__name__ != "OperationalError":  # SQLAlchemy's or the driver's: locked, unreachable
            raise
        raise TrackerUnavailable(f"{what}: {mask_text(e)}") from None


def upload(tracking_uri: str, run_id: str, file: Path, folder: str, name: str) -> None:
    """Put a file on a run under another name; MLflow keeps the file's own, so it is copied first."""
    with _outcomes(f"log_artifact {folder}/{name}"), tempfile.TemporaryDirectory() as scratch:
        source = file
        if file.name != name:
            source = Path(scratch) / name
            shutil.copyfile(file, source)
        MlflowClient(tracking_uri).log_artifact(run_id, str(source), artifact_path=folder)


class ClientStore:
    """One run in a store that MLflow reaches without a server of ours to time out on."""

    def __init__(self, tracking_uri: str, run_id: str) -> None:
        self._uri, self._run = tracking_uri, run_id
        self._made: Any = None

    @property
    def _client(self) -> Any:
        """The client, made on first use: opening a database is not for the caller's thread."""
        if self._made is None:
            self._made = MlflowClient(self._uri)
        return self._made

    def facts(self) -> RunFacts:
        """Read the run."""
        with _outcomes("get_run"):
            run = self._client.get_run(self._run)
        # runs of MLflow 2 have no model inputs, and no outputs at all
        inputs = getattr(getattr(run, "inputs", None), "model_inputs", None) or []
        outputs = getattr(getattr(run, "outputs", None), "model_outputs", None) or []
        return RunFacts(
            experiment=run.info.experiment_id,
            artifacts=run.info.artifact_uri,
            tags=dict(run.data.tags),
            params=dict(run.data.params),
            metrics=dict(run.data.metrics),
            inputs=frozenset(m.model_id for m in inputs),
            outputs=frozenset(m.model_id for m in outputs),
        )

    def log(self, tags: Mapping[str, str], points: Sequence[Point] = ()) -> None:
        """Send one `log_batch` per hundred tags; the points go with the first."""
        items = [entities.RunTag(k, v) for k, v in tags.items()]
        metrics = [entities.Metric(p.key, p.value, p.timestamp, p.step) for p in points]
        with _outcomes("log_batch"):
            for start in range(0, max(len(items), 1), TAGS_PER_BATCH):
                self._client.log_batch(
                    self._run,
                    metrics=metrics if start == 0 else [],
                    tags=items[start : start + TAGS_PER_BATCH],
                )

    def delete_tag(self, key: str) -> None:
        """Remove a tag."""
        with _outcomes("delete_tag"):
            self._client.delete_tag(self._run, key)

    def upload(self, file: Path, folder: str, name: str) -> None:
        """Put a file under the run's artifacts."""
        upload(self._uri, self._run, file, folder, name)

    def find_model(self, experiment: str, uid: str) -> str | None:
        """Search the experiment's LoggedModels."""
        with _outcomes("search_logged_models"):
            search = self._models("search_logged_models")
            found = search([experiment], filter_string=f"tags.`lineage/uid` = '{uid}'", max_results=1)
        return str(found[0].model_id) if found else None

    def create_model(
        self, experiment: str, name: str, params: Mapping[str, str], tags: Mapping[str, str]
    ) -> str:
        """Create a LoggedModel without weights."""
        with _outcomes("create_logged_model"):
            create = self._models("create_logged_model")
            model = create(
                experiment,
                name=name,
                source_run_id=self._run,
                model_type="checkpoint",
                params=dict(params),
                tags=dict(tags),
            )
        return str(model.model_id)

    def finish_model(self, model: str) -> None:
        """Mark a LoggedModel as ready."""
        with _outcomes("finalize_logged_model"):
            self._client.finalize_logged_model(model, entities.LoggedModelStatus.READY)

    def tag_model(self, model: str, tags: Mapping[str, str]) -> None:
        """Set tags of a LoggedModel."""
        with _outcomes("set_logged_model_tags"):
            self._client.set_logged_model_tags(model, dict(tags))

    def add_output(self, model: str, step: int) -> None:
        """Add an output of the run."""
        with _outcomes("log_outputs"):
            self._client.log_outputs(self._run, [entities.LoggedModelOutput(model, step)])

    def add_input(self, model: str) -> None:
        """Add an input of the run."""
        with _outcomes("log_inputs"):
            self._client.log_inputs(self._run, models=[entities.LoggedModelInput(model)])

    def add_dataset(self, dataset: DatasetInput) -> None:
        """Add a dataset to the run's inputs."""
        d = dataset
        entity = entities.Dataset(d.name, d.digest, d.source_type, d.source)
        context = entities.InputTag("mlflow.data.context", d.context)
        with _outcomes("log_inputs"):
            self._client.log_inputs(self._run, datasets=[entities.DatasetInput(entity, [context])])

    def _models(self, name: str) -> Callable[..., Any]:
        """Return a method that MLflow has since 3.0."""
        method: Callable[..., Any] | None = getattr(self._client, name, None)
        if method is None:
            raise ModelsUnsupported(f"this MLflow client has no {name}")
        return method
