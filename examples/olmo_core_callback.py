"""A callback that records a run of OLMo-core: copy it, and add it to the TrainerConfig.

config.with_callback("lineage", LineageCallback(config=config_dict))

Written for OLMo-core 3.0, whose Trainer calls each hook below on every rank. No collective is issued.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from olmo_core.train.callbacks import Callback

import lineage


@dataclass
class LineageCallback(Callback):
    """Records each update, save and resume."""

    priority: ClassVar[int] = 2  # before CheckpointerCallback, whose saves come after the update is recorded

    config: dict = field(default_factory=dict)
    run: Any = None
    """the tracker's run on the rank that has one: `wandb.run`"""
    _loaded = _rec = _st = None

    def post_checkpoint_loaded(self, path):
        self._loaded = str(path)

    def pre_train(self):
        module = self.trainer.train_module
        self._rec = rec = lineage.attach(
            self.run,
            model=module.model,
            optimizer=module.optim,
            loader=self.trainer.data_loader,
            config=self.config,
            resumed_from=self._loaded,
        )
        saver = self.trainer.checkpointer
        save, save_async = saver.save, saver.save_async

        def recorded(path, *args, **kwargs):
            save(path, *args, **kwargs)
            rec.checkpoint(str(path), step=self.step)

        def recorded_async(path, *args, **kwargs):
            future = save_async(path, *args, **kwargs)
            with rec.saving(
                self.step
            ) as saving:  # the state is still that of the save: no update came between
                pass
            future.add_done_callback(lambda f: f.exception() or saving.commit(str(path)))
            return future

        saver.save, saver.save_async = recorded, recorded_async

    def pre_step(self, batch):
        self._st = self._rec.step(self.step)
        self._st.__enter__()
        self._st.batch(batch)

    def post_train_batch(self):
        loss = self.trainer.get_metric("train/CE loss")  # as a tensor: nothing waits for the device
        if loss is not None:
            self._st.loss(loss)
        self._st.__exit__(None, None, None)
        self._st = None

    def on_error(self, exc):
        if self._st is not None:
            self._st.__exit__(type(exc), exc, exc.__traceback__)
        if self._rec is not None:
            self._rec.close(exc)

    def post_train(self):
        self._rec.close()
