"""A loop with its own W&B calls, offline. The layer adds what it knows under `lineage/`, beside them."""

import wandb
from common import parts, update

import lineage

run = wandb.init(project="examples", mode="offline", config={"lr": 1e-2, "grad_clip": 1.0})
model, optimizer, scheduler, loader = parts(run.config["lr"])

rec = lineage.attach(run, model=model, optimizer=optimizer, scheduler=scheduler, loader=loader)
for step, batch in enumerate(loader, start=1):
    with rec.step(step, batch) as st:
        loss = update(model, optimizer, scheduler, batch, run.config["grad_clip"])
        st.loss(loss)
    run.log({"loss": loss.item()}, step=step)
    if step == 20:
        break
rec.close()  # before run.finish(), so that the page is complete
run.finish()
