"""Lightning: a callback that records a fit, and a CheckpointIO that tells when files are there and keeps what is held.

    from lineage.integrations.lightning import LineageCallback, LineageCheckpointIO

    Trainer(callbacks=[LineageCallback()], plugins=[LineageCheckpointIO()])

The callback works alone. The CheckpointIO adds that rotation (`save_top_k`, `save_last`) deletes nothing that an open
incident or a person holds, and that an asynchronous save counts as complete when its file is there.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import glob
import os
import sys
from pathlib import Path
from typing import Any

from .. import attach
from .._rooms import schemas
from ..capture import state
from ..ledger import sidecars
from ..recorder.contain import contained, describe, log
from ..recorder.protection import Protection
from ..recorder.recorder import Recorder
from ..recorder.saving import Saving
from . import _lightning_reading as reading
from ._common import OpenStep
from ._wrapped import Wrapped

if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:  # its older name
    from pytorch_lightning import Callback
    from pytorch_lightning.plugins import AsyncCheckpointIO, CheckpointIO, TorchCheckpointIO
else:
    from lightning.pytorch import Callback
    from lightning.pytorch.plugins import AsyncCheckpointIO, CheckpointIO, TorchCheckpointIO


class LineageCallback(Callback):  # type: ignore[misc, unused-ignore]
    """Records what a `Trainer.fit` does: batches, losses, updates, checkpoints, the resume, the config.

    Args:
        run: the tracker's run; else the one of the Trainer's WandbLogger or MLFlowLogger, or the one that is open.
        resumed_from: the checkpoint that the module was loaded from, where it is not the Trainer's `ckpt_path`.
        attach: any other argument of `lineage.attach`. `config` stands in place of what is read off the Trainer.

    A step is an optimizer update, as `trainer.global_step` counts them. Nothing here changes a value, draws a random
    number, issues a collective or raises. While a fit runs, the instance's `trainer.save_checkpoint` is followed: no
    hook of Lightning's tells every rank where a checkpoint is saved.
    """

    def __init__(self, run: Any = None, *, resumed_from: str | Path | None = None, **attach: Any) -> None:
        self.rec: Recorder | None = None
        """the recorder of the fit that runs, or ran last"""
        self._run, self._resumed_from, self._attach = run, resumed_from, attach
        self._steps: OpenStep | None = None
        self._number: int | None = None
        self._error: BaseException | None = None
        self._io: LineageCheckpointIO | None = None
        self._uids: dict[str, str] = {}
        self._wrapped = Wrapped()

    def trouble(self, part: str, error: BaseException, consequence: str) -> None:
        """Say a failure once; training goes on."""
        if self.rec is not None:
            self.rec.trouble(part, error, consequence)
        else:
            log.warning("lineage: %s failed (%s); %s. Training goes on.", part, describe(error), consequence)

    # -- the beginning

    @contained("lightning", "saves are not followed")
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Before a fit: follow its saves."""
        if stage != "fit":
            return
        self.finish()
        self._wrapped.undo()  # where the last fit failed, nothing was torn down
        chain = list(reading.inner(trainer.strategy.checkpoint_io))
        self._io = next((io for io in chain if isinstance(io, LineageCheckpointIO)), None)
        if self._io is not None:
            self._io.follow(self)
        self._follow(trainer, asynchronous=any(isinstance(io, AsyncCheckpointIO) for io in chain))

    def _follow(self, trainer: Any, asynchronous: bool) -> None:
        def make(original: Any) -> Any:
            @functools.wraps(original)
            def save_checkpoint(filepath: Any, *args: Any, **kwargs: Any) -> Any:
                save = self._saving(trainer, filepath)
                result = original(filepath, *args, **kwargs)
                self._saved(trainer, save, filepath, asynchronous)
                return result

            return save_checkpoint

        self._wrapped.wrap(trainer, "save_checkpoint", make)

    @contained("lightning", "this fit is not recorded")
    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Model and optimizer are wrapped; most strategies have restored the weights by now: attach."""
        given, gaps = reading.objects_of(trainer)
        late = trainer.strategy.restore_checkpoint_after_setup
        path = self._resumed_from or (None if late else reading.resumed_from(trainer))
        given |= {"config": reading.config_of(trainer), "resumed_from": path, **self._attach}
        run = self._run if self._run is not None else reading.run_of(trainer)
        self.rec, self._error, self._number = attach(run, **given), None, None
        self.rec.gaps += gaps
        self._steps = OpenStep(self.rec)
        atexit.register(self.finish)  # before the recorder's own, which does not know how the fit ended
        reading.look_for_autocast(self.rec, pl_module)

    @contained("resume", "loader and random-number state after the load are not shown")
    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """A strategy that loads after `on_fit_start` (FSDP, DeepSpeed) has loaded the weights by now."""
        path = reading.resumed_from(trainer)
        if self._live() and self.rec is not None and self.rec.parent is None and path is not None:
            self.rec.resumed_from(path)

    @contained("resume", "loader and random-number state after the load are not shown")
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Everything is restored, and the loader is there: read what the first step will move."""
        rec, path = self.rec, reading.resumed_from(trainer)
        if rec is None or not rec.live:
            return
        if "loader" not in self._attach and (loader := reading.loader_of(trainer)) is not None:
            rec.watch(loader=loader)
            reading.look_for_autocast(rec, pl_module)
        if rec.parent is None and path is not None:
            rec.resumed_from(path)
        elif rec.parent is not None:
            self._read_again(rec)

    def _read_again(self, rec: Recorder) -> None:
        """Loader and random numbers once more: a hook may restore them late, and making the loader draws one."""
        known = {c.component: c.digest for c in rec.parent.live()} if rec.parent else {}
        kept = [c for c in rec.steps.loaded if c.digest is not None and c.digest == known.get(c.component)]
        kept += [c for c in rec.steps.loaded if c.component == "weights" and c not in kept]
        names = [n for n in state.LOADED if n not in {c.component for c in kept}]
        rec.steps.loaded = [*kept, *state.capture(rec.watched, names)]

    def _live(self) -> bool:
        return self.rec is not None and self.rec.live

    # -- steps

    @contained("lightning", "batches of some steps are not recorded")
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A micro-batch; the first one of an update opens its step."""
        if self._steps is None:
            return
        if self._number is None:
            self._number = trainer.global_step + 1
            self._steps.begin(self._number)
        if batch is not None:
            self._steps.batch(batch)

    @contained("lightning", "some steps are not recorded")
    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """The end of a micro-batch; where the update was made, that of its step."""
        if self._steps is None or self._number is None:
            return
        loss = reading.loss_of(outputs, trainer)
        if loss is not None:
            self._steps.loss(loss)
        if trainer.global_step >= self._number:
            self._number = None
            self._steps.end()
        if self.rec is not None and self.rec.should_stop and trainer.world_size == 1:
            trainer.should_stop = True  # of several ranks all must stop at one step, which takes a collective

    # -- saves

    @contained("checkpoint", "a checkpoint is not recorded")
    def _saving(self, trainer: Any, path: Any) -> Saving | None:
        """A save begins: the live digests are taken on every rank."""
        if not self._live() or self.rec is None or os.path.basename(path).startswith("."):
            return None  # a name with a dot: the Tuner's own, which it deletes at once
        save = self.rec.saving(trainer.global_step)
        save.__enter__()
        if save.uid is not None:
            self._uids[os.path.abspath(path)] = save.uid
        if self._io is not None and trainer.is_global_zero:
            self._io.expect(path, save)
        return save

    @contained("checkpoint", "the files of a checkpoint are not recorded")
    def _saved(self, trainer: Any, save: Saving | None, path: Any, asynchronous: bool) -> None:
        """The call has returned: the files are there, unless a thread still writes one."""
        if save is None:
            return
        io = self._io if trainer.is_global_zero else None
        if asynchronous and trainer.is_global_zero and not os.path.isdir(path):
            if io is None and self.rec is not None:
                self.rec.gaps.append(
                    f"{path} was saved asynchronously, and nothing tells when it is there: add "
                    "plugins=[AsyncCheckpointIO(LineageCheckpointIO())] to the Trainer"
                )
            return
        if io is None or io.left(path):  # what went through the IO is committed
            save.commit(path)

    @contained("checkpoint", "a deleted checkpoint is not marked")
    def removed(self, path: str, uid: str | None) -> None:
        """Rotation removed a checkpoint: the record says so."""
        uid = self._uids.pop(os.path.abspath(path), uid)
        w = self.rec.begin() if self._live() and self.rec is not None else None
        if w is not None and self.rec is not None and uid is not None:
            self.rec.followed.forget(path)
            why = "removed by Lightning (save_top_k, save_last)"
            w.write(schemas.CheckpointMark(checkpoint=uid, mark="deleted", why=why))

    # -- the end

    @contained("lightning", "how the fit ended is not recorded")
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The fit fails. ModelCheckpoint may still save, so the record is closed later."""
        self._error, self._number = exception, None
        if self._steps is not None:
            self._steps.leave(exception)

    @contained("lightning", "the end of the fit is not recorded")
    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """The fit is over."""
        if stage != "fit":
            return
        self._wrapped.undo()
        self.finish()

    @contained("lightning", "the end of the fit is not recorded")
    def finish(self) -> None:
        """Close the record of the last fit, once. Called where a fit ends, fails, or the next one begins."""
        atexit.unregister(self.finish)
        if self._live() and self.rec is not None:
            if self._steps is not None and self._number is not None:
                self._steps.leave(self._error)
            self.rec.close(self._error)
        self._steps = self._number = None

    @property
    def failed(self) -> bool:
        """Whether the last fit ended by an exception."""
        return self._error is not None


