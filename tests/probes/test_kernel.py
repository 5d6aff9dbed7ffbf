"""The Triton kernel against the reference.

Without CUDA it runs in Triton's interpreter: `TRITON_INTERPRET=1 python -m pytest tests/probes/test_kernel.py`
in an environment that holds torch and triton (`pip install triton`; torch's CPU wheels come without it). The
interpreter shows the arithmetic; one test compiles for sm_90, which takes no GPU; speed takes a GPU.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("neither CUDA nor TRITON_INTERPRET=1", allow_module_level=True)

from lineage.capture import digest
from lineage.probes import columns
from lineage.probes.probes import Probes
from lineage.probes.read import Reader

from .models import batch, loss_of, net
from .tensors import DTYPES, awkward
from .test_read import check

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def read(tensors: list[Any], **options: Any) -> Any:
    out = torch.zeros(len(tensors), columns.WIDTH, dtype=torch.float64, device=DEVICE)
    reader = Reader(kernel_on=lambda device: True)
    assert reader.read(tensors, out, range(len(tensors)), **options) == {}
    return out


@pytest.mark.parametrize("digested", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_kernel_reads_what_the_reference_reads(dtype: Any, digested: bool) -> None:
    found = {name: t.to(DEVICE) for name, t in awkward(dtype).items()}
    if DEVICE == "cuda":  # a copy to the device is aligned
        found["unaligned view"] = torch.randn(5000, device=DEVICE).to(dtype)[1:]
    check(found, read(list(found.values()), digest=digested), digested=digested)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_same_bits_give_the_same_row_in_any_company(dtype: Any) -> None:
    """No atomic additions: a tensor's row does not depend on what else is in the launch, or on its row."""
    a, b, c = (t.to(DEVICE) for t in list(awkward(dtype).values())[1:4])
    alone, among = read([c]), read([a, b, c])
    assert alone[0].tolist() == among[2].tolist()
    assert read([a, b, c]).tolist() == among.tolist()


def test_shards_read_by_the_kernel_add_up_to_the_digest_of_the_whole() -> None:
    whole = torch.randn(60_001, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    cuts = [0, 5, 4096, 20_000, 20_001, 60_001]
    shards = [whole[a:b] for a, b in itertools.pairwise(cuts)]
    out = read(shards, digest=True, starts=cuts[:-1])
    assert out.view(torch.int64)[:, 7:9].sum(0).tolist() == digest.lanes(whole.cpu()).tolist()


def test_a_tensor_that_lies_in_pieces_is_one_row() -> None:
    whole = torch.randn(90_001, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    pieces = [whole[:7], whole[7:50_000], whole[50_000:]]
    out = read([pieces, torch.ones(3, device=DEVICE)], digest=True, starts=[[0, 7, 50_000], 0])
    check({"whole": whole, "ones": torch.ones(3)}, out, digested=True)


def test_a_table_follows_tensors_that_moved() -> None:
    reader = Reader(kernel_on=lambda device: True)
    out = torch.zeros(1, columns.WIDTH, dtype=torch.float64, device=DEVICE)
    for value in (1.0, 2.0, 3.0):
        kept = torch.full((5000,), value, device=DEVICE)
        reader.read([kept], out, [0])
        assert out[0, columns.LARGEST].item() == value
    assert len(reader._tables) <= 2, "aligned or not: one table each"


def _frame(model: Any, optimizer: Any, reader: Reader) -> Any:
    probes = Probes(model=model, optimizer=optimizer, reader=reader)
    probes.finish(1)
    (frame,) = probes.arrived(wait=True)
    probes.remove()
    assert probes.trouble == {}
    assert frame.facts.not_read == {}
    return frame


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_kernel_of_the_update_says_what_plain_torch_says(dtype: Any, decay: float) -> None:
    """Weight, both moments and update, also where a moment is broken or tiny."""
    model = net().to(DEVICE, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=decay)
    for step in (1, 2):
        optimizer.zero_grad()
        (loss_of(model, batch(step).to(DEVICE)) * (1e-7 if step == 1 else 1.0)).backward()
        optimizer.step()
    optimizer.state[model.head.weight]["exp_avg_sq"][3, 3] = -1e-3
    optimizer.state[model.tokens.weight]["exp_avg"][0, 0] = float("inf")
    optimizer.state[model.blocks[0].inner.weight]["exp_avg_sq"].mul_(1e-25)
    other = net().to(dtype)
    other.load_state_dict(model.state_dict())
    moments = torch.optim.AdamW(other.parameters(), lr=1e-2, weight_decay=decay)
    moments.load_state_dict(optimizer.state_dict())
    kernel = _frame(model, optimizer, Reader(kernel_on=lambda device: True))
    plain = _frame(other, moments, Reader())
    assert set(kernel.found) == set(plain.found)
    assert {k.kind for k in kernel.found} == {"weight", "moment1", "moment2", "update"}
    for key, a in kernel.found.items():
        b = plain.found[key]
        assert a.sumsq == pytest.approx(b.sumsq, rel=1e-5), key
        assert (a.n_nan, a.n_posinf, a.n_neginf, a.elements) == (
            b.n_nan,
            b.n_posinf,
            b.n_neginf,
            b.elements,
        ), key
        assert a.largest == pytest.approx(b.largest, rel=1e-5), key
    assert kernel.negative_moments() == ["head.weight"]


def test_the_kernels_compile_for_sm_90_and_load_aligned_tensors_in_wide_words(tmp_path: Path) -> None:
    """128-bit loads where a tensor is aligned: element by element, no GPU reaches its bandwidth."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, "-m", "tests.probes.compile_kernels"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    *variants, update, total = map(json.loads, done.stdout.splitlines())
    assert update["wide_loads"] >= 3 * 2
    assert len(variants) == 12
    assert all(v["cubin"] > 0 for v in variants)
    assert all((v["wide_loads"] > 0) >= v["ALIGNED"] for v in variants), variants
    assert total["total"] > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
def test_reading_waits_for_nothing_on_cuda() -> None:
    tensors = [torch.randn(100_003, device="cuda").to(t) for t in DTYPES]
    read(tensors, digest=True)  # compiled, and the multipliers made
    torch.cuda.set_sync_debug_mode("error")
    try:
        out = read(tensors, digest=True)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert out[:, columns.READ].tolist() == [100_003.0] * 3
