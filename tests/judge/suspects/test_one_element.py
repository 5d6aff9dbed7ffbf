"""One changed element is told from two digests alone, and several are not taken for one."""

from __future__ import annotations

import builtins
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from lineage.capture import digest
from lineage.judge.suspects import Copies, one_element


def copies(a: Any, b: Any) -> Copies:
    """Two ranks' copies of a tensor, as the series `states` has them."""
    one, other = (tuple(digest.lanes(t).tolist()) for t in (a, b))
    return Copies("w", "weight", 1, 0, 40, one, other, digest.header(a), a.numel())


@pytest.fixture(params=["numpy", "plain"])
def arithmetic(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With NumPy, and without."""
    if request.param == "plain":
        real = builtins.__import__

        def without(name: str, *more: Any, **named: Any) -> Any:
            if name == "numpy":
                raise ImportError(name)
            return real(name, *more, **named)

        monkeypatch.setattr(builtins, "__import__", without)


@pytest.mark.usefixtures("arithmetic")
@pytest.mark.parametrize(
    ("dtype", "view", "bits"), [("float32", "int32", 32), ("bfloat16", "int16", 16), ("float64", "int64", 64)]
)
def test_a_flipped_bit_is_named_with_its_element_and_its_bit(dtype: str, view: str, bits: int) -> None:
    g = torch.Generator().manual_seed(1)
    for element, bit in ((0, 0), (4095, 3), (4096, bits - 2), (7775, bits // 2)):
        a = torch.randn(72, 108, generator=g).to(getattr(torch, dtype))
        b = a.clone()
        b.view(getattr(torch, view)).view(-1)[element] ^= 1 << bit
        found = one_element(copies(b, a))
        assert found is not None
        assert (found.element, found.bit, found.rank, found.other) == (element, bit, 1, 0)
        assert f"bit {bit}" in found.text()


def test_an_element_that_moved_on_is_named_without_a_bit() -> None:
    a = torch.randn(50, 20)
    b = a.clone()
    b[3, 4] += 0.01
    found = one_element(copies(b, a))
    assert found is not None
    assert found.element == 64
    change = int(b.view(torch.int32)[3, 4]) - int(a.view(torch.int32)[3, 4])
    assert found.difference == change


@pytest.mark.parametrize("count", [2, 3, 1000])
def test_several_changed_elements_are_not_taken_for_one(count: int) -> None:
    g = torch.Generator().manual_seed(count)
    for _ in range(20):
        a = torch.randn(50, 20, generator=g)
        b = a.clone()
        places = torch.randperm(1000, generator=g)[:count]
        b.view(-1)[places] += 0.5
        assert one_element(copies(b, a)) is None


def test_equal_copies_and_types_that_are_not_known_give_nothing() -> None:
    a = torch.randn(10)
    assert one_element(copies(a, a)) is None
    odd = copies(a, a + 1)
    assert one_element(replace(odd, whole=None)) is None