class LineageCheckpointIO(CheckpointIO):  # type: ignore[misc, unused-ignore]
    """Goes around another CheckpointIO (`TorchCheckpointIO` by default) and keeps what must be kept.

    `AsyncCheckpointIO(LineageCheckpointIO())` and `LineageCheckpointIO(AsyncCheckpointIO())` are the same: a save
    counts as complete when its file is there. Without a `LineageCallback` it protects what earlier runs' ledgers hold.
    """

    def __init__(self, checkpoint_io: Any = None) -> None:
        self._callback: LineageCallback | None = None
        self._protection: dict[str, Protection] = {}
        self._expected: dict[str, Saving] = {}
        self.checkpoint_io = checkpoint_io if checkpoint_io is not None else TorchCheckpointIO()
        if isinstance(self.checkpoint_io, AsyncCheckpointIO):
            written = _Written(self.checkpoint_io.checkpoint_io or TorchCheckpointIO(), self)
            self.checkpoint_io._checkpoint_io = written
            self.checkpoint_io._base_checkpoint_io_configured = True

    def follow(self, callback: LineageCallback) -> None:
        """Take the callback whose saves these are."""
        self._callback = callback

    def expect(self, path: Any, save: Saving) -> None:
        """A save is about to be written to a path."""
        self._expected[os.path.abspath(path)] = save

    def left(self, path: Any) -> bool:
        """Whether a save that was expected did not come this way: the strategy wrote it by itself. Forgets it."""
        return self._expected.pop(os.path.abspath(path), None) is not None

    def written(self, path: Any) -> None:
        """The file is there."""
        save = self._expected.pop(os.path.abspath(path), None)
        if save is not None:
            save.commit(path)

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Save; a held checkpoint that lies at the path is moved away first, since it would be written over."""
        if os.path.exists(path) and (protection := self._asked(path)) and (why := protection.holds(path)):
            protection.keep(path, why)
        self.checkpoint_io.save_checkpoint(checkpoint, path, storage_options)
        if not isinstance(self.checkpoint_io, AsyncCheckpointIO):
            self.written(path)

    def load_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> Any:
        """Load, as the inner one does."""
        return self.checkpoint_io.load_checkpoint(path, *args, **kwargs)

    def remove_checkpoint(self, path: Any) -> None:
        """Remove a checkpoint, unless it is held: then it stays where it is, and the log says why."""
        protection = self._asked(path)
        why = protection.holds(path) if protection is not None else None
        if why is not None:
            log.warning("lineage: %s stays, though rotation would delete it: %s", path, why)
            return
        uid = _uid(path)
        self.checkpoint_io.remove_checkpoint(path)
        _remove_sidecars(path)
        if self._callback is not None:
            self._callback.removed(str(path), uid)

    def teardown(self) -> None:
        """The Trainer is done with it, after an exception too."""
        self.checkpoint_io.teardown()
        if self._callback is not None and self._callback.failed:
            self._callback.finish()

    def _asked(self, path: Any) -> Protection | None:
        """Who knows whether a checkpoint is held: this run's ledger, else the one that its sidecar names."""
        rec = self._callback.rec if self._callback is not None else None
        writer = rec._writer if rec is not None and rec.live else None
        ledger = writer.ledger if writer is not None else _ledger(path)
        if ledger is None:
            return None
        if str(ledger) not in self._protection:
            write = writer.write if writer is not None else None
            self._protection[str(ledger)] = Protection(ledger, write=write)
        return self._protection[str(ledger)]


