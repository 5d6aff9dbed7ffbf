"""A loop as torchtitan has it: FSDP2, and asynchronous saves by torch.distributed.checkpoint.

torchrun --nproc-per-node 2 dcp_loop.py                      # twenty updates, saves at 10 and 20
torchrun --nproc-per-node 1 dcp_loop.py checkpoints/step-10  # goes on from there, on another number of ranks
lineage resume                                               # what was restored
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from common import Numbers
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import lineage
from lineage.integrations.dcp import Stager


class Mine(Numbers):
    """Batches of this rank's own."""

    def __init__(self):
        self.position = dist.get_rank() * 1_000_000


def parts():
    """Sharded model, optimizer, scheduler and loader. The optimizer is made last: sharding makes new parameters."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=10)
    torch.manual_seed(dist.get_rank())
    return model, optimizer, scheduler, Mine()


def states(model, optimizer, scheduler, loader, step):
    """What a faithful resume needs. What is each rank's own has a key of its rank: of a shared one, one survives."""
    weights, moments = get_state_dict(model, optimizer)
    rank = dist.get_rank()
    return {
        "model": weights,
        "optimizer": moments,
        "scheduler": scheduler.state_dict(),
        f"loader_{rank}": loader.state_dict(),
        f"rng_{rank}": torch.get_rng_state(),
        "step": step,
    }


def load(path, model, optimizer, scheduler, loader):
    """Load all of it; returns the number of completed updates."""
    found = states(model, optimizer, scheduler, loader, 0)
    dcp.load(found, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
    scheduler.load_state_dict(found["scheduler"])
    loader.load_state_dict(found[f"loader_{dist.get_rank()}"])
    torch.set_rng_state(found[f"rng_{dist.get_rank()}"])
    return found["step"]


def train(steps, resume=None):
    model, optimizer, scheduler, loader = parts()
    done = load(resume, model, optimizer, scheduler, loader) if resume else 0
    savers = dist.new_group(backend="gloo")  # the saves' collectives come from another thread
    stager, saving = Stager(), None
    with lineage.attach(
        None,
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        loader=loader,
        config={"lr": 1e-2},
        resumed_from=resume,
    ) as rec:
        for step, batch in enumerate(loader, start=done + 1):
            with rec.step(step, batch) as st:
                loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                st.loss(loss)
            if step % 10 == 0:
                if saving is not None:
                    saving.result()  # one at a time
                path = f"checkpoints/step-{step}"
                with rec.saving(step, stager=stager) as save:  # digests of the state that is staged
                    saving = dcp.async_save(
                        states(model, optimizer, scheduler, loader, step),
                        checkpoint_id=path,
                        process_group=savers,
                        async_stager=stager,
                    )
                saving.add_done_callback(
                    lambda future, save=save, path=path: future.exception() or save.commit(path)
                )
            if step == steps:
                break
        if saving is not None:
            saving.result()


dist.init_process_group("gloo")
train(20, resume=Path(sys.argv[1]) if len(sys.argv) > 1 else None)
dist.destroy_process_group()
