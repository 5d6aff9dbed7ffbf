"""Where a replay runs, and in what that differs from the recorded run although nobody asked."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch

from ..bundle.reading import Bundle
from ..capture.pseudonym import node
from ..judge.replayed_rules import CODE, DEVICE, SINGLE, TORCH

WORLD = "other-world"
PATIENCE = timedelta(minutes=10)
"""How long a rank waits for the others: one of them may have ended."""


@dataclass
class Where:
    """Device and ranks of this replay."""

    device: str
    """`cpu` or `cuda:0`"""
    device_name: str
    world: int = 1
    rank: int = 0
    given: dict[str, str] = field(default_factory=dict)
    """what differs -> in words"""

    def any(self, flag: bool) -> bool:
        """Whether it holds on any rank: all must make the same runs."""
        if self.world == 1:
            return flag
        device = self.device if torch.distributed.get_backend() == "nccl" else "cpu"
        found = torch.tensor(float(flag), device=device)
        torch.distributed.all_reduce(found, op=torch.distributed.ReduceOp.MAX)
        return bool(found > 0)


def ranks() -> tuple[int, int]:
    """(rank, world size) as torchrun says; (0, 1) without it."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def begin(bundle: Bundle, device: str | None = None) -> Where:
    """Choose the device, join the other ranks under torchrun, and name what differs from the run."""
    rank, world = ranks()
    local = int(os.environ.get("LOCAL_RANK", "0"))
    recorded = bundle.manifest.place.device
    if device is None:
        device = f"cuda:{local}" if recorded != "cpu" and torch.cuda.is_available() else "cpu"
    if device.startswith("cuda"):
        torch.cuda.set_device(torch.device(device))
    if world > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group(
            "nccl" if device.startswith("cuda") else "gloo", timeout=PATIENCE
        )
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"
    return Where(device, name, world, rank, given(bundle, device, world))


def given(bundle: Bundle, device: str, world: int) -> dict[str, str]:
    """What differs from the recorded run, as far as it is recorded."""
    m = bundle.manifest
    out = {}
    if m.world_size > 1 and world == 1:
        out[SINGLE] = f"one device makes the step of rank {m.rank}, of {m.world_size} ranks in the run"
    elif m.world_size != world:
        out[WORLD] = f"{world} ranks, {m.world_size} in the run"
    environment = _last(bundle.records("environment"))
    here = _uuid(device)
    if (m.place.device == "cpu") != (here == "cpu"):
        out[DEVICE] = f"on {here}, the run was on {m.place.device}"
    elif here not in ("cpu", m.place.device):
        out[DEVICE] = f"on another GPU ({here}, {m.place.device} in the run)"
    elif here == "cpu" and node(m.run, socket.gethostname()) != m.place.node:
        out[DEVICE] = "on another machine"
    known = environment.get("builds", {}).get("torch")
    if known is not None and known != torch.__version__:
        out[TORCH] = f"torch {torch.__version__}, {known} in the run"
    out |= _code(bundle)
    return out


def _uuid(device: str) -> str:
    if not device.startswith("cuda"):
        return "cpu"
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return f"GPU-{uuid}" if uuid else "cuda"


def _code(bundle: Bundle) -> dict[str, str]:
    """Whether the code here is the run's, by revision and difference of the working directory's repository."""
    recorded = _last(bundle.records("code"))
    if not recorded.get("repository") or not recorded.get("revision"):
        return {}
    from ..capture import code

    now = code.capture(blobs=_digest)
    if not now.repository or now.revision is None:
        return {CODE: f"the code here is in no repository, the run's was {recorded['revision'][:12]}"}
    if now.revision != recorded["revision"]:
        return {CODE: f"code of {now.revision[:12]}, {recorded['revision'][:12]} in the run"}
    if now.diff != recorded.get("diff"):
        return {CODE: "the code differs from the run's: other changes beside the same revision"}
    return {}


def _digest(data: bytes) -> str:
    import hashlib

    return "sha256:" + hashlib.sha256(data).hexdigest()


def _last(found: list[dict[str, Any]]) -> dict[str, Any]:
    return found[-1] if found else {}


def threads(bundle: Bundle) -> int | None:
    """The number of threads that the run computed with on a CPU: sums over threads depend on it."""
    switches = _last(bundle.records("environment")).get("switches", {})
    found = switches.get("torch.num_threads", {}).get("value")
    return int(found) if isinstance(found, int) else None
