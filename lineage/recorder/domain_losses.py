"""Losses by domain, as the loop gives them: means over the step's micro-batches, one signal per domain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..capture.later import Later
from ..capture.secrets import mask

MOST = 64
"""Domains of a run that have a signal; of more, the first ones."""
SIGNAL = "loss of {}"


class DomainLosses:
    """Collects what `st.domain_loss` is given in one step. A domain that is not given has no value, which is not 0."""

    def __init__(self) -> None:
        self._given: dict[str, list[Any]] = {}

    def add(self, losses: Mapping[Any, Any]) -> None:
        """Take one loss per domain: 0-d tensors or numbers. Raises `ValueError` for another shape."""
        for name, loss in losses.items():
            if hasattr(loss, "detach") and loss.numel() != 1:
                raise ValueError(
                    f"the loss of {name} is no scalar: its shape is {tuple(loss.shape)}; give its mean"
                )
            value = loss.detach().clone() if hasattr(loss, "detach") else float(loss)
            self._given.setdefault(str(name), []).append(value)

    def take(self, names: Names) -> tuple[dict[str, Part], dict[str, float]]:
        """The step's means: on their way from the device, one copy for each device, and those of numbers alone."""
        devices: dict[Any, list[tuple[str, Any]]] = {}
        plain: dict[str, float] = {}
        for name, values in self._given.items():
            signal = names.signal(name)
            if signal is None:
                continue
            tensors = [v for v in values if hasattr(v, "detach")]
            if not tensors:
                plain[signal] = sum(values) / len(values)
                continue
            device = tensors[0].device
            total = sum(v.reshape(()).float().to(device, non_blocking=True) for v in tensors)
            total = total + sum(v for v in values if not hasattr(v, "detach"))
            devices.setdefault(device, []).append((signal, total / len(values)))
        out: dict[str, Part] = {}
        for found in devices.values():
            import torch

            later = Later(torch.stack([value for _, value in found]))
            out |= {signal: Part(later, i) for i, (signal, _) in enumerate(found)}
        return out, plain


class Part:
    """One number of several that came in one copy; stands where a `Later` does."""

    def __init__(self, later: Later, at: int) -> None:
        self._later, self._at = later, at

    def ready(self) -> bool:
        """Whether it has arrived."""
        return self._later.ready()

    def values(self) -> list[float]:
        """The number, as a list."""
        return [self._later.values()[self._at]]


class Names:
    """The signals of a run's domains: masked, shortened, and bounded in number."""

    def __init__(self) -> None:
        self._signals: dict[str, str] = {}
        self.left_out = False
        """whether there were more domains than have a signal"""

    def signal(self, domain: str) -> str | None:
        """The signal of a domain; None where there are too many."""
        known = self._signals.get(domain)
        if known is None and len(self._signals) < MOST:
            known = self._signals[domain] = SIGNAL.format(mask(domain[:120])[0])
        self.left_out = self.left_out or known is None
        return known
