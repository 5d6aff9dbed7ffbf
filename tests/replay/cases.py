"""Training loops that break in one way each, and what `build` gives for their replays. All real torch, all on a CPU."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import lineage
from lineage.bundle import reading
from lineage.bundle.reading import Bundle
from lineage.replay import conditions
from lineage.replay.run import Asked, Replaying
from lineage.replay.where import begin
from schemas import Replay

BAD = 12


@torch.library.custom_op("lineage_tests::fused_square", mutates_args=())
def fused_square(x: torch.Tensor) -> torch.Tensor:
    """A kernel of one's own that is wrong for elements above 2: NaN where it should be the square."""
    y = x * x
    return torch.where(x > 2.0, math.nan, y)


@fused_square.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


fused_square.register_autograd(
    lambda ctx, grad: grad * 2 * ctx.saved_tensors[0],
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


class Kernel(nn.Module):
    """Squares by the kernel that a switch chooses, as attention does."""

    def __init__(self, chooses: Callable[[], bool] = lambda: True) -> None:
        super().__init__()
        self.chooses = chooses

    def forward(self, x: Any) -> Any:
        return torch.ops.lineage_tests.fused_square(x) if self.chooses() else x * x


class Half(nn.Module):
    """Squares in float16, whose largest number is 65,504."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Any) -> tuple[Any, Any]:
        y = self.inner(x)
        return y, y * y


class LogOf(nn.Module):
    """Minus log of a probability that may be zero."""

    def forward(self, x: Any) -> Any:
        return -torch.log(torch.relu(x) + 0.0).clamp(max=1e3) if self.training else x


class Net(nn.Module):
    """A middle between two layers, with dropout; the middle may be checkpointed, and give a tuple."""

    def __init__(
        self, middle: nn.Module | None = None, *, again: bool | None = None, autocast: bool = False
    ) -> None:
        super().__init__()
        self.first, self.drop = nn.Linear(4, 4), nn.Dropout(0.2)
        self.middle = nn.Sequential(nn.Tanh()) if middle is None else middle
        self.last = nn.Linear(4, 1)
        self.again, self.autocast = again, autocast

    def forward(self, x: Any) -> Any:
        with torch.autocast("cpu", torch.float16, enabled=self.autocast):
            h = self.drop(self.first(x))
            made = (
                self.middle(h) if self.again is None else checkpoint(self.middle, h, use_reentrant=self.again)
            )
            h = made[1] if isinstance(made, tuple) else made
            return self.last(h.float())


class Case:
    """A loop with everything that a replay needs to be made again."""

    def __init__(
        self,
        make: Callable[[], nn.Module] = Net,
        *,
        batch: Callable[[int, Any], Any] = lambda step, batch: batch,
        compile_with: Any = None,
        lr: float = 1e-2,
        micros: int = 1,
    ) -> None:
        self.make, self.batch, self.compile_with, self.lr, self.micros = make, batch, compile_with, lr, micros
        self.shared: dict[str, Any] = {}

    def parts(self) -> tuple[Any, Any]:
        torch.manual_seed(7)
        model = self.make()
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.lr)
        if self.compile_with is not None:
            torch._dynamo.reset()
            model = torch.compile(model, backend=self.compile_with)
        return model, optimizer

    @staticmethod
    def loss(model: Any, batch: Any) -> Any:
        return F.mse_loss(model(batch["x"]), batch["y"])

    def given(self, step: int, micro: int, rank: int = 0) -> Any:
        g = torch.Generator().manual_seed(10_000 * rank + 100 * step + micro)
        x = torch.randn(8, 4, generator=g)
        return self.batch(step, {"x": x, "y": x.sum(1, keepdim=True)})

    def train(self, root: Path, steps: int = 14, *, save: int | None = 5, **options: Any) -> Bundle:
        """Run it; save once; return the first bundle."""
        model, optimizer = self.parts()
        with lineage.attach(
            None, model=model, optimizer=optimizer, dir=root / "runs", quiet=True, report=False, **options
        ) as rec:
            for step in range(1, steps + 1):
                with rec.step(step) as st:
                    optimizer.zero_grad()
                    for micro in range(self.micros):
                        batch = self.given(step, micro)
                        st.batch(batch)
                        loss = self.loss(model, batch)
                        (loss / self.micros).backward()
                        st.loss(loss)
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    self.after(step, model, optimizer)
                if step == save:
                    self.save(root / "ck", model, optimizer)
                    rec.checkpoint(root / "ck", step=step)
        return reading.within(next((root / "runs").iterdir()))[0]

    def after(self, step: int, model: Any, optimizer: Any) -> None:
        """What the loop does after an update."""

    @staticmethod
    def save(path: Path, model: Any, optimizer: Any) -> None:
        path.mkdir(parents=True)
        bare = getattr(model, "_orig_mod", model)
        torch.save({"model": bare.state_dict(), "optimizer": optimizer.state_dict()}, path / "state.pt")

    def build(self) -> dict[str, Any]:
        model, optimizer = self.parts()

        def load(path: Path) -> None:
            state = torch.load(path / "state.pt", weights_only=True)
            getattr(model, "_orig_mod", model).load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])

        return {"model": model, "optimizer": optimizer, "loss": self.loss, "load": load}


def replay(bundle: Bundle, build: Any, *changes: str, **options: Any) -> list[Replay]:
    """The control, and the changed replay where one is asked for."""
    asked = Asked(function=build, changes=conditions.parse(changes), **options)
    made = Replaying(bundle, asked, begin(bundle))
    return [made.control(), *([made.changed()] if changes else [])]


def at(step: int, change: Callable[[Any], Any]) -> Callable[[int, Any], Any]:
    """A batch that is changed at one step."""
    return lambda s, batch: change(copy.copy(batch)) if s == step else batch


def scaled(by: float) -> Callable[[Any], Any]:
    """All samples larger, the targets as before."""
    return lambda batch: {**batch, "x": batch["x"] * by}


def spoiled(place: int) -> Callable[[Any], Any]:
    """One sample is NaN."""

    def change(batch: Any) -> Any:
        x = batch["x"].clone()
        x[place, 2] = math.nan
        return {**batch, "x": x}

    return change
