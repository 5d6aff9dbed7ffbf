"""Tensors that are awkward to read, and what is true of them."""

from __future__ import annotations

import math
from typing import Any

import torch

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def nan_with_sign(dtype: Any) -> Any:
    """One NaN whose sign bit is set, as arithmetic on x86 makes it: inf - inf, 0 / 0."""
    found = torch.tensor([math.nan]).view(torch.int32).bitwise_or_(-(1 << 31)).view(torch.float32).to(dtype)
    assert found.signbit().all()
    return found


def awkward(dtype: Any, *, seed: int = 1) -> dict[str, Any]:
    """Name -> tensor: tails of every kind, unaligned and strided views, broken and extreme elements."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, generator=g).to(dtype)

    broken = normal(70_001)
    broken[17], broken[40_000], broken[69_999], broken[3] = math.nan, math.inf, -math.inf, -math.inf
    found = {
        "one element": normal(1),
        "odd tail": normal(4097),
        "scalar": normal(1).reshape(()),
        "several runs": normal(3, 50_001),
        "unaligned view": normal(5000)[1:],
        "transposed": normal(37, 129).t(),
        "strided with gaps": normal(64, 65)[:, ::2],
        "zeros": torch.zeros(5000, dtype=dtype),
        "minus zero": -torch.zeros(3, dtype=dtype),
        "broken": broken,
        "only NaN": torch.full((2049,), math.nan, dtype=dtype),
        "NaN with the sign bit": torch.cat([normal(2100), nan_with_sign(dtype)]),
        "NaN of both signs": torch.cat([nan_with_sign(dtype), normal(300), -nan_with_sign(dtype)]),
        "one NaN in a tail": torch.cat([normal(2048), torch.tensor([math.nan], dtype=dtype)]),
    }
    if dtype != torch.float16:
        found["squares overflow"] = normal(3000) * torch.tensor(1e25, dtype=dtype)
        found["squares vanish"] = normal(3000) * torch.tensor(1e-25, dtype=dtype)
        found["both"] = torch.cat([found["squares overflow"], found["squares vanish"], normal(40_000)])
    return found


def truth(tensor: Any) -> tuple[float, float, float, int, int, int, int]:
    """What a row says, in Python's floats: sum of squares, largest magnitude and lowest (at most 0) of the finite
    elements, NaN, +Inf, -Inf, elements."""
    values = tensor.detach().double().reshape(-1).tolist()
    finite = [v for v in values if math.isfinite(v)]
    return (
        math.fsum(v * v for v in finite),
        max((abs(v) for v in finite), default=0.0),
        min([0.0, *finite]),
        sum(math.isnan(v) for v in values),
        values.count(math.inf),
        values.count(-math.inf),
        len(values),
    )
