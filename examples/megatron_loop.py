"""A loop with the shape of Megatron-LM's `pretrain`, small enough for a CPU, with the lines that record it.

torchrun --nproc-per-node 2 megatron_loop.py --train-iters 20
torchrun --nproc-per-node 2 megatron_loop.py --train-iters 24 --clip-grad 0.3   # goes on from the newest save

Lines that a loop of yours needs are marked `lineage`. Bridge, NeMo and other forks have the same places.
"""

import argparse
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from common import Numbers

import lineage


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-iters", type=int, default=20)
    parser.add_argument("--clip-grad", type=float, default=1.0)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--save", default="checkpoints")
    parser.add_argument("--save-interval", type=int, default=10)
    parser.add_argument("--num-microbatches", type=int, default=2)
    return parser.parse_args()


def setup_model_and_optimizer(args):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=10)
    torch.manual_seed(1234 + dist.get_rank())
    return model, optimizer, scheduler


def checkpoint_name(args, iteration):
    return Path(args.save) / f"iter_{iteration:07d}"


def save_checkpoint(args, iteration, model, optimizer, scheduler, loader):
    folder = checkpoint_name(args, iteration)
    rank = dist.get_rank()
    folder.mkdir(parents=True, exist_ok=True)
    own = {"rng_state": torch.get_rng_state(), "dataloader": loader.state_dict()}
    torch.save(own, folder / f"own_{rank:05d}.pt")
    if rank == 0:
        state = {
            "iteration": iteration,
            "model": model.module.state_dict(),
            "optimizer": optimizer.state_dict(),
            "opt_param_scheduler": scheduler.state_dict(),
        }
        torch.save(state, folder / "state.pt")
    dist.barrier()
    if rank == 0:
        (Path(args.save) / "latest_checkpointed_iteration.txt").write_text(str(iteration))


def load_checkpoint(args, model, optimizer, scheduler, loader):
    """Load the newest; returns its iteration and folder."""
    pointer = Path(args.save) / "latest_checkpointed_iteration.txt"
    if not pointer.exists():
        return 0, None
    folder = checkpoint_name(args, int(pointer.read_text()))
    state = torch.load(folder / "state.pt")
    own = torch.load(folder / f"own_{dist.get_rank():05d}.pt")
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["opt_param_scheduler"])
    loader.load_state_dict(own["dataloader"])
    torch.set_rng_state(own["rng_state"])
    return state["iteration"], folder


def loss_func(labels, output):
    return torch.nn.functional.mse_loss(output, labels)


def forward_step(st, data_iterator, model):
    batch = next(data_iterator)
    st.batch(batch)  # lineage: each micro-batch, as the model is fed it
    return model(batch["x"]), partial(loss_func, batch["y"])


def train_step(forward_step_func, data_iterator, model, optimizer, scheduler, args, st):
    optimizer.zero_grad()
    for _ in range(args.num_microbatches):
        output, loss_of = forward_step_func(st, data_iterator, model)
        loss = loss_of(output)
        (loss / args.num_microbatches).backward()
        st.loss(loss)  # lineage: this rank's own loss, before any reduction
    torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad)
    optimizer.step()
    scheduler.step()


def pretrain(args):
    model, optimizer, scheduler = setup_model_and_optimizer(args)
    loader = Numbers()
    loader.position = dist.get_rank() * 1_000_000
    iteration, folder = load_checkpoint(args, model, optimizer, scheduler, loader)
    rec = lineage.attach(  # lineage: on every rank, after the load and before the first forward
        None,
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        loader=loader,
        config=args,
        resumed_from=folder,
    )
    data_iterator = iter(loader)
    while iteration < args.train_iters:
        iteration += 1
        with rec.step(iteration) as st:  # lineage: around the update
            train_step(forward_step, data_iterator, model, optimizer, scheduler, args, st)
        if iteration % args.save_interval == 0:
            save_checkpoint(args, iteration, model, optimizer, scheduler, loader)
            rec.checkpoint(checkpoint_name(args, iteration), step=iteration)  # lineage: after the save
    rec.close()  # lineage


dist.init_process_group("gloo")
pretrain(parse_args())
dist.destroy_process_group()