class _Written(CheckpointIO):  # type: ignore[misc, unused-ignore]
    """Within an AsyncCheckpointIO, on its thread: tells when a file is there."""

    def __init__(self, checkpoint_io: Any, told: LineageCheckpointIO) -> None:
        self.checkpoint_io, self._told = checkpoint_io, told

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        self.checkpoint_io.save_checkpoint(checkpoint, path, storage_options)
        self._told.written(path)

    def load_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> Any:
        return self.checkpoint_io.load_checkpoint(path, *args, **kwargs)

    def remove_checkpoint(self, path: Any) -> None:
        self.checkpoint_io.remove_checkpoint(path)


def _remove_sidecars(path: Any) -> None:
    """Remove what lies beside a checkpoint file that is gone, of all ranks; what lay in a folder went with it."""
    at = Path(path)
    name = glob.escape(at.name)
    with contextlib.suppress(OSError):
        for file in (*at.parent.glob(f"{name}.lineage.json"), *at.parent.glob(f"{name}.rank*.lineage.json")):
            file.unlink(missing_ok=True)


def _sidecar(path: Any) -> schemas.Sidecar | None:
    try:
        return sidecars.read(Path(path))
    except (sidecars.SidecarError, OSError):
        return None


def _uid(path: Any) -> str | None:
    found = _sidecar(path)
    return found.checkpoint.uid if found is not None else None


def _ledger(path: Any) -> Path | None:
    found = _sidecar(path)
    return Path(found.ledger) if found is not None and found.ledger else None
