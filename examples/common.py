"""What the three examples share: a tiny model, and a loader that knows where it stands."""

import torch


class Numbers:
    """Endless batches, in an order that the position alone decides."""

    position = 0

    def __iter__(self):
        return self

    def __next__(self):
        generator = torch.Generator().manual_seed(self.position)
        self.position += 1
        x = torch.randn(16, 4, generator=generator)
        return {"x": x, "y": x.sum(1, keepdim=True)}

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]

    def lineage_data(self):
        return {"data_mix": "sums of four numbers", "data_order": "by position"}


def parts(lr):
    """Model, optimizer, scheduler and loader."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=10)
    return model, optimizer, scheduler, Numbers()


def update(model, optimizer, scheduler, batch, clip):
    """One update; returns the loss."""
    loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    scheduler.step()
    return loss


def save(path, model, optimizer, scheduler, loader, step):
    """Everything that a faithful resume needs."""
    path.mkdir(parents=True, exist_ok=True)
    objects = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    state = {name: o.state_dict() for name, o in objects.items()}
    torch.save({**state, "rng": torch.get_rng_state(), "step": step}, path / "state.pt")


def load(path, model, optimizer, scheduler, loader):
    """Load it again; returns the number of completed updates."""
    state = torch.load(path / "state.pt", weights_only=True)
    objects = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    for name, o in objects.items():
        o.load_state_dict(state[name])
    torch.set_rng_state(state["rng"])
    return state["step"]
