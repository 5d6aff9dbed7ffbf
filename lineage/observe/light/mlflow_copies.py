"""What is copied of MLflow's calls. The fluent functions all go through `MlflowClient`, so that is where."""

from __future__ import annotations

import time

from .events import put, put_start, unhandled
from .values import PLAIN, one

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` takes longer to import than all of this
    from typing import Any

PARENT = "mlflow.parentRunId"


def _given(args: tuple[Any, ...], kwargs: dict[str, Any], at: int, name: str, default: Any = None) -> Any:
    return args[at] if len(args) > at else kwargs.get(name, default)


def created(args: tuple[Any, ...], kwargs: dict[str, Any], run: Any) -> None:
    """`client.create_run`: also what `mlflow.start_run` calls for a new run."""
    put_start(("mlflow started", time.time(), args[0].tracking_uri, *_facts(run), True, unhandled()))


def entered(args: tuple[Any, ...], kwargs: dict[str, Any], run: Any) -> None:
    """`mlflow.start_run` returned: of a run that was there before it knows what its first segment logged."""
    import mlflow

    put_start(("mlflow started", time.time(), mlflow.get_tracking_uri(), *_facts(run), False, unhandled()))


def _facts(run: Any) -> tuple[Any, ...]:
    info, data = run.info, run.data
    params = dict(data.params) if data is not None else {}
    parent = data.tags.get(PARENT) if data is not None else None
    return info.run_id, info.experiment_id, info.run_name, parent, params


def metric(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """`client.log_metric(run_id, key, value, timestamp, step)`."""
    value = _given(args, kwargs, 3, "value")
    key, step = _given(args, kwargs, 2, "key"), _given(args, kwargs, 5, "step")
    row = (key, value if type(value) in PLAIN else one(value), step)
    put(("mlflow logged", time.time(), args[0].tracking_uri, _given(args, kwargs, 1, "run_id"), (row,)))


def batch(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """`client.log_batch(run_id, metrics, params, tags)`: also the fluent plural forms, and autologging."""
    _batch(args, kwargs, None)


def batch_refused(args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> None:
    """The same, refused: the params say what was asked for all the same."""
    _batch(args, kwargs, type(error).__name__)


def _batch(args: tuple[Any, ...], kwargs: dict[str, Any], refused: str | None) -> None:
    uri, run_id = args[0].tracking_uri, _given(args, kwargs, 1, "run_id")
    metrics = _given(args, kwargs, 2, "metrics", ())
    params = _given(args, kwargs, 3, "params", ())
    tags = _given(args, kwargs, 4, "tags", ())
    now = time.time()
    if params:
        put(("mlflow params", now, uri, run_id, {p.key: str(p.value) for p in params}, refused))
    if tags:
        put(("mlflow tags", now, uri, run_id, {t.key: str(t.value) for t in tags}))
    if metrics and refused is None:
        rows = [(m.key, m.value if type(m.value) in PLAIN else one(m.value), m.step) for m in metrics]
        put(("mlflow logged", now, uri, run_id, rows))


def param(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """`client.log_param(run_id, key, value)`: text, as MLflow keeps it."""
    _param(args, kwargs, None)


def param_refused(args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> None:
    """The same, refused: MLflow keeps the first value. What was asked for now is known here alone."""
    _param(args, kwargs, type(error).__name__)


def _param(args: tuple[Any, ...], kwargs: dict[str, Any], refused: str | None) -> None:
    values = {_given(args, kwargs, 2, "key"): str(_given(args, kwargs, 3, "value"))}
    put(
        (
            "mlflow params",
            time.time(),
            args[0].tracking_uri,
            _given(args, kwargs, 1, "run_id"),
            values,
            refused,
        )
    )


def tag(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """`client.set_tag(run_id, key, value)`."""
    values = {_given(args, kwargs, 2, "key"): str(_given(args, kwargs, 3, "value"))}
    put(("mlflow tags", time.time(), args[0].tracking_uri, _given(args, kwargs, 1, "run_id"), values))


def ended(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """`client.set_terminated(run_id, status)`: also what `mlflow.end_run` calls."""
    status = _given(args, kwargs, 2, "status") or "FINISHED"
    put(("mlflow ended", time.time(), args[0].tracking_uri, _given(args, kwargs, 1, "run_id"), str(status)))
