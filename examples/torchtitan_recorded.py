"""What a torchtitan Trainer needs to be recorded: mix this class in, and change nothing else.

class Mine(Recorded, Trainer):
    pass

Written for torchtitan 0.3: `train_step`, `forward_backward_step`, and a checkpointer with `folder`, `save_future` and a
`save` that says whether it saved. Run on every rank. No collective is issued, and no call below raises.
"""

import torch

import lineage


class Recorded:
    """Records each update, save and resume of a torchtitan Trainer."""

    lineage_run = None
    """the tracker's run on the rank that has one: `wandb.run`"""
    _rec = _st = None

    def train_step(self, data_iterator):
        if self._rec is None:  # the first step: the checkpoint is loaded, and nothing has run yet
            self._rec = self._attach()
        with self._rec.step(self.step) as self._st:
            super().train_step(self._seen(data_iterator))

    def forward_backward_step(self, **fields):
        loss = super().forward_backward_step(**fields)
        self._st.loss(loss)  # this rank's share of the loss, once for each micro-batch
        return loss

    def close(self):
        super().close()
        if self._rec is not None:
            self._rec.close()

    def _attach(self):
        parts = self.model_parts
        saver, done = self.checkpointer, self.step - 1
        rec = lineage.attach(
            self.lineage_run,
            model=parts[0] if len(parts) == 1 else torch.nn.ModuleList(parts),
            optimizer=self.optimizers.optimizers[0],  # with several, name the one that you watch
            scheduler=self.lr_schedulers.schedulers[0],
            loader=self.dataloader,
            config=self.config.to_dict(),
            resumed_from=f"{saver.folder}/step-{done}" if done else None,
        )
        original = saver.save

        def save(curr_step, last_step=False):
            saved = original(curr_step, last_step=last_step)
            if saved:
                with rec.saving(
                    curr_step
                ) as save:  # the state is still that of the save: no update came between
                    pass
                path, future = f"{saver.folder}/step-{curr_step}", saver.save_future
                if future is None:
                    save.commit(path)
                else:
                    future.add_done_callback(lambda f: f.exception() or save.commit(path))
            return saved

        saver.save = save
        return rec

    def _seen(self, batches):
        for fields, labels in batches:
            self._st.batch({**fields, "labels": labels})
            yield fields, labels
