"""Accelerate: one call in a loop that Accelerate users write, and a tracker for `log_with`.

    from lineage.integrations.accelerate import LineageTracker, attach

    accelerator = Accelerator(log_with=["wandb", LineageTracker()])
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    accelerator.init_trackers("project", config=config)
    rec = attach(accelerator, model, optimizer, scheduler, loader)
    accelerator.load_state(path)                      # recorded as the resume that it is
    for step, batch in enumerate(loader, start=done + 1):
        with rec.step(step, batch) as st:
            ...
        accelerator.save_state(path)                  # recorded as a checkpoint
    accelerator.end_training()

The tracker is optional. `docs/integrations/huggingface.md` says what is recorded and how.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from accelerate.tracking import GeneralTracker

from ..ledger import sidecars
from ..recorder import attach as attaching
from ..recorder.contain import contained
from ..recorder.protection import Protection
from ..recorder.recorder import Recorder
from ..recorder.saving import Saving
from ..recorder.step import Step
from . import _second_page
from ._common import Logged, active_runs, bare, protection, read_again
from ._loader import LoaderPosition
from ._wrapped import Wrapped, wait_for

PATIENCE = 20.0
"""Seconds for which the digests of a save's files wait, on their own thread, for what other ranks still write."""

DRAWN = (
    "random numbers were restored by the load, and drawn from before the first step, as a loader does when a pass "
    "begins: give it a generator of its own (DataLoader(..., generator=torch.Generator()))"
)


def attach(
    accelerator: Any,
    model: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    loader: Any = None,
    *,
    run: Any = None,
    config: Any = None,
    **options: Any,
) -> Recorder:
    """Record a loop on an `Accelerator`. Call it on every rank, after `prepare` and `init_trackers`.

    From then on `accelerator.save_state` records a checkpoint and `accelerator.load_state` a resume; where the state
    was loaded before, name it: `resumed_from=path`. Both are called as before, and do what they did.

    Args:
        accelerator: the loop's own.
        model, optimizer, scheduler, loader: as `prepare` gave them. Each is optional.
        run: a tracker's run; by default the one that the accelerator's trackers opened.
        config: what was asked for; by default what `init_trackers(config=...)` was given, if a `LineageTracker` is
            among the trackers.
        options: any other argument of `lineage.attach`.

    Returns the recorder, whose `step` the loop calls. It never raises.
    """
    around = _Around(accelerator)
    mine = next((t for t in getattr(accelerator, "trackers", ()) if isinstance(t, LineageTracker)), None)
    position = LoaderPosition(loader, around.batches) if loader is not None else None
    runs = _runs(accelerator) if run is None else [run]
    rec = attaching.attach(
        runs[0] if runs else None,
        model=model,
        optimizer=bare(optimizer, "optimizer"),
        scheduler=bare(scheduler, "scheduler"),
        scaler=options.pop("scaler", getattr(accelerator, "scaler", None)),
        loader=position,
        config=config if config is not None or mine is None else mine.config,
        **options,
    )
    around.begin(rec, position, *runs[1:2])
    if mine is not None:
        mine.begin(rec, around.end)
    return rec


def _runs(accelerator: Any) -> list[Any]:
    """The runs of W&B and MLflow that the accelerator opened in this process, else those that are open anyway."""
    if not getattr(accelerator, "is_main_process", True):
        return []
    own = {
        tracker.name: tracker.tracker
        for tracker in getattr(accelerator, "trackers", ())
        if getattr(tracker, "name", "") in ("wandb", "mlflow")
    }
    return list((own or active_runs()).values())


