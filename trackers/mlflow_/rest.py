"""MLflow's REST interface with time limits of our own.

`MlflowClient` takes its time limits from the process's environment alone: seven retries and 120 seconds each,
so that one call to a dead server lasts 246 seconds. Changing the environment, or the client that the user's
own calls share, would change the user's calls. MLflow's `http_request`, which the client itself sends
through (credentials, headers and certificates included), takes the limits as arguments: so it is called here.
Endpoints: https://mlflow.org/docs/latest/rest-api.html
"""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mlflow.exceptions import InvalidUrlException, MlflowException
from mlflow.utils.credentials import get_default_host_creds
from mlflow.utils.rest_utils import http_request

from ..base import TrackerRefused, TrackerUnavailable
from .store import TAGS_PER_BATCH, DatasetInput, ModelsUnsupported, Point, RunFacts, mask_text, mask_uri

API = "/api/2.0/mlflow/"
TIMEOUT = (3.0, 10.0)
"""Seconds to connect, and between two bytes of an answer."""
UPLOAD_TIMEOUT = (3.0, 60.0)
_PASSING = (408, 425, 429)
"""Client errors that pass by themselves."""


class RestStore:
    """One run on an MLflow server. A call lasts seconds, not minutes, whatever the server does."""

    def __init__(self, tracking_uri: str, run_id: str) -> None:
        self._uri, self._run = tracking_uri, run_id
        self._artifacts: str | None = None

    def facts(self) -> RunFacts:
        """Read the run with `runs/get`."""
        run = self._call("GET", "runs/get", params={"run_id": self._run})["run"]
        info, data = run["info"], run.get("data", {})
        self._artifacts = info["artifact_uri"]
        return RunFacts(
            experiment=info["experiment_id"],
            artifacts=info["artifact_uri"],
            tags={t["key"]: t.get("value", "") for t in data.get("tags", [])},
            params={p["key"]: p.get("value", "") for p in data.get("params", [])},
            metrics={m["key"]: float(m.get("value", "nan")) for m in data.get("metrics", [])},
            inputs=frozenset(m["model_id"] for m in run.get("inputs", {}).get("model_inputs", [])),
            outputs=frozenset(m["model_id"] for m in run.get("outputs", {}).get("model_outputs", [])),
        )

    def log(self, tags: Mapping[str, str], points: Sequence[Point] = ()) -> None:
        """Send one `runs/log-batch` per hundred tags; the points go with the first."""
        items = [{"key": k, "value": v} for k, v in tags.items()]
        metrics = [vars(p) for p in points]
        for start in range(0, max(len(items), 1), TAGS_PER_BATCH):
            body = {"run_id": self._run, "tags": items[start : start + TAGS_PER_BATCH]}
            self._call("POST", "runs/log-batch", {**body, "metrics": metrics if start == 0 else []})

    def delete_tag(self, key: str) -> None:
        """Remove a tag."""
        self._call("POST", "runs/delete-tag", {"run_id": self._run, "key": key})

    def upload(self, file: Path, folder: str, name: str) -> None:
        """Send a file to the server, or, where artifacts lie elsewhere, through MLflow's client.

        The client has MLflow's own time limits; it is used only after the server has just answered, and
        on the worker thread.
        """
        uri = self._artifacts or self.facts().artifacts
        if not uri.startswith(("mlflow-artifacts:", "http:", "https:")):
            from .client import upload

            upload(self._uri, self._run, file, folder, name)
            return
        from mlflow.store.artifact.mlflow_artifacts_repo import MlflowArtifactsRepository

        if uri.startswith("mlflow-artifacts:"):
            uri = MlflowArtifactsRepository.resolve_uri(uri, self._uri)
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        with file.open("rb") as f:
            self._send(
                "PUT",
                quote(f"/{folder}/{name}"),
                host=uri,
                data=f,
                timeout=UPLOAD_TIMEOUT,
                extra_headers={"Content-Type": kind},
            )

    def find_model(self, experiment: str, uid: str) -> str | None:
        """Search the experiment's LoggedModels."""
        body = {
            "experiment_ids": [experiment],
            "filter": f"tags.`lineage/uid` = '{uid}'",
            "max_results": 1,
        }
        models = self._call("POST", "logged-models/search", body, models=True).get("models", [])
        return str(models[0]["info"]["model_id"]) if models else None

    def create_model(
        self, experiment: str, name: str, params: Mapping[str, str], tags: Mapping[str, str]
    ) -> str:
        """Create a LoggedModel without weights."""
        body = {
            "experiment_id": experiment,
            "name": name,
            "model_type": "checkpoint",
            "source_run_id": self._run,
            "params": [{"key": k, "value": v} for k, v in params.items()],
            "tags": [{"key": k, "value": v} for k, v in tags.items()],
        }
        return str(self._call("POST", "logged-models", body, models=True)["model"]["info"]["model_id"])

    def finish_model(self, model: str) -> None:
        """Mark a LoggedModel as ready."""
        self._call("PATCH", f"logged-models/{model}", {"model_id": model, "status": "LOGGED_MODEL_READY"})

    def tag_model(self, model: str, tags: Mapping[str, str]) -> None:
        """Set tags of a LoggedModel."""
        items = [{"key": k, "value": v} for k, v in tags.items()]
        self._call("PATCH", f"logged-models/{model}/tags", {"model_id": model, "tags": items})

    def add_output(self, model: str, step: int) -> None:
        """Add an output of the run."""
        body = {"run_id": self._run, "models": [{"model_id": model, "step": step}]}
        self._call("POST", "runs/outputs", body)

    def add_input(self, model: str) -> None:
        """Add an input of the run."""
        self._call("POST", "runs/log-inputs", {"run_id": self._run, "models": [{"model_id": model}]})

    def add_dataset(self, dataset: DatasetInput) -> None:
        """Add a dataset to the run's inputs."""
        entry = {
            "tags": [{"key": "mlflow.data.context", "value": dataset.context}],
            "dataset": {k: v for k, v in vars(dataset).items() if k != "context"},
        }
        self._call("POST", "runs/log-inputs", {"run_id": self._run, "datasets": [entry]})

    def _call(
        self, method: str, path: str, body: Any = None, *, models: bool = False, **options: Any
    ) -> dict[str, Any]:
        """Call an endpoint; `models` tells that an MLflow before 3.0 lacks it."""
        if body is not None:
            options["json"] = body
        response = self._send(method, API + path, models=models, **options)
        try:
            answer: dict[str, Any] = response.json()
        except ValueError:
            raise TrackerUnavailable(
                f"{mask_uri(self._uri)}{API}{path} answered with something other than JSON: "
                f"{response.text[:120]!r}. Is the tracking URI an MLflow server's, or a login page's?"
            ) from None
        return answer

    def _send(
        self, method: str, endpoint: str, *, host: str | None = None, models: bool = False, **options: Any
    ) -> Any:
        options.setdefault("timeout", TIMEOUT)
        where = f"{method} {mask_uri(host or self._uri)}{endpoint}"
        try:
            response = http_request(
                get_default_host_creds(host or self._uri),
                endpoint,
                method,
                max_retries=0,
                retry_codes=frozenset(),
                raise_on_status=False,
                **options,
            )
        except InvalidUrlException as e:
            raise TrackerRefused(f"{where}: {mask_text(e)}") from None
        except MlflowException as e:
            if e.error_code == "CUSTOMER_UNAUTHORIZED":
                raise TrackerRefused(f"{where}: {mask_text(e)}") from None
            raise TrackerUnavailable(f"{where}: {mask_text(e)}") from None
        if response.status_code == 200:
            return response
        raise _outcome(response, where, models)


def _outcome(response: Any, where: str, models: bool) -> Exception:
    """Say what an answer other than 200 means: later, never, or an endpoint that is not there."""
    status = response.status_code
    try:
        answer = response.json()
        code, message = str(answer.get("error_code", "")), str(answer.get("message", ""))
    except (ValueError, AttributeError):
        code, message = "", response.text[:200]
    said = f"{where}: {status} {code} {mask_text(message)}".rstrip()
    if models and (status in (405, 501) or (status == 404 and code != "RESOURCE_DOES_NOT_EXIST")):
        return ModelsUnsupported(said)
    if status >= 500 or status in _PASSING:
        return TrackerUnavailable(said)
    if status in (401, 403):
        return TrackerRefused(f"{said}. Renew the tracker's credentials, then: lineage sync")
    return TrackerRefused(said)
