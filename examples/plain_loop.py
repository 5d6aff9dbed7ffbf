"""A loop without a tracker: twenty updates, then a resume from step 10 with another clip threshold."""

from pathlib import Path

from common import load, parts, save, update

import lineage


def train(steps, clip, resume=None):
    model, optimizer, scheduler, loader = parts(lr=1e-2)
    done = load(resume, model, optimizer, scheduler, loader) if resume else 0
    rec = lineage.attach(
        None,
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        loader=loader,
        config={"lr": 1e-2, "grad_clip": clip},
        resumed_from=resume,
    )
    with rec:
        for step, batch in enumerate(loader, start=done + 1):
            with rec.step(step, batch) as st:
                loss = update(model, optimizer, scheduler, batch, clip)
                st.loss(loss)
            if step % 10 == 0:
                save(Path(f"checkpoints/step-{step}"), model, optimizer, scheduler, loader, step)
                rec.checkpoint(f"checkpoints/step-{step}", step=step)
            if step == steps:
                break


train(20, clip=1.0)
train(20, clip=0.3, resume=Path("checkpoints/step-10"))  # then: lineage show, lineage verdict
