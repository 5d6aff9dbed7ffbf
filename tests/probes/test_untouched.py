"""Training with probes is, bit for bit, training without: losses, gradients and weights.

Dropout draws from the generator, clipping and accumulation are on, and every probe is on that the case allows.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn

from lineage.probes.gate import Gate
from lineage.probes.probes import Probes, Settings

from . import ranks
from .models import batch, loss_of, net

STEPS = 4


def bits(tensors: Any) -> str:
    """Digest of the raw bits of tensors, in order."""
    sha = hashlib.sha256()
    for t in tensors:
        held = t.to_local() if hasattr(t, "to_local") else t
        sha.update(held.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def train(
    wrap: Any,
    *,
    probes_on: bool,
    rank: int = 0,
    micro: int = 1,
    amp: Any = None,
    activations: bool = True,
    gate: bool = True,
) -> list[str]:
    """Losses, gradients and weights of each step as digests."""
    torch._dynamo.reset()
    plain = net()
    plain.blocks.insert(1, nn.Dropout(0.2))
    model = plain
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10) if amp is torch.float16 else None
    found, probes = [], None
    watched = None
    if wrap in ("compile",):
        model = torch.compile(plain, fullgraph=True)
    elif callable(wrap):
        model = wrap(plain)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if probes_on:
        settings = Settings(activations=activations, digest_every=2, state_every=1)
        probes = Probes(model=model, optimizer=optimizer, scaler=scaler, settings=settings)
        watched = Gate(optimizer, model=model) if gate else None
    torch.manual_seed(100 + rank)
    for step in range(1, STEPS + 1):
        if probes:
            probes.start()
        optimizer.zero_grad()
        for i in range(micro):
            with torch.autocast("cpu", dtype=amp or torch.bfloat16, enabled=amp is not None):
                loss = loss_of(model, batch(10 * step + i, rank)) / micro
            (scaler.scale(loss) if scaler else loss).backward()
            found.append(loss.item().hex())
        if scaler:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        found.append(bits(p.grad for p in model.parameters() if p.grad is not None))
        (scaler.step(optimizer) if scaler else optimizer.step())
        if scaler:
            scaler.update()
        if probes:
            probes.finish(step)
        found.append(bits(model.parameters()))
    if probes:
        frames = probes.arrived(wait=True)
        assert probes.trouble == {}
        assert len(frames) == STEPS
        kinds = {k.kind for k in frames[-1].found}
        assert {"gradient", "weight", "moment1", "moment2", "update"} <= kinds, "the probes were really on"
        assert ("activation" in kinds) == activations
        probes.remove()
    if watched:
        assert watched.trouble == {}
        watched.remove()
    return found


RELEASE = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2])
ACTIVATIONS = RELEASE >= (2, 13)
"""With activation probes a compiled graph gives the same bits on torch 2.13, and others on 2.6: they are opt-in."""

CASES: dict[str, dict[str, Any]] = {
    "plain loop": {"wrap": None},
    "accumulation": {"wrap": None, "micro": 3},
    "AMP bf16": {"wrap": None, "amp": torch.bfloat16},
    "AMP fp16": {"wrap": None, "amp": torch.float16},
    "compile": {"wrap": "compile", "activations": ACTIVATIONS},
    "compile, the default set": {"wrap": "compile", "activations": False},
    "compile, AMP bf16, the default set": {"wrap": "compile", "amp": torch.bfloat16, "activations": False},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_one_process_trains_the_same_with_and_without(name: str) -> None:
    case = CASES[name]
    assert train(**case, probes_on=True) == train(**case, probes_on=False)


def _wrap_ddp(model: Any) -> Any:
    return nn.parallel.DistributedDataParallel(model)


def _wrap_fsdp2(model: Any) -> Any:
    from torch.distributed.fsdp import fully_shard

    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def _both(rank: int, world: int, kind: str, micro: int) -> Any:
    wrap = {"DDP": _wrap_ddp, "FSDP2": _wrap_fsdp2}[kind]
    gate = kind == "DDP"
    return [train(wrap, probes_on=on, rank=rank, gate=gate, micro=micro) for on in (True, False)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "world", "micro"),
    [("DDP", 2, 1), ("DDP", 3, 1), ("FSDP2", 2, 1), ("DDP", 3, 3), ("FSDP2", 2, 3)],
)
def test_ranks_train_the_same_with_and_without(tmp_path: Path, kind: str, world: int, micro: int) -> None:
    if kind == "FSDP2" and not ranks.FSDP2_ON_CPU:
        pytest.skip("FSDP2 does not run on a CPU with this torch")
    for on, off in ranks.run(functools.partial(_both, kind=kind, micro=micro), world, tmp_path):
        assert on == off
        assert len(on) == (2 + micro) * STEPS
