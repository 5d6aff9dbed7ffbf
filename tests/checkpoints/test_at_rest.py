"""Digests of tensors in files: the value that `capture.digest` gives for the live tensor, however it lies there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from lineage.capture import digest
from lineage.checkpoints import at_rest, lanes
from lineage.checkpoints.at_rest import Digested
from lineage.checkpoints.contents import Piece, Tensor
from lineage.checkpoints.listing import open_place
from lineage.checkpoints.reading import look_into

from .made import in_ranks, stored

DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.uint16, torch.uint32),
    *(torch.complex64, torch.complex128),
]


def rest(path: Path | str, threads: int = 2) -> dict[str, Digested]:
    """Name -> digest of every tensor in a checkpoint."""
    folder = open_place(path)
    c = look_into(folder, path)
    return {d.tensor.name: d for d in at_rest.digests(folder, c.tensors, threads=threads)}


def made(dtype: Any, *shape: int) -> Any:
    """A tensor of some type, of all kinds of bits."""
    torch.manual_seed(sum(shape))
    size = torch.empty(0, dtype=dtype).element_size()
    raw = torch.randint(0, 256, (*shape, size) if shape else (size,), dtype=torch.uint8)
    if dtype is torch.bool:
        raw = raw & 1
    return raw.view(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
def test_tensors_of_every_type_have_the_digest_of_the_live_ones(
    dtype: Any, new: bool, tmp_path: Path
) -> None:
    live = {
        "scalar": made(dtype),
        "flat": made(dtype, 5000),
        "empty": made(dtype, 0, 3),
        "matrix": made(dtype, 70, 129),
        "three": made(dtype, 3, 5, 7),
    }
    torch.save(live, tmp_path / "x.pt", _use_new_zipfile_serialization=new)
    found = rest(tmp_path / "x.pt")
    assert {n: d.digest for n, d in found.items()} == {n: digest.tensor_digest(t) for n, t in live.items()}


def test_views_and_storages_that_are_shared_have_the_digest_of_the_view(tmp_path: Path) -> None:
    base = torch.arange(48.0).reshape(6, 8)
    live = {
        "whole": base,
        "rows": base[2:5],
        "columns": base[:, 1:4],
        "transposed": base.t(),
        "every second": base[::2, ::3],
        "diagonal": base.diagonal(),
        "expanded": torch.ones(1).expand(500, 3),
        "permuted": torch.randn(3, 4, 5).permute(2, 0, 1),
        "conv": torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last),
        "tied": base,
    }
    torch.save(live, tmp_path / "x.pt")
    found = rest(tmp_path / "x.pt")
    assert {n: d.digest for n, d in found.items()} == {n: digest.tensor_digest(t) for n, t in live.items()}


def test_safetensors_have_the_digest_of_the_live_ones_here_and_in_a_store(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    live = {str(t): made(t, 33, 129) for t in DTYPES if t not in (torch.complex64, torch.complex128)}
    safetensors.save_file(live, tmp_path / "model.safetensors")
    want = {n: digest.tensor_digest(t) for n, t in live.items()}
    for where in (tmp_path, stored(tmp_path, "at-rest")):
        assert {n: d.digest for n, d in rest(where).items()} == want


def test_what_is_stored_once_and_named_twice_is_read_once(tmp_path: Path) -> None:
    w = torch.randn(1000)
    torch.save({"a": w, "b": w}, tmp_path / "x.pt")
    folder = open_place(tmp_path / "x.pt")
    told: list[int] = []
    found = at_rest.digests(folder, look_into(folder, tmp_path / "x.pt").tensors, tell=told.append)
    assert sum(told) == w.nbytes
    assert len({d.digest for d in found}) == 1


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(DTYPES),
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.randoms(use_true_random=False),
    st.integers(1, 4),
)
def test_a_tensor_that_is_cut_anyhow_over_files_has_the_digest_of_the_whole(
    dtype: Any, shape: list[int], random: Any, files: int
) -> None:
    """Cut by a grid with random lines in every dimension; the blocks lie in random order in several files."""
    import tempfile
    from itertools import pairwise, product

    live = made(dtype, *shape)
    lines = [sorted({0, n, *(random.randint(0, n) for _ in range(2))}) for n in shape]
    spans = [list(pairwise(at)) for at in lines]
    cells = list(product(*spans))
    random.shuffle(cells)
    with tempfile.TemporaryDirectory() as at:
        data = [bytearray(b"-" * random.randint(0, 9)) for _ in range(files)]
        pieces = []
        for cell in cells:
            n = random.randrange(files)
            block = live[tuple(slice(a, b) for a, b in cell)].contiguous()
            start = len(data[n])
            data[n] += block.view(torch.uint8).numpy().tobytes()
            pieces.append((n, start, tuple(a for a, _ in cell), tuple(b - a for a, b in cell)))
        for n, held in enumerate(data):
            (Path(at) / f"{n}.bin").write_bytes(held)
        folder = open_place(at)
        blocks = [at_rest._Block(begin, size, f"{n}.bin", start, None) for n, start, begin, size in pieces]
        each = live.element_size()
        opened = {f"{n}.bin": folder.open(f"{n}.bin") for n in range(files)}
        width = lanes.word(str(dtype).removeprefix("torch."))
        assert width is not None
        found = at_rest._lanes(opened.__getitem__, tuple(shape), blocks, each, width, lambda n: None)
        for f in opened.values():
            f.close()
    assert list(found) == digest.lanes(live).tolist()


def test_bands_and_portions_of_big_tensors_join_without_a_seam(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_rest, "CHUNK", 1 << 16)
    live = {"w": torch.randn(300, 1111), "t": torch.randn(1111, 300).t(), "odd": made(torch.uint8, 300_001)}
    torch.save(live, tmp_path / "x.pt")
    found = rest(tmp_path / "x.pt")
    assert {n: d.digest for n, d in found.items()} == {n: digest.tensor_digest(t) for n, t in live.items()}


SCRIPT = """
import json, sys, torch
import torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor, Shard, Replicate
from lineage.capture import digest
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.Linear(7, 3))
fully_shard(model, mesh=init_device_mesh("cpu", (4,)))
opt = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.ones(2, 6)).sum().backward(); opt.step(); opt.zero_grad()
weights, moments = get_state_dict(model, opt)
mesh = init_device_mesh("cpu", (2, 2))
full = torch.arange(9 * 11, dtype=torch.float64).view(9, 11)
state = {"model": weights, "optimizer": moments,
         "grid": distribute_tensor(full, mesh, [Shard(1), Shard(0)]),
         "columns": distribute_tensor(full, mesh, [Replicate(), Shard(1)])}
