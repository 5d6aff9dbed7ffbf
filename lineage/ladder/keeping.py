"""A model and its optimizer put back as they were, bit for bit, after a rung has trained them."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def as_it_was(model: Any, optimizer: Any = None, *others: Any) -> Iterator[None]:
    """Put weights, buffers, gradients, modes, the optimizer's state and all random-number states back at the end.

    `others`: what has a `state_dict` too: a scheduler, a scaler; None is passed over.
    """
    import torch

    tensors = [(t, t.detach().clone()) for t in (*model.parameters(), *model.buffers())]
    gradients = [(p, p.grad) for p in model.parameters()]
    modes = [(m, m.training) for m in model.modules()]
    objects = [o for o in (optimizer, *others) if hasattr(o, "state_dict")]
    states = [(o, copy.deepcopy(o.state_dict())) for o in objects]
    for p, _ in gradients:
        p.grad = None
    random_ = random.getstate(), torch.get_rng_state(), _numpy_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    try:
        yield
    finally:
        with torch.no_grad():
            for t, kept in tensors:
                t.copy_(kept)
        for p, grad in gradients:
            p.grad = grad
        for m, training in modes:
            m.training = training
        for o, state in states:
            o.load_state_dict(state)
        random.setstate(random_[0])
        torch.set_rng_state(random_[1])
        if random_[2] is not None:
            import numpy as np

            np.random.set_state(random_[2])
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)


def _numpy_state() -> Any:
    import sys

    numpy = sys.modules.get("numpy")
    return numpy.random.get_state() if numpy is not None else None
