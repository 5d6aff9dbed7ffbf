"""Two gloo ranks that train on a shard each, or both on the same one. test_batches.py runs it."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import lineage


def main(root: str, same: bool) -> None:
    """Train twelve steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = TensorDataset(torch.randint(0, 90, (128, 16), generator=torch.Generator().manual_seed(1)))
    sampler = DistributedSampler(data, num_replicas=2, rank=0 if same else rank, shuffle=True, seed=3)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Embedding(90, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with lineage.attach(None, dir=root, run_id="two", model=model, optimizer=optimizer, quiet=True) as rec:
        for step, (ids,) in enumerate(DataLoader(data, batch_size=4, sampler=sampler), 1):
            if step > 12:
                break
            with rec.step(step, {"input_ids": ids}) as st:
                loss = model(ids).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                st.loss(loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "same")