dcp.save(state, checkpoint_id=sys.argv[1])
out = {"grid": digest.tensor_digest(full), "columns": digest.tensor_digest(full)}
for name, w in weights.items():
    out["model." + name] = digest.tensor_digest(w.full_tensor())
for name, held in moments["state"].items():
    for key in ("exp_avg", "exp_avg_sq"):
        out[f"optimizer.state.{name}.{key}"] = digest.tensor_digest(held[key].full_tensor())
if dist.get_rank() == 0:
    json.dump(out, open(sys.argv[2], "w"))
"""


def test_what_dcp_cut_over_four_ranks_has_the_digest_of_the_whole_tensor(tmp_path: Path) -> None:
    """Rows of FSDP2, and a grid and columns of a mesh of two dimensions."""
    import json

    in_ranks(SCRIPT, 4, tmp_path, str(tmp_path / "step-3"), str(tmp_path / "want.json"))
    want: dict[str, str] = json.loads((tmp_path / "want.json").read_text())
    found = rest(tmp_path / "step-3")
    assert len(found["grid"].tensor.pieces) == 4
    assert {n: found[n].digest for n in want} == want
    url = stored(tmp_path / "step-3", "dcp-at-rest")
    assert {n: d.digest for n, d in rest(url).items() if n in want} == want


def test_what_cannot_be_read_has_no_digest_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(100))
    folder = open_place(tmp_path)
    cases = {
        "beyond the end of a.bin": Tensor("t", "float32", (30,), "weights", (Piece("a.bin", 0, 120),)),
        "no digest is made of qint8": Tensor("t", "qint8", (3,), "weights", (Piece("a.bin", 0, 3),)),
        "is not there": Tensor("t", "int8", (3,), "weights", (Piece("gone.bin", 0, 3),)),
        "does not say where": Tensor("t", "int8", (3,), "weights", (Piece("a.bin"),)),
        "0 of its 3 elements": Tensor("t", "int8", (3,), "weights", ()),
        "too big to be put in order": Tensor(
            "t", "float32", (1 << 40, 5), "weights", (Piece("a.bin", 0, 4),), (0, 0)
        ),
    }
    for why, t in cases.items():
        (found,) = at_rest.digests(folder, [t])
        assert found.digest is None
        assert why in (found.why or "")


def test_strides_that_lead_out_of_the_file_are_no_tensor(tmp_path: Path) -> None:
    """A stride below zero would read the memory before the bytes."""
    import zipfile

    torch.save({"w": torch.arange(8.0)[::2]}, tmp_path / "x.pt")
    assert set(rest(tmp_path / "x.pt")) == {"w"}
    with zipfile.ZipFile(tmp_path / "x.pt") as old, zipfile.ZipFile(tmp_path / "y.pt", "w") as new:
        for i in old.infolist():
            data = old.read(i)
            if i.filename.endswith("data.pkl"):
                at = data.index(b"K\x02\x85")  # the stride of 2, as a tuple
                data = data[:at] + b"J\xfe\xff\xff\xff\x85" + data[at + 3 :]
            new.writestr(i.filename, data)
    assert rest(tmp_path / "y.pt") == {}


def test_digests_need_numpy_and_no_torch(tmp_path: Path) -> None:
    w = torch.randn(1000)
    torch.save({"w": w}, tmp_path / "x.pt")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from lineage.checkpoints import at_rest\n"
        "from lineage.checkpoints.listing import open_place\n"
        "from lineage.checkpoints.reading import look_into\n"
        f"f = open_place({str(tmp_path / 'x.pt')!r})\n"
        f"print(at_rest.digests(f, look_into(f, {str(tmp_path / 'x.pt')!r}).tensors)[0].digest)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest.tensor_digest(w)
