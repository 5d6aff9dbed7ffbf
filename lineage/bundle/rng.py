"""Random-number states of a process: taken cheaply at each step, kept as tensors, put back for a replay.

Taking one costs about 15 microseconds on a CPU, of which Python's own generator is most; nothing is drawn, and
nothing waits for a device: the state of a CUDA generator is a seed and an offset that the host holds.
"""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_MT = 624
"""Words of the Mersenne twister, which Python and NumPy's global generator both are."""


@dataclass
class Rng:
    """The states of all generators of this process at one moment."""

    python: tuple[Any, ...] | None = None
    """as `random.getstate` gives it"""
    numpy: tuple[Any, ...] | None = None
    """as `numpy.random.get_state` gives it"""
    torch: Any = None
    """uint8, the CPU generator"""
    cuda: dict[int, Any] = field(default_factory=dict)
    """device -> uint8"""
    missing: dict[str, str] = field(default_factory=dict)
    """generator -> why its state is not here"""


class Taking:
    """Takes states. NumPy's is read whole only where its generator has moved since the last time."""

    def __init__(self) -> None:
        self._numpy: tuple[Any, ...] | None = None
        self._raw: bytes | None = None

    def take(self) -> Rng:
        """The states now. A generator that cannot be read is left out, with the reason."""
        found = Rng(python=random.getstate())
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if hasattr(numpy, "random"):
            self._try(found, "numpy", lambda: setattr(found, "numpy", self._of_numpy(numpy)))
        if torch is not None and hasattr(torch, "default_generator"):
            self._try(found, "torch", lambda: setattr(found, "torch", torch.default_generator.get_state()))
            self._try(found, "cuda", lambda: found.cuda.update(_of_cuda(torch)))
        return found

    @staticmethod
    def _try(found: Rng, name: str, read: Any) -> None:
        try:
            read()
        except Exception as e:
            found.missing[name] = type(e).__name__

    def _of_numpy(self, numpy: Any) -> tuple[Any, ...] | None:
        """NumPy takes 40 microseconds to give its state, and training seldom draws from it.

        The state is reused where the generator's memory holds the same bytes and no normal number is kept for the
        next call: without such a one nothing can be drawn that leaves those bytes alone.
        """
        raw = _raw(numpy)
        if raw is not None and raw == self._raw and self._numpy is not None and not self._numpy[3]:
            return self._numpy
        held = numpy.random.get_state(legacy=False)
        if held["bit_generator"] != "MT19937":
            raise TypeError(f"NumPy's global generator is a {held['bit_generator']}")
        state = held["state"]
        self._numpy = ("MT19937", state["key"], state["pos"], held["has_gauss"], held["gauss"])
        self._raw = raw
        return self._numpy


def _raw(numpy: Any) -> bytes | None:
    """The bytes of NumPy's global generator, None where they cannot be looked at."""
    try:
        generator = numpy.random.mtrand._rand._bit_generator
        if type(generator).__name__ != "MT19937":
            return None
        return ctypes.string_at(generator.ctypes.state_address, 4 * (_MT + 1))  # 624 words and the place
    except Exception:
        return None


def _of_cuda(torch: Any) -> dict[int, Any]:
    cuda = torch.cuda
    if not cuda.is_initialized() or cuda.is_current_stream_capturing():
        return {}
    return {i: g.get_state() for i, g in enumerate(cuda.default_generators)}


def to_tensors(found: Rng, prefix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(name -> tensor, plain facts): what `from_tensors` makes the states from again."""
    import torch

    tensors: dict[str, Any] = {}
    plain: dict[str, Any] = {"missing": dict(found.missing)}
    if found.python is not None:
        version, words, gauss = found.python
        tensors[f"{prefix}python"] = torch.tensor(words, dtype=torch.int64)
        plain["python"] = {"version": version, "gauss": gauss}
    if found.numpy is not None:
        _, words, place, kept, gauss = found.numpy
        tensors[f"{prefix}numpy"] = torch.tensor(words.tolist(), dtype=torch.int64)
        plain["numpy"] = {"place": int(place), "kept": int(kept), "gauss": float(gauss)}
    if found.torch is not None:
        tensors[f"{prefix}torch"] = found.torch
    tensors |= {f"{prefix}cuda.{i}": state for i, state in found.cuda.items()}
    return tensors, plain


def from_tensors(tensors: Mapping[str, Any], plain: Mapping[str, Any], prefix: str, before: str = "") -> Rng:
    """The states that `to_tensors` took apart. `before`: what stands before its names in this file."""
    prefix = before + prefix
    found = Rng(missing=dict(plain.get("missing", {})))
    python, numpy = tensors.get(f"{prefix}python"), tensors.get(f"{prefix}numpy")
    if python is not None:
        facts = plain["python"]
        found.python = (facts["version"], tuple(python.tolist()), facts["gauss"])
    if numpy is not None:
        facts = plain["numpy"]
        found.numpy = ("MT19937", numpy.tolist(), facts["place"], facts["kept"], facts["gauss"])
    found.torch = tensors.get(f"{prefix}torch")
    at = f"{prefix}cuda."
    found.cuda = {int(n.removeprefix(at)): t for n, t in tensors.items() if n.startswith(at)}
    return found


def restore(found: Rng, *, device: int | None = None) -> list[str]:
    """Put the states back into this process; returns what could not be, in words.

    `device`: the CUDA device that takes the one recorded state, where a rank's device has another number here.
    """
    problems = [f"{name}: not recorded ({why})" for name, why in found.missing.items()]
    if found.python is not None:
        random.setstate(found.python)
    if found.numpy is not None:
        try:
            import numpy

            name, words, *rest = found.numpy
            numpy.random.set_state((name, numpy.asarray(words, dtype=numpy.uint32), *rest))
        except ImportError:
            problems.append("numpy: is not installed here")
    import torch

    if found.torch is not None:
        torch.set_rng_state(found.torch.clone())
    for i, state in found.cuda.items():
        to = device if device is not None and len(found.cuda) == 1 else i
        if not torch.cuda.is_available() or to >= torch.cuda.device_count():
            problems.append(f"cuda:{i}: there is no such device here")
        else:
            torch.cuda.set_rng_state(state.clone(), to)
    return problems