class LineageTracker(GeneralTracker):  # type: ignore[misc]
    """Gives the layer the config of `init_trackers` and the rows of `accelerator.log`, and ends it with the training.

    `tracker` is the recorder, as `accelerator.get_tracker("lineage", unwrap=True)` gives it; None before `attach`.
    """

    name = "lineage"
    requires_logging_directory = False
    main_process_only = False

    def __init__(self) -> None:
        self.config: Mapping[str, Any] | None = None
        self._rec: Recorder | None = None
        self._logged: Logged | None = None
        self._end: Callable[[], None] = lambda: None
        super().__init__()

    @property
    def tracker(self) -> Recorder | None:
        """The recorder."""
        return self._rec

    def begin(self, rec: Recorder, end: Callable[[], None]) -> None:
        """Record from now on. `attach` calls it."""
        self._rec, self._logged, self._end = rec, Logged(rec, "accelerate"), end

    def trouble(self, part: str, error: BaseException, consequence: str) -> None:
        """Say that a part failed."""
        if self._rec is not None:
            self._rec.trouble(part, error, consequence)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Keep the config for `attach`."""
        self.config = dict(values)

    @contained("integration", "logged values are not kept")
    def log(self, /, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Keep a logged row; without a step it counts for the last update. On the main process only."""
        if self._rec is not None and self._logged is not None and self._rec.world.rank == 0:
            self._logged.row(values, self._rec.steps.done if step is None else step)

    @contained("integration", "the end of the training is not recorded")
    def finish(self) -> None:
        """The training is over."""
        self._end()
        if self._rec is not None:
            self._rec.close()


