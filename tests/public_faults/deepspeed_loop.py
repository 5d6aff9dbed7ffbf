"""A DeepSpeed loop (ZeRO 1, bf16, float32 masters) that saves, and one that goes on, faithfully or as in a report.

`python -m tests.public_faults.deepspeed_loop FOLDER NAME ...` runs each named resume after a save of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import deepspeed
import torch

import lineage

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 1},
    "bf16": {"enabled": True},
    "zero_allow_untested_optimizer": True,
    "gradient_clipping": 1.0,
}


def engine() -> Any:
    """A new engine, as a new process makes it."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1.0 - n / 100)
    made, *_ = deepspeed.initialize(
        model=net, optimizer=optimizer, lr_scheduler=schedule, config=dict(CONFIG)
    )
    return made


def train(made: Any, rec: Any, upto: int) -> None:
    """Updates up to `upto`, on data that the step decides."""
    for step in range(made.global_steps + 1, upto + 1):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(step)).to(torch.bfloat16)
        with rec.step(step, x) as st:
            loss = (made(x) - 0.5 * x.roll(1, dims=1)).float().pow(2).mean()
            made.backward(loss)
            made.step()
            st.loss(loss)


def attach(made: Any, root: Path, **more: Any) -> lineage.Recorder:
    """As a user does."""
    return lineage.attach(
        None,
        dir=root / "runs",
        run_id="run",
        model=made.module,
        optimizer=made.optimizer,
        scheduler=made.lr_scheduler,
        config=CONFIG,
        quiet=True,
        report=False,
        **more,
    )


def run(root: Path, name: str) -> None:
    """One save, and one resume."""
    made = engine()
    saved = root / "saved"
    with attach(made, root) as rec:
        train(made, rec, 8)
        made.save_checkpoint(str(saved))
        rec.checkpoint(saved, step=8)
    made = engine()
    if name == "no_latest":
        (saved / "latest").unlink()
    options = {"load_optimizer_states": False} if name == "no_optimizer_states" else {}
    found, _ = made.load_checkpoint(str(saved), **options)
    assert (found is None) == (name == "no_latest")
    with attach(made, root, resumed_from=saved) as rec:
        train(made, rec, made.global_steps + 4)


if __name__ == "__main__":
    deepspeed.init_distributed(dist_backend="gloo")
    for each in sys.argv[2:]:
        run(Path(sys.argv[1]) / each, each)
