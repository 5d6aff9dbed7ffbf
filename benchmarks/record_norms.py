"""Record gradient norms by parameter and by rank from a real, healthy training run.

`python -m benchmarks.record_norms [name ...]` writes `data/norms-<name>.parquet`, which the experiments about
detectors read: public runs log no norms by layer or rank. Ranks are the micro-batches of one step,
each with a backward pass of its own; their gradients are averaged as data parallelism does.
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from lineage.demo import data, model

FOLDER = Path(__file__).resolve().parent / "data"


@dataclass(frozen=True)
class Plan:
    """One run: its size, learning rate, and how many ranks share a step."""

    name: str
    width: int
    layers: int
    ranks: int
    batch: int
    rate: float
    seed: int
    steps: int = 3000
    length: int = 64


PLANS = (
    Plan("tuning", width=96, layers=3, ranks=4, batch=4, rate=1e-3, seed=1),
    Plan("test", width=64, layers=8, ranks=8, batch=2, rate=2e-3, seed=2),
    Plan("last", width=64, layers=4, ranks=6, batch=2, rate=3e-3, seed=3, steps=2000),
)


def record(plan: Plan) -> pa.Table:
    """Train, and return one row per step: float32 `loss/<rank>`, `local/<rank>` and `layer/<parameter>`."""
    torch.manual_seed(plan.seed)
    gpt = model.GPT(width=plan.width, layers=plan.layers, heads=4, length=plan.length)
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=plan.rate, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: _rate(s, plan.steps))
    text = data.corpus()
    loaders = [
        data.TextLoader(text, batch=plan.batch, length=plan.length, rank=r, world=plan.ranks, seed=plan.seed)
        for r in range(plan.ranks)
    ]
    names, parameters = zip(*gpt.named_parameters(), strict=True)
    rows: dict[str, list[float]] = {f"loss/{r}": [] for r in range(plan.ranks)}
    rows |= {f"local/{r}": [] for r in range(plan.ranks)}
    rows |= {f"layer/{n}": [] for n in names}
    for _ in range(plan.steps):
        sums = [torch.zeros_like(p) for p in parameters]
        for r, loader in enumerate(loaders):
            batch = next(loader)
            loss = model.loss_of(gpt(batch["input_ids"]), batch["labels"])
            gradients = torch.autograd.grad(loss, parameters)
            rows[f"loss/{r}"].append(loss.item())
            rows[f"local/{r}"].append(math.hypot(*(g.norm().item() for g in gradients)))
            sums = [total + g / plan.ranks for total, g in zip(sums, gradients, strict=True)]
        for name, p, total in zip(names, parameters, sums, strict=True):
            p.grad = total
            rows[f"layer/{name}"].append(total.norm().item())
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
    return pa.table({k: pa.array(v, pa.float32()) for k, v in rows.items()}).replace_schema_metadata(
        {"plan": str(plan)}
    )


def _rate(step: int, steps: int) -> float:
    """Warm-up over 200 steps, then a cosine down to a tenth."""
    return min(1.0, (step + 1) / 200) * (0.55 + 0.45 * math.cos(math.pi * step / steps))


def main() -> None:
    """Record the runs that the command line names, or all of them."""
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    for plan in [p for p in PLANS if not sys.argv[1:] or p.name in sys.argv[1:]]:
        began = time.monotonic()
        table = record(plan)
        path = FOLDER / f"norms-{plan.name}.parquet"
        pq.write_table(table, path, compression="zstd", use_byte_stream_split=True, use_dictionary=False)
        print(
            f"{path}: {table.num_rows} steps, {table.num_columns} streams, {time.monotonic() - began:.0f} s"
        )


if __name__ == "__main__":
    main()
