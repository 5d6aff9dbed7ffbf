"""The demo's training script: an ordinary DistributedDataParallel loop with its own tracker calls.

What the layer adds is marked; without `--layer on` the script runs without it. It is started once per rank with
the variables that torchrun sets.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from . import data, faults, model


def arguments() -> argparse.Namespace:
    """The script's options."""
    p = argparse.ArgumentParser(prog="train.py")
    p.add_argument("--out", type=Path, required=True, help="folder of checkpoints and results")
    p.add_argument("--max-steps", type=int, default=60)
    p.add_argument("--save-every", type=int, default=10)
    p.add_argument("--learning-rate", type=float, default=3e-3)
    p.add_argument("--warmup-steps", type=int, default=10)
    p.add_argument("--grad-clip", type=float, default=1.0)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--seed", type=int, default=1234)
    p.add_argument("--resume", type=Path, help="checkpoint to load")
    p.add_argument("--drop-optimizer", action="store_true", help="load weights only")
    p.add_argument("--skip-batches", type=int, default=0, help="batches to leave out after a resume")
    p.add_argument("--fault", help="kind:rank:step")
    p.add_argument("--layer", choices=("on", "off"), default="on")
    p.add_argument("--kill-layer", help="rank:step: break the layer there, to see that training goes on")
    p.add_argument("--tracker", default="none", help="none, or an MLflow tracking URI")
    p.add_argument("--tracker-run", help="MLflow run id to resume")
    p.add_argument("--run-name", default="demo")
    p.add_argument("--ledgers", type=Path, help="folder of all ledgers")
    p.add_argument("--run-id", help="lineage run id")
    return p.parse_args()


CONFIG = (
    "max_steps",
    "save_every",
    "learning_rate",
    "warmup_steps",
    "grad_clip",
    "batch_size",
    "seed",
    "drop_optimizer",
    "skip_batches",
)
"""What of the options is the run's config."""


def main() -> None:
    """Train, save, and write the result of each rank."""
    args = arguments()
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(args.seed)
    net = model.GPT()
    ddp = DistributedDataParallel(net)
    torch.manual_seed(args.seed + rank)
    random.seed(args.seed + rank)
    optimizer = torch.optim.AdamW(
        ddp.parameters(), lr=args.learning_rate, betas=(0.9, 0.95), weight_decay=0.1
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, Schedule(args.warmup_steps, args.max_steps))
    loader = data.TextLoader(
        data.corpus(), batch=args.batch_size, length=64, rank=rank, world=world, seed=args.seed
    )
    done = load(args, net, optimizer, scheduler, loader, rank) if args.resume else 0

    run = start_tracker(args) if rank == 0 else None
    rec = attach(
        args, run, model=ddp, optimizer=optimizer, scheduler=scheduler, loader=loader
    )  # <- the layer
    strike = faults.Strike(faults.Fault.parse(args.fault), net, rank) if args.fault else None
    losses: dict[int, float] = {}

    for step in range(done + 1, args.max_steps + 1):
        batch = next(loader)
        if strike:
            batch = strike.batch(step, batch)
        if args.kill_layer == f"{rank}:{step}":
            break_layer(rec)
        with rec.step(step, batch) as st:  # <- the layer
            loss = model.loss_of(ddp(batch["input_ids"]), batch["labels"])
            handle = strike.before_backward(step) if strike else None
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            if handle:
                handle.remove()
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), args.grad_clip)
            optimizer.step()
            scheduler.step()
            st.loss(loss)  # <- the layer
        losses[step] = loss.item()
        if run is not None:
            log(run, losses[step], optimizer.param_groups[0]["lr"], step)
        if stop_requested(rec, world):
            break
        if step % args.save_every == 0:
            save(args.out / f"step-{step:05d}", step, net, optimizer, scheduler, loader, rank)
            rec.checkpoint(args.out / f"step-{step:05d}", step=step)  # <- the layer
    rec.close()  # <- the layer
    finish(args, run, rank, losses, net)
    dist.destroy_process_group()


class Schedule:
    """Linear warm-up, then cosine decay to a tenth."""

    def __init__(self, warmup: int, steps: int) -> None:
        self.warmup, self.steps = warmup, steps

    def __call__(self, done: int) -> float:
        """The factor on the peak learning rate after `done` updates."""
        if done < self.warmup:
            return (done + 1) / self.warmup
        share = min(1.0, (done - self.warmup) / max(1, self.steps - self.warmup))
        return 0.1 + 0.45 * (1.0 + math.cos(math.pi * share))


