"""OLMo-core's own Trainer on a tiny model and a CPU, recorded by `olmo_core_callback.py`. Needs `ai2-olmo-core`.

torchrun --nproc-per-node 1 olmo_core_loop.py 8        # eight updates, saves at 4 and 8
torchrun --nproc-per-node 1 olmo_core_loop.py 12 0.3   # goes on from the newest, with another clip threshold
"""

import sys

import torch
from olmo_core.data.data_loader import DataLoaderBase
from olmo_core.distributed.utils import get_rank, get_world_size
from olmo_core.train import (
    Duration,
    TrainerConfig,
    prepare_training_environment,
    teardown_training_environment,
)
from olmo_core.train.callbacks import CheckpointerCallback
from olmo_core.train.train_module import BasicTrainModule
from olmo_core_callback import LineageCallback


class Tokens(DataLoaderBase):
    """Batches of made tokens, in an order that the position alone decides."""

    total_batches = 64

    def _iter_batches(self):
        while self.batches_processed < self.total_batches:
            generator = torch.Generator().manual_seed(1000 * self.dp_rank + self.batches_processed)
            yield {"input_ids": torch.randint(0, 64, (4, 8), generator=generator)}

    def get_mock_batch(self):
        return {"input_ids": torch.zeros(4, 8, dtype=torch.long)}

    def global_num_tokens_in_batch(self, batch):
        return batch["input_ids"].numel() * self.dp_world_size

    def reshuffle(self, epoch=None, **kwargs):
        self._epoch = epoch

    def state_dict(self):
        return {"batches_processed": self.batches_processed, "epoch": self._epoch}

    def load_state_dict(self, state_dict):
        self.batches_processed, self._epoch = state_dict["batches_processed"], state_dict["epoch"]


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(64, 16), torch.nn.Linear(16, 64)

    def forward(self, input_ids):
        return self.head(self.embed(input_ids))


class Module(BasicTrainModule):
    def global_num_flops_in_batch(self, batch):
        return None


def main(steps, clip):
    torch.manual_seed(0)
    model = Small()
    module = Module(model, torch.optim.AdamW(model.parameters(), lr=1e-2), 32, max_grad_norm=clip)
    world = get_world_size()
    loader = Tokens(
        work_dir="work",
        global_batch_size=32 * world,
        dp_world_size=world,
        dp_rank=get_rank(),
        fs_local_rank=0,
    )
    config = TrainerConfig(
        save_folder="checkpoints", max_duration=Duration.steps(steps), device="cpu", save_overwrite=True
    )
    config.add_callback("checkpointer", CheckpointerCallback(save_interval=4, save_async=False))
    config.add_callback("lineage", LineageCallback(config={"lr": 1e-2, "max_grad_norm": clip}))
    config.build(module, loader).fit()


prepare_training_environment(backend="gloo")
main(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 1.0)
teardown_training_environment()
