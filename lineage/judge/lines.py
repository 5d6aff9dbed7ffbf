"""The lines of code, or the commands, that would show what is not shown."""

from __future__ import annotations

SHOW = {
    "learning_rate": "lineage.attach(run, optimizer=optimizer, scheduler=scheduler)",
    "lr_schedule": "lineage.attach(run, scheduler=scheduler)",
    "optimizer": "lineage.attach(run, optimizer=optimizer)",
    "weight_decay": "lineage.attach(run, optimizer=optimizer)",
    "global_batch": "with rec.step(step, batch):",
    "data_mix": "lineage.attach(run, loader=loader)",
    "data_order": "lineage.attach(run, loader=loader)",
    "loader_position": "a loader with state_dict(), given to lineage.attach(run, loader=loader)",
    "precision": "lineage.attach(run, model=model)",
    "model": "lineage.attach(run, model=model)",
    "weights": "rec.checkpoint(path, step=step) at each save",
    "optimizer_state": "lineage.attach(run, optimizer=optimizer) and rec.checkpoint at each save",
    "lr_scheduler": "lineage.attach(run, scheduler=scheduler)",
    "rng": "rec.checkpoint(path, step=step) at each save",
    "parent": "rec.resumed_from(path)",
    "grad_clip": "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)",
    "damage": "lineage verify",
    "ledger": "name that ledger's folder as well, or put it beside the others",
}
"""What is missing -> the line that would show it."""