def save(folder: Path, step: int, net: Any, optimizer: Any, scheduler: Any, loader: Any, rank: int) -> None:
    """Rank 0 writes what all ranks share; every rank writes its random-number state. Then all wait for all."""
    folder.mkdir(parents=True, exist_ok=True)
    if rank == 0:
        torch.save(net.state_dict(), folder / "model.pt")
        torch.save(optimizer.state_dict(), folder / "optimizer.pt")
        torch.save(
            {"scheduler": scheduler.state_dict(), "loader": loader.state_dict(), "step": step},
            folder / "trainer.pt",
        )
    torch.save({"torch": torch.get_rng_state(), "python": random.getstate()}, folder / f"rng-{rank}.pt")
    dist.barrier()


def load(args: argparse.Namespace, net: Any, optimizer: Any, scheduler: Any, loader: Any, rank: int) -> int:
    """Load a checkpoint, as faithfully as the options allow. Returns the number of completed updates."""
    folder = args.resume
    trainer = torch.load(folder / "trainer.pt", weights_only=True)
    net.load_state_dict(torch.load(folder / "model.pt", weights_only=True))
    scheduler.load_state_dict(trainer["scheduler"])
    loader.load_state_dict(trainer["loader"])
    loader.position += args.skip_batches
    if not args.drop_optimizer:
        optimizer.load_state_dict(torch.load(folder / "optimizer.pt", weights_only=True))
    else:
        scheduler.base_lrs = [args.learning_rate for _ in optimizer.param_groups]
        for group, factor in zip(optimizer.param_groups, scheduler.lr_lambdas, strict=True):
            group["lr"] = args.learning_rate * factor(trainer["step"])
    rng = torch.load(folder / f"rng-{rank}.pt", weights_only=False)
    torch.set_rng_state(rng["torch"])
    random.setstate(rng["python"])
    return int(trainer["step"])


def start_tracker(args: argparse.Namespace) -> Any:
    """The script's own tracker calls: start or resume an MLflow run, and log its parameters."""
    if args.tracker == "none":
        return None
    import mlflow

    mlflow.set_tracking_uri(args.tracker)
    mlflow.set_experiment("lineage demo")
    run = mlflow.start_run(run_id=args.tracker_run, run_name=None if args.tracker_run else args.run_name)
    if args.tracker_run is None:
        mlflow.log_params({k: v for k, v in vars(args).items() if k in CONFIG})
    return run


def log(run: Any, loss: float, lr: float, step: int) -> None:
    """The script's own logging."""
    import mlflow

    mlflow.log_metrics({"loss": loss, "lr": lr}, step=step)


def attach(args: argparse.Namespace, run: Any, **objects: Any) -> Any:
    """The layer, or nothing in its place."""
    if args.layer == "off":
        from .without import NoLayer

        return NoLayer()
    import lineage

    shown = {k: v for k, v in vars(args).items() if k in CONFIG}
    return lineage.attach(
        run,
        config=shown,
        resumed_from=args.resume,
        run_id=args.run_id,
        dir=args.ledgers,
        on_alarm="request_stop",
        name=args.run_name,
        **objects,
    )


def break_layer(rec: Any) -> None:
    """Break what the layer stands on: its journal, its threads, its probes."""
    writer = rec.begin()
    if writer is None:
        return

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the layer was broken on purpose")

    writer.journal.append = writer.rows = writer.write = broken
    rec.steps.streams.judge = rec.steps.probing.send = broken


def stop_requested(rec: Any, world: int) -> bool:
    """Whether any rank's layer asks to stop: the script's own decision, with the script's own collective."""
    flag = torch.tensor(float(rec.should_stop))
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag > 0)


def finish(args: argparse.Namespace, run: Any, rank: int, losses: dict[int, float], net: Any) -> None:
    """Write the losses (exactly, as hexadecimal floats) and the final weights of this rank."""
    args.out.mkdir(parents=True, exist_ok=True)
    result = {
        "losses": {s: v.hex() for s, v in losses.items()},
        "run": getattr(getattr(run, "info", None), "run_id", None),
    }
    (args.out / f"result-{args.run_name}-{rank}.json").write_text(json.dumps(result))
    torch.save(net.state_dict(), args.out / f"final-{args.run_name}-{rank}.pt")
    if run is not None:
        import mlflow

        mlflow.end_run()


if __name__ == "__main__":
    main()
