"""Real text that every machine has: the sources of the Python standard library, as bytes."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

import torch

VOCABULARY = 256
MODULES = (
    "argparse.py",
    "ast.py",
    "dataclasses.py",
    "datetime.py",
    "inspect.py",
    "pathlib.py",
    "typing.py",
    "zipfile.py",
)


def corpus(limit: int = 400_000) -> torch.Tensor:
    """The text as uint8 tokens. Packages that moved in newer versions of Python are left out."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    texts = [(folder / name).read_bytes() for name in MODULES if (folder / name).is_file()]
    return torch.frombuffer(bytearray(b"\n".join(texts)[:limit]), dtype=torch.uint8).clone()


class TextLoader:
    """Batches of random windows, in an order given by a seed, with a position that can be saved.

    Rank r of w takes every w-th window. `skip` starts that many batches further on.
    """

    def __init__(
        self, text: torch.Tensor, *, batch: int, length: int, rank: int, world: int, seed: int
    ) -> None:
        self.text, self.batch, self.length = text, batch, length
        self.rank, self.world, self.seed = rank, world, seed
        self.position = 0

    def __iter__(self) -> TextLoader:
        return self

    def __next__(self) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.position)
        starts = torch.randint(
            0, len(self.text) - self.length - 1, (self.world * self.batch,), generator=generator
        )[self.rank :: self.world]
        self.position += 1
        windows = torch.stack([self.text[s : s + self.length + 1] for s in starts.tolist()]).long()
        return {"input_ids": windows[:, :-1], "labels": windows[:, 1:]}

    def state_dict(self) -> dict[str, Any]:
        """Where the next batch is taken from."""
        return {"position": self.position, "seed": self.seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved position."""
        self.position, self.seed = int(state["position"]), int(state["seed"])

    def lineage_data(self) -> dict[str, str]:
        """What this loader reads, for the layer."""
        return {
            "data_mix": f"Python standard library sources, {len(self.text):,} bytes",
            "data_order": f"random windows, seed {self.seed}",
        }
