"""The real update of an optimizer step, computed from what lies there after it: no copy of the weights is made.

Adam and AdamW (torch's own): the step moved p by -lr * m_hat / (sqrt(v_hat) + eps), and AdamW's decay by
-lr * wd * p_before. From p, m and v after the step both follow exactly, since p_before = (p + u) / (1 - lr * wd):

    p - p_before = -(u + lr * wd * p) / (1 - lr * wd),   u = k * m / (sqrt(v) + e),
    k = lr * sqrt(1 - beta2^t) / (1 - beta1^t),          e = eps * sqrt(1 - beta2^t)

With amsgrad the largest second moment so far stands for v. SGD without Nesterov: u = lr * buffer, or lr * gradient
without momentum. "Exactly" is up to rounding: it is the update that the formula gives, before it was rounded into
the parameter's type (a bfloat16 weight may not move at all).

Weight, moments and update are taken in the same read of p, m and v. For every other optimizer there is a proxy,
lr times the norm of the gradient, and `Way` says which of the two a number is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from . import host
from .readable import NotRead

EXACT_ADAM, EXACT_SGD, PROXY = "exact: Adam", "exact: SGD", "proxy: lr x gradient norm"


class Factors(NamedTuple):
    """How the change of a weight follows from what is held: (decay * p + k * a / (sqrt(b) + e)) / (1 - decay).

    `decay` is lr * wd where it is decoupled, else 0. Without b the term is k * a.
    """

    k: float
    e: float
    decay: float


def way_of(optimizer: Any) -> str:
    """Whether an optimizer's update can be computed exactly, by its class: a subclass may step otherwise."""
    kind = type(optimizer)
    if kind in (torch.optim.Adam, torch.optim.AdamW):
        return EXACT_ADAM
    return EXACT_SGD if kind is torch.optim.SGD else PROXY


def decoupled(optimizer: Any, group: Mapping[str, Any]) -> bool:
    """Whether an Adam decays weights apart from the gradient. Torch before 2.7 tells it by the class alone."""
    return type(optimizer) is torch.optim.AdamW or bool(group.get("decoupled_weight_decay", False))


def adam(group: Mapping[str, Any], step: float, *, decoupled: bool) -> Factors:
    """The factors of Adam and AdamW. Raises `NotRead` before the first update."""
    if step < 1:
        raise NotRead("no update has been made yet")
    lr, eps, decay = number(group["lr"]), number(group["eps"]), number(group["weight_decay"])
    beta1, beta2 = (number(b) for b in group["betas"])
    root = math.sqrt(1.0 - beta2**step)
    return Factors(lr * root / (1.0 - beta1**step), eps * root, lr * decay if decoupled else 0.0)


def sgd(group: Mapping[str, Any], *, momentum: bool) -> Factors:
    """The factors of SGD; the buffer holds the decay already. Raises `NotRead` for Nesterov momentum."""
    lr, decay = number(group["lr"]), number(group["weight_decay"])
    if group.get("nesterov"):
        raise NotRead("Nesterov momentum: the update is not in the buffer")
    if momentum:
        return Factors(lr, 0.0, 0.0)
    return Factors(-lr if group.get("maximize") else lr, 0.0, lr * decay)


def number(value: Any) -> float:
    """A hyperparameter as a number. Raises `NotRead` for a tensor on a device, which one would have to wait for."""
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu":
            raise NotRead("a hyperparameter lies on the device")
        return float(value.tolist())
    return float(value)


def on_host(p: Any, a: Any, b: Any, factors: Factors | None, root: Any = None) -> list[host.Row]:
    """Rows of p, a, b (where given) and, with factors, of the update: one pass over flat tensors on the CPU.

    `root`: what stands under the root in place of b (amsgrad).
    """
    held = [t for t in (p, a, b) if t is not None]
    widen, tallies, update = [host.Widen(t) for t in held], [host.Tally() for _ in held], host.Tally()
    scratch = torch.empty(min(host.PIECE, p.numel()))
    other = host.Widen(root) if root is not None else None

    def part(t: Any, i: int) -> Any:
        return t[i * host.PIECE : (i + 1) * host.PIECE]

    def change(i: int, wide: list[Any]) -> Any:
        under = wide[2] if b is not None else None
        if other is not None:
            under = other(part(root, i))
        assert factors is not None
        return _piece(wide[0], wide[1], under, factors, scratch[: len(wide[0])])

    def again(i: int) -> Any:
        return change(i, [w(part(t, i)) for w, t in zip(widen, held, strict=True)])

    for i in range(-(-p.numel() // host.PIECE)):
        wide = [w(part(t, i)) for w, t in zip(widen, held, strict=True)]
        for tally, x in zip(tallies, wide, strict=True):
            tally.add(x)
        if factors is not None:
            update.add(change(i, wide))
    rows = [tally.row(p.numel(), functools.partial(part, t)) for tally, t in zip(tallies, held, strict=True)]
    return rows if factors is None else [*rows, update.row(p.numel(), again, factor=_outer(factors))]


def _outer(f: Factors) -> float:
    return (f.decay or f.k) / (1.0 - f.decay)


def _piece(p: Any, a: Any, under: Any, f: Factors, out: Any) -> Any:
    """The change of a piece without the outer factor, in float32."""
    if out.dtype != p.dtype:  # float64 parameters
        out = torch.empty_like(p)
    if under is not None:
        torch.sqrt(under, out=out).add_(f.e)
        if f.decay:
            return torch.addcdiv(p, a, out, value=f.k / f.decay, out=out)
        return torch.div(a, out, out=out)
    return torch.add(p, a, alpha=f.k / f.decay, out=out) if f.decay else a
