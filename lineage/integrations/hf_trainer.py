"""Hugging Face Trainer, and what is derived from it (TRL): one callback.

    from lineage.integrations.hf_trainer import LineageCallback

    trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[LineageCallback()])
    trainer.train(resume_from_checkpoint=True)

`docs/integrations/huggingface.md` says what is recorded and how.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers.trainer_callback import TrainerCallback

from ..recorder.attach import attach
from ..recorder.contain import contained, describe, log
from ..recorder.protection import Protection
from ..recorder.recorder import Recorder
from . import _hf_rotation, _second_page
from ._common import Logged, OpenStep, active_runs, bare, forget_reading, protection, read_again
from ._loader import LoaderPosition
from ._wrapped import Wrapped, wait_for

PATIENCE = 20.0
"""Seconds for which the digests of a save's files wait, on their own thread, for what other ranks still write."""


class LineageCallback(TrainerCallback):  # type: ignore[misc]
    """Records a Trainer's run: config, batches, losses, checkpoints, and what each resume restored.

    Args:
        run: a tracker's run; by default the one that `report_to` opened.
        resumed_from: the checkpoint that was loaded, where Trainer was not told of it
            (`train(resume_from_checkpoint=...)` is found without it).
        options: any other argument of `lineage.attach`: `dir`, `run_id`, `name`, `ema`, `on_alarm`, ...

    `recorder` is the recorder while training runs, for `mitigate`, `incident` and `evaluation`.

    Where `on_alarm="request_stop"` was given, a process that trains alone stops at an alarm. With several ranks it
    does not: one rank that stops by itself would leave the others waiting.
    """

    def __init__(self, *, run: Any = None, resumed_from: str | Path | None = None, **options: Any) -> None:
        self._run, self._resumed_from, self._options = run, resumed_from, options
        self.recorder: Recorder | None = None
        self._step: OpenStep | None = None
        self._logged: Logged | None = None
        self._position: LoaderPosition | None = None
        self._wrapped, self._pages = Wrapped(), Wrapped()
        self._trainer: Any = None
        self._batches = 0
        self._loss: Any = None
        self._first = True
        self._protection: Protection | None = None

    def trouble(self, part: str, error: BaseException, consequence: str) -> None:
        """Say that a part of the callback failed, in the ledger where there is one."""
        if self.recorder is not None:
            self.recorder.trouble(part, error, consequence)
        else:
            log.warning("lineage: %s failed (%s); %s. Training goes on.", part, describe(error), consequence)

    # -- what Trainer calls

    @contained("integration", "nothing of this training is recorded")
    def on_train_begin(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Attach: the model is wrapped, and the checkpoint is loaded but for the random numbers."""
        self._leave(None)  # a training that was tried again, or ended in an exception
        trainer, resumed = _trainer()
        self._trainer, self._batches, self._loss, self._first = trainer, 0, None, True
        if trainer is None and state.global_step:
            resumed = args.resume_from_checkpoint
        loader = kwargs.get("train_dataloader")
        self._position = LoaderPosition(loader, self._done) if loader is not None else None
        accelerator = getattr(trainer, "accelerator", None)
        runs = self._runs(args, state)
        self.recorder = attach(
            runs[0] if runs else None,
            model=getattr(trainer, "model_wrapped", None) or kwargs.get("model"),
            optimizer=bare(kwargs.get("optimizer"), "optimizer"),
            scheduler=bare(kwargs.get("lr_scheduler"), "scheduler"),
            scaler=getattr(accelerator, "scaler", None),
            loader=self._position,
            config=args.to_dict(),
            resumed_from=self._resumed_from or resumed,
            **self._options,
        )
        self._step, self._logged = OpenStep(self.recorder), Logged(self.recorder, "transformers")
        forget_reading(self.recorder, "loader_position")  # no batch tells yet where the loader is
        self._protection = None
        if len(runs) > 1:
            self._show_in(runs[1])
        if not self._wrapped.wrap(trainer, "training_step", self._watch_step):
            self.recorder.gaps.append(
                "batches and losses: the Trainer that calls was not found, or has no training_step"
            )
        if not self._wrapped.wrap(trainer, "_load_rng_state", self._watch_rng):
            forget_reading(self.recorder, "rng")  # they are restored later, and nothing tells when
        if args.should_save and not _hf_rotation.watch(self._wrapped, self._ask):
            self.recorder.gaps.append("the rotation of checkpoints: this transformers deletes in another way")

    @contained("integration", "a step is not recorded")
    def on_step_begin(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the step. Before the first one all is restored, and no batch of it was trained on."""
        if self.recorder is None or self._step is None:
            return
        if self._position is not None:
            self._position.observe()
        if self._first:
            self._first = False
            read_again(self.recorder, "loader_position")
        self._loss = None
        self._step.begin(state.global_step + 1)

    @contained("integration", "a step is not recorded")
    def on_step_end(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the step: the update is made."""
        if self.recorder is None or self._step is None:
            return
        if self._loss is not None:
            self._step.loss(self._loss)
        self._step.end()
        if self.recorder.should_stop and self.recorder.world.world_size == 1:
            control.should_training_stop = True

    @contained(
        "integration", "logged values are not kept, and checkpoints may be deleted though they are needed"
    )
    def on_log(
        self, /, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Keep what Trainer logs. The last lines come just before it deletes all but the best checkpoint."""
        if self._logged is not None and state.is_world_process_zero and logs:
            self._logged.row(logs, state.global_step)
        if "train_runtime" in (logs or {}) and args.save_total_limit == 1 and args.should_save:
            _hf_rotation.before_the_end(self._ask, Path(args.output_dir), state.best_model_checkpoint)

    @contained("integration", "a checkpoint is not recorded")
    def on_save(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A checkpoint is written: digest the live state now, the files on a thread of the recorder's."""
        rec = self.recorder
        if rec is None:
            return
        path = self._folder(args, state.global_step)
        save = rec.saving(state.global_step)
        save.__enter__()
        writer = rec.begin()
        if writer is not None and rec.world.rank == 0 < rec.world.world_size - 1 and not args.save_only_model:
            states = [path / f"rng_state_{r}.pth" for r in range(rec.world.world_size)]
            writer.tasks.put(lambda: self._wait_for_ranks(states))
        save.commit(path)

    @contained("integration", "the end of the training is not recorded")
    def on_train_end(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The training is over."""
        self._leave(None)

    # -- what it does

    def _done(self) -> int:
        """Micro-batches that were trained on since the start of this training."""
        return self._batches

    def _runs(self, args: Any, state: Any) -> list[Any]:
        """The runs of trackers on whose pages the records are shown: those that `report_to` opened."""
        if self._run is not None:
            return [self._run]
        if not state.is_world_process_zero:
            return []
        return [run for kind, run in active_runs().items() if kind in args.report_to]

    @contained("tracker", "the second tracker's page shows nothing")
    def _show_in(self, run: Any) -> None:
        if self.recorder is not None:
            _second_page.add(self.recorder, run, self._pages)

    def _ask(self) -> Protection | None:
        if self._protection is None and self.recorder is not None:
            self._protection = protection(self.recorder)
        return self._protection

    def _folder(self, args: Any, step: int) -> Path:
        """The folder that Trainer just wrote; a search over hyperparameters has one of its own for each trial."""
        usual = Path(args.output_dir) / f"checkpoint-{step}"
        if usual.is_dir():
            return usual
        others = [p for p in Path(args.output_dir).glob(f"*/checkpoint-{step}") if p.is_dir()]
        return max(others, key=lambda p: p.stat().st_mtime, default=usual)

    def _wait_for_ranks(self, states: list[Path]) -> None:
        """On the recorder's thread: other ranks may still write their random states."""
        if not wait_for(states, PATIENCE) and self.recorder is not None:
            self.recorder.gaps.append(
                f"a checkpoint's files were digested before all ranks had written theirs: {states[0].parent.name}"
            )

    def _leave(self, error: BaseException | None) -> None:
        self._wrapped.undo()
        rec, self.recorder = self.recorder, None
        if rec is None:
            return
        if self._step is not None:
            self._step.leave(error)
        rec.close(error)
        self._pages.undo()
        self._trainer = self._position = None

    # -- what is put around Trainer's methods, on this one trainer, while it trains

    def _watch_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """See each micro-batch as the loader gave it, and its loss as Trainer got it, before any filter of NaN."""

        @functools.wraps(original)
        def training_step(*args: Any, **kwargs: Any) -> Any:
            self._see_batch(kwargs["inputs"] if "inputs" in kwargs else args[1])
            try:
                loss = original(*args, **kwargs)
            except BaseException as e:
                self._failed(e)
                raise
            self._see_loss(loss)
            return loss

        return training_step

    @contained("fingerprints", "batches of some steps are not fingerprinted")
    def _see_batch(self, batch: Any) -> None:
        if self._step is not None:
            self._step.batch(batch)
        self._batches += 1

    @contained("loss", "losses of some steps are not recorded")
    def _see_loss(self, loss: Any) -> None:
        """Trainer divides each micro-batch's loss by their number: they add up to the step's."""
        self._loss = loss if self._loss is None else self._loss + loss

    @contained("step", "a step that failed is not recorded")
    def _failed(self, error: BaseException) -> None:
        if self._step is not None:
            self._step.leave(error)

    def _watch_rng(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Random numbers are restored last, within the first epoch: read them just then."""

        @functools.wraps(original)
        def _load_rng_state(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self._read_rng()
            return result

        return _load_rng_state

    @contained("resume", "random numbers after the load are not shown")
    def _read_rng(self) -> None:
        if self.recorder is not None and self._first:
            read_again(self.recorder, "rng")


def _trainer() -> tuple[Any, str | None]:
    """(the trainer that called, the checkpoint that it resumes from): Trainer tells a callback neither.

    They are read once per training from the frames of the callers.
    """
    kind = getattr(sys.modules.get("transformers.trainer"), "Trainer", ())
    frame: Any = sys._getframe(1)
    while frame is not None:
        names = frame.f_code.co_varnames
        if names[:1] == ("self",) and "resume_from_checkpoint" in names:
            mine, resumed = frame.f_locals.get("self"), frame.f_locals.get("resume_from_checkpoint")
            if isinstance(mine, kind):
                return mine, os.fspath(resumed) if isinstance(resumed, str | os.PathLike) else None
        frame = frame.f_back
    return None, None
