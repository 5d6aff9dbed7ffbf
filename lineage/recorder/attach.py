"""`lineage.attach`: bind the layer to a run that is already there."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from .._rooms import schemas, trackers
from ..capture.watched import Watched
from . import boundary, extension
from .contain import describe, log
from .identity import TakenOver, world
from .off import Off
from .recorder import Recorder
from .settings import Settings, resolve


def attach(
    run: Any = None,
    *,
    model: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    scaler: Any = None,
    loader: Any = None,
    ema: Any = None,
    config: Any = None,
    resumed_from: str | Path | None = None,
    fork: bool = False,
    run_id: str | None = None,
    name: str | None = None,
    dir: str | Path | None = None,
    on_alarm: Callable[[schemas.Alarm], None] | Literal["request_stop"] | None = None,
    step_base: Literal[0, 1] | None = None,
    share: Sequence[str] | None = None,
    mix: Mapping[str, float] | None = None,
    batches: Mapping[str, Any] | None = None,
    replicas: Sequence[Sequence[int]] | Literal["all"] | None = None,
    **settings: Any,
) -> Recorder:
    """Record the lineage of this process's part of a training run.

    Args:
        run: a `wandb.Run`, an `mlflow.ActiveRun` or `Run`, `(MlflowClient, run_id)`, or None on ranks
            without a tracker run. The run itself is left as it is.
        model, optimizer, scheduler, scaler, loader: the loop's own objects, after wrapping and compiling.
            Each is optional and adds what can be known.
        ema: an averaged copy of the weights, where the loop keeps one: a module, an object with a `state_dict`, or
            tensors in a dict or a list. It is compared at a resume like the weights.
        config: what was asked for: dict, argparse.Namespace, dataclass, pydantic model, OmegaConf,
            `wandb.config`, or the path of a YAML or JSON file. Without it the run's own config is taken.
        resumed_from: the checkpoint (folder or file) that was loaded.
        fork: the resume starts a run of its own, whose parent is the checkpoint's run.
        run_id: lineage run id; else `LINEAGE_RUN_ID`, else the checkpoint's, else a new one.
        name: a name for people.
        dir: folder of all ledgers, `./lineage-runs` by default, fixed as an absolute path here.
        on_alarm: called with the alarm, or "request_stop", which sets `rec.should_stop`.
        step_base: 0 where the loop counts its first update as 0.
        share: `["text"]` sends to the tracker, beyond the default, what persons and exceptions said, the command
            line and environment variables. `lineage.toml` beside training code cannot set it.
        mix: the declared weight of each domain, which samples are tested against; else the loader's `lineage_data()`
            or the config may have it.
        batches: what is known of token ids: `vocab_size`, `pad_id`, `bos_id`, `eos_id`, `ignore_index`,
            `placeholders`, and `fields`, role -> path of a field whose name does not tell (docs/batches.md).
        replicas: which ranks hold copies of the same parameters, where no wrapper and no device mesh declares it:
            "all", or groups of ranks.
        settings: any other setting by name, see `lineage doctor`.

    Returns the recorder. It never raises: when something fails it says so once, and records less.
    """
    recorder: Recorder
    try:
        given = {"run_id": run_id, "dir": dir, "step_base": step_base, "share": share, **settings}
        resolved = _resolve(given)
        for problem in [*resolved.problems, *extension.install(resolved)]:
            log.warning("lineage: %s", problem)
        schemas.catalogue()  # read here, so that no step waits for it
        recorder = _attach(
            resolved,
            run,
            Watched(model, optimizer, scheduler, scaler, loader, ema),
            config,
            resumed_from,
            fork=fork,
            name=name,
            on_alarm=on_alarm,
            mix=mix,
            batches=batches,
            replicas=replicas,
        )
    except Exception as e:
        log.warning("lineage: attaching failed (%s); nothing is recorded. Training goes on.", _said(e))
        recorder = Off()
    return recorder


def _said(error: Exception) -> str:
    """An exception in words, whatever part of the layer failed: without its message where masking fails too."""
    try:
        return describe(error)
    except Exception:
        return type(error).__name__


def _resolve(given: dict[str, Any]) -> Settings:
    """Resolve the settings; an argument of the wrong form is said and left out."""
    try:
        return resolve(given)
    except ValueError:
        kept = {}
        for name, value in given.items():
            try:
                resolve({name: value})
                kept[name] = value
            except ValueError as e:
                log.warning("lineage: the argument %s=%r is left out: %s", name, value, e)
        return resolve(kept)


def _attach(
    settings: Settings,
    run: Any,
    watched: Watched,
    config: Any,
    resumed_from: str | Path | None,
    *,
    fork: bool,
    name: str | None,
    on_alarm: Any,
    mix: Mapping[str, float] | None,
    batches: Mapping[str, Any] | None,
    replicas: Any,
) -> Recorder:
    settings.values["dir"] = os.path.abspath(os.path.expanduser(str(settings.dir)))  # type: ignore[index]
    me = world()
    tracker = _tracker(run)
    parent = boundary.read_parent(resumed_from, me.rank) if resumed_from is not None else None
    if parent is not None and settings.run_id is None and settings.enabled:
        parent.look_in(Path(settings.dir), me.rank)
    recorder = Recorder(
        settings, me, watched, tracker=tracker, parent=parent, fork=fork, name=name, on_alarm=on_alarm
    )
    if not settings.enabled:
        recorder.live = False
        return recorder
    recorder._leave_unreadable("model", "optimizer", "scheduler", "scaler", "loader", "ema")
    recorder.steps.batching.declare(mix, batches)
    recorder.steps.agreeing.declare(replicas)
    recorder.taken_over = _from_observer(run, recorder)
    parts: list[tuple[Callable[[], Any], str]] = [(recorder.steps.hook, "some live values are not recorded")]
    if me.rank == 0:
        parts += [
            (lambda: _capture_config(recorder, config, tracker), "the requested config is not recorded"),
            (recorder.surroundings.read, "code and environment are not recorded"),
        ]
    if parent is not None:
        parts += [(recorder.steps.read_loaded, "loader and random-number state after the load are not shown")]
    if parent is not None or settings.run_id is not None:
        parts += [(recorder.begin, "the ledger is opened later")]
    parts += [(lambda: atexit.register(_at_exit, recorder), "the end is recorded only by rec.close()")]
    for part, consequence in parts:
        try:
            part()
        except Exception as e:
            recorder.trouble("attach", e, consequence)
    return recorder


def _at_exit(recorder: Recorder) -> None:
    """The process ends and nobody closed the recorder. With which exit code it ends is not to be seen from here."""
    recorder.at_exit = True
    recorder.close()


def _from_observer(run: Any, recorder: Recorder) -> TakenOver | None:
    """Where this process is under observation: take the run over, so that nothing is recorded twice."""
    observer = sys.modules.get(f"{(__package__ or '').rpartition('.')[0]}.observe")
    return observer.hand_over(run, recorder) if observer is not None else None


def _tracker(run: Any) -> trackers.Tracker | None:
    if run is None:
        return None
    kind = trackers.kind_of(run)
    if kind is None:
        log.warning(
            "lineage: %s is no run of a known tracker (%s); records go to the ledger only",
            type(run).__qualname__,
            ", ".join(k for k in trackers.ADAPTERS if k != "local"),
        )
        return None
    try:
        return trackers.adapter(kind, run)
    except Exception as e:
        log.warning(
            "lineage: the %s page cannot be used (%s); records go to the ledger only", kind, describe(e)
        )
        return None


def _capture_config(recorder: Recorder, config: Any, tracker: trackers.Tracker | None) -> None:
    from ..capture import config as config_

    try:
        source, kind = config, None
        # an MLflow run object holds the params of its first segment: on a resume they are not what is asked for
        stale = tracker is not None and tracker.kind == "mlflow" and recorder.parent is not None
        if source is None and tracker is not None and not stale:
            source, kind = tracker.requested(), f"{tracker.kind}.config"
        if source is not None:
            recorder.now.config = config_.capture(source, argv=list(sys.argv), name=kind)
    except Exception as e:
        recorder.trouble("capture", e, "the requested config is not recorded")
