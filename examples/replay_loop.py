"""A loop that meets a broken sample at step 15. Then: lineage replay --with replay_build:build."""

from pathlib import Path

import torch
from common import parts, save

import lineage

model, optimizer, scheduler, loader = parts(lr=1e-2)
rec = lineage.attach(None, model=model, optimizer=optimizer, scheduler=scheduler, loader=loader, gate=True)
with rec:
    for step, batch in enumerate(loader, start=1):
        if step == 15:
            batch["x"][3] = 1e30  # what a damaged shard may hold
            batch["y"] = batch["x"].sum(1, keepdim=True)
        with rec.step(step, batch) as st:
            loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            st.loss(loss)
        if step % 10 == 0:
            save(Path(f"checkpoints/step-{step}"), model, optimizer, scheduler, loader, step)
            rec.checkpoint(f"checkpoints/step-{step}", step=step)
        if step == 20:
            break
