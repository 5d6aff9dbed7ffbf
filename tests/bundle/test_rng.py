"""Random states are taken at each step without drawing, and put back bit for bit."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

from lineage.bundle.rng import Taking, from_tensors, restore, to_tensors


def drawn() -> tuple[float, float, float, float, float, list[float]]:
    """One number from each generator, of kinds that keep one for the next call too."""
    return (
        random.random(),
        random.gauss(0, 1),
        float(numpy.random.rand()),
        float(numpy.random.randn()),
        float(numpy.random.standard_normal()),
        torch.randn(3).tolist(),
    )


def test_what_is_drawn_after_a_state_is_drawn_again_after_it_is_put_back() -> None:
    """Python, NumPy and torch, with the normal numbers that two of them keep in hand."""
    random.gauss(0, 1)
    numpy.random.randn()
    taken = Taking().take()
    tensors, plain = to_tensors(taken, "5.0.")
    first = drawn()
    assert drawn() != first
    assert restore(from_tensors(tensors, plain, "5.0.")) == []
    assert drawn() == first


def test_taking_draws_nothing() -> None:
    """A loop with and without it sees the same numbers."""
    torch.manual_seed(3)
    random.seed(3)
    numpy.random.seed(3)
    plain = [drawn() for _ in range(4)]
    torch.manual_seed(3)
    random.seed(3)
    numpy.random.seed(3)
    taking = Taking()
    watched = []
    for _ in range(4):
        taking.take()
        watched.append(drawn())
        taking.take()
    assert watched == plain


DRAWS: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "uniform": lambda: numpy.random.rand(3),
    "one normal": numpy.random.randn,
    "two normal": lambda: numpy.random.randn(2),
    "seed": lambda: numpy.random.seed(1),
    "permutation": lambda: numpy.random.permutation(700),
}


def test_the_state_of_numpy_is_the_true_one_whatever_was_drawn_between() -> None:
    """It is not read again where its generator did not move: also not where a kept normal number was used up."""
    dice = random.Random(4)
    taking = Taking()
    for _ in range(500):
        DRAWS[dice.choice(list(DRAWS))]()
        held, true = taking.take().numpy, numpy.random.get_state()
        assert held is not None
        assert (held[1] == true[1]).all()
        assert held[2:4] == true[2:4]
        assert not held[3] or held[4] == true[4]


def test_a_global_generator_of_another_kind_is_left_out_and_said() -> None:
    """`numpy.random.set_bit_generator` may put one there."""
    before = numpy.random.get_bit_generator()
    try:
        numpy.random.set_bit_generator(numpy.random.PCG64(1))
        taken = Taking().take()
    finally:
        numpy.random.set_bit_generator(before)
    assert taken.numpy is None
    assert "numpy" in taken.missing
    assert taken.torch is not None
    assert any("numpy: not recorded" in p for p in restore(taken))
