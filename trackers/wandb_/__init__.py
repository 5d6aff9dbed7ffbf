"""The W&B adapter: how each record looks on the page of a `wandb.Run`."""