class _Around:
    """What is put around an accelerator's `save_state` and `load_state`, and around the recorder's steps.

    Its own hooks (`register_save_state_pre_hook`, `register_load_state_pre_hook`) say which folder it is, at the
    moment that the state is read. Nothing tells when a save is complete or a load is over, so the two methods of
    this one accelerator are replaced by ones that call them.
    """

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator
        self._rec: Recorder | None = None
        self._position: LoaderPosition | None = None
        self._wrapped, self._pages = Wrapped(), Wrapped()
        self._hooks: list[Any] = []
        self._last: Step | None = None
        self._first = True
        self._save: tuple[Saving, Path] | None = None
        self._loaded: Path | None = None
        self._protection: Protection | None = None
        self._second: Any = None
        self._steps: dict[str, int] = {}
        """folder -> the step that it is of: Accelerate numbers its saves, not the steps"""

    def trouble(self, part: str, error: BaseException, consequence: str) -> None:
        """Hand a failure to the recorder."""
        if self._rec is not None:
            self._rec.trouble(part, error, consequence)

    @contained("integration", "saves and resumes are recorded only by rec.checkpoint and rec.resumed_from")
    def begin(self, rec: Recorder, position: LoaderPosition | None, second: Any = None) -> None:
        """Watch from now on. `second`: a run of another tracker, whose page shows the records too."""
        self._rec, self._position = rec, position
        if not rec.live:
            return
        self._second = second
        a = self._accelerator
        self._hooks = [
            a.register_save_state_pre_hook(self._saving),
            a.register_load_state_pre_hook(self._loading),
        ]
        self._wrapped.wrap(a, "save_state", self._watch_save)
        self._wrapped.wrap(a, "load_state", self._watch_load)
        self._wrapped.wrap(rec, "step", self._watch_step)
        self._wrapped.wrap(rec, "close", self._watch_close)

    @contained("tracker", "the second tracker's page shows nothing")
    def _show_in(self, run: Any) -> None:
        if self._rec is not None:
            _second_page.add(self._rec, run, self._pages)

    def end(self) -> None:
        """Watch no longer."""
        self._wrapped.undo()
        while self._hooks:
            self._hooks.pop().remove()

    def batches(self) -> int | None:
        """Batches that this process has trained on since attach; None where they are not given to the recorder."""
        rec = self._rec
        if rec is None or not rec.settings.fingerprints:
            return None
        step = self._last
        open_ = len(step.batches) if step is not None and step.step > rec.steps.done else 0
        seen = rec.watched.batches_seen + open_
        return seen if seen or rec.steps.first in (None, rec.steps.done + 1) else None

    # -- steps

    def _watch_step(self, original: Callable[..., Step]) -> Callable[..., Step]:
        @functools.wraps(original)
        def step(number: int, batch: Any = None) -> Step:
            if self._second is not None:  # not before: what a load names decides which ledger it is
                self._show_in(self._second)
                self._second = None
            self._before_step()
            self._last = original(number, batch)
            return self._last

        return step

    @contained("integration", "the position in the data is not shown")
    def _before_step(self) -> None:
        if self._position is None or self._rec is None:
            return
        self._position.observe()
        if self._first:  # no batch of it is counted yet
            self._first = False
            read_again(self._rec, "loader_position")
            if self._position.within_a_pass:
                self._drawn_since_the_load(self._rec)

    def _drawn_since_the_load(self, rec: Recorder) -> None:
        """Hold random numbers against the save now, too: within a pass, the run that was saved drew none in between."""
        saved = {c.component: c.digest for c in rec.parent.live()} if rec.parent is not None else {}
        loaded = {c.component: c.digest for c in rec.steps.loaded}
        if loaded.get("rng") is None or loaded["rng"] != saved.get("rng"):
            return
        read_again(rec, "rng")
        now = next(c for c in rec.steps.loaded if c.component == "rng")
        if now.digest != saved["rng"]:
            rec.gaps.append(DRAWN)
            others = [c for c in rec.steps.loaded if c is not now]
            rec.steps.loaded = [*others, now.model_copy(update={"note": DRAWN})]

    def _watch_close(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def close(error: BaseException | None = None) -> None:
            self.end()
            original(error)
            self._pages.undo()

        return close

    # -- saves

    @contained("checkpoint", "a checkpoint is not recorded")
    def _saving(self, models: Any, weights: Any, output_dir: Any) -> None:
        """Accelerate's hook before the files are written: the state is read now, as it is saved."""
        if self._rec is not None:
            save = self._rec.saving()
            save.__enter__()
            self._save = save, Path(output_dir)

    def _watch_save(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def save_state(*args: Any, **kwargs: Any) -> Any:
            self._save = None
            self._before_rotation()
            result = original(*args, **kwargs)
            self._saved()
            return result

        return save_state

    @contained("checkpoint", "the files of a checkpoint are not recorded")
    def _saved(self) -> None:
        if self._save is None or self._rec is None:
            return
        (save, path), self._save = self._save, None
        self._steps[os.path.abspath(path)] = self._rec.steps.done
        writer, world = self._rec.begin(), self._rec.world.world_size
        if writer is not None and world > 1 and self._rec.world.rank == 0:
            states = [path / f"random_states_{r}.pkl" for r in range(world)]
            writer.tasks.put(lambda: self._wait_for_ranks(states))
        save.commit(path)

    def _wait_for_ranks(self, states: list[Path]) -> None:
        """On the recorder's thread: other ranks may still write their random states."""
        if not wait_for(states, PATIENCE) and self._rec is not None:
            self._rec.gaps.append(
                f"a checkpoint's files were digested before all ranks had written theirs: {states[0].parent.name}"
            )

    @contained("integration", "checkpoints may be deleted though they are needed")
    def _before_rotation(self) -> None:
        """Accelerate deletes before it saves, and asks nobody: what must be kept is renamed out of its reach."""
        a = self._accelerator
        project = a.project_configuration
        if not project.automatic_checkpoint_naming or not project.total_limit or not a.is_main_process:
            return
        folder = Path(a.project_dir) / "checkpoints"
        there = sorted(folder.iterdir(), key=_number) if folder.is_dir() else []
        held = there[: max(0, len(there) + 1 - project.total_limit)]
        if held and self._protection is None and self._rec is not None:
            self._protection = protection(self._rec)
        for path in held if self._protection is not None else ():
            if self._protection is not None and (why := self._holds(self._protection, path)):
                self._protection.keep(path, why)

    def _holds(self, protection: Protection, path: Path) -> str | None:
        """Why a folder must be kept. One that is not digested yet is asked for by its step, not by its number."""
        step = self._steps.get(os.path.abspath(path))
        if step is not None and not sidecars.path_of(path).exists():
            return protection.holds(path.with_name(f"step-{step}"))
        return protection.holds(path)

    # -- loads

    @contained("resume", "the parent checkpoint is not recorded")
    def _loading(self, models: Any, input_dir: Any) -> None:
        """Accelerate's hook before the files are read: which folder it is."""
        self._loaded = Path(input_dir)

    def _watch_load(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load_state(*args: Any, **kwargs: Any) -> Any:
            self._loaded = None
            result = original(*args, **kwargs)
            if self._loaded is not None and self._rec is not None:
                self._rec.resumed_from(self._loaded)
            return result

        return load_state


def _number(path: Path) -> int:
    """The number by which Accelerate orders checkpoints: the first in the folder's name."""
    found = re.search(r"[0-9]+(?=[^\/]*$)", path.name)
    return int(found[0]) if found else -1
