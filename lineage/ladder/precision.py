"""Which types the parts of a model really run in: one forward and backward pass, looked at operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .._rooms import schemas
from ..capture.names import clean
from ..judge import precision as rules
from ..probes.deep import tensors
from ..probes.held import look
from . import recipe
from .answers import rung
from .keeping import as_it_was

LIMITS = (
    "the types of one batch on one device: another branch of the model, or another device's kernels, may run in others",
    "what a fused kernel does within is not seen",
)
_SCALES = ("scale", "amax")


def precision_audit(
    model: Any,
    loss: Callable[[Any, Any], Any],
    batch: Any,
    *,
    optimizer: Any = None,
    scaler: Any = None,
    config: Any = None,
    built_by: str | None = None,
) -> schemas.Rung:
    """Ask what runs in 16 or 8 bits that should not, with the names of the modules.

    Args:
        model: the module; compiled parts run without the compiler here, since a fused operator shows no type.
        loss: called with (model, batch) as in training, autocast included; gives a 0-d tensor.
        batch: whatever `loss` takes.
        optimizer: makes one update, so that its state is there. Without one nothing is said of it.
        scaler: the loop's gradient scaler, where it has one.

    Model, optimizer and random states are as before when it returns. Raises what `loss` raises.
    """
    state: dict[str, str] = {}
    with as_it_was(model, optimizer, scaler), _eager(), _Types(model) as seen:
        found = loss(model, batch)
        seen.outside = "backward"
        _backward(found, scaler)
        if optimizer is not None:
            seen.paused = True
            _update(optimizer, scaler)
            state = _state_types(model, optimizer)
    named = [(clean(n), p) for n, p in model.named_parameters()]
    held = look(named, optimizer) if optimizer is not None else None
    in_place = {id(p) for g in getattr(optimizer, "param_groups", ()) for p in g["params"]}
    asked = rules.Recipe(
        ran=list(seen.ran),
        loss=_type(found),
        scaler=None if scaler is None else bool(getattr(scaler, "is_enabled", lambda: True)()),
        state=state,
        held={n: _type(p) for n, p in named if p.requires_grad and id(p) in in_place} if held else {},
        scales=_scales(model),
        saved={clean(k) for k in model.state_dict()},
        stepped=bool(state),
    )
    answers = rules.answers(asked)
    wrong = [a.text for a in answers if a.outcome == "fail"]
    return rung(
        "precision",
        answers,
        "; ".join(wrong) or "nothing that was seen runs in fewer bits than it should",
        main=["loss_in_float32", "norm_in_float32"],
        recipe=recipe.of(model, optimizer, config, built_by),
        device=str(found.device),
        limits=LIMITS,
    )


class _Types(TorchDispatchMode):  # type: ignore[misc]
    """Notes each operator with its module and types, once."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.ran: dict[rules.Ran, None] = {}
        self.outside = "loss"
        self.paused = False
        self._model = model
        self._stack: list[tuple[str, str]] = []
        self._handles: list[Any] = []

    def __enter__(self) -> _Types:
        for name, module in self._model.named_modules():
            entry = (clean(name) or "model", type(module).__name__)
            self._handles.append(module.register_forward_pre_hook(self._enters(entry)))
            self._handles.append(module.register_forward_hook(self._leaves, always_call=True))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for handle in self._handles:
            handle.remove()

    def _enters(self, entry: tuple[str, str]) -> Any:
        return lambda module, inputs: self._stack.append(entry)

    def _leaves(self, module: Any, inputs: Any, output: Any) -> None:
        self._stack.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not self.paused and (self._stack or self.outside == "loss"):
            module, cls = self._stack[-1] if self._stack else (self.outside, "")
            given, made = _types((args, kwargs or {})), _types(out)
            operator = func._schema.name.rpartition("::")[2]
            self.ran[rules.Ran(operator, module, cls, given, made)] = None
        return out


def _types(values: Any) -> tuple[str, ...]:
    return tuple(_type(t) for t in tensors(values) if t.is_floating_point())


def _type(t: Any) -> str:
    return str(t.dtype).removeprefix("torch.")


@contextmanager
def _eager() -> Iterator[None]:
    """Compiled functions run as they are written."""
    with torch.compiler.set_stance("force_eager"):
        yield


def _backward(loss: Any, scaler: Any) -> None:
    (scaler.scale(loss) if scaler is not None else loss).backward()


def _update(optimizer: Any, scaler: Any) -> None:
    """One update, also where a first loss scale overflows, as it does by design, and the scaler would skip it."""
    if scaler is not None and scaler.is_enabled():
        scaler.unscale_(optimizer)
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.nan_to_num_(0.0, 0.0, 0.0)
    optimizer.step()


def _state_types(model: Any, optimizer: Any) -> dict[str, str]:
    """`exp_avg of head.weight` -> its type, of the tensors with more than one element."""
    names = {id(p): clean(n) for n, p in model.named_parameters()}
    out = {}
    for i, (p, held) in enumerate(optimizer.state.items()):
        for key, value in (held if isinstance(held, dict) else {}).items():
            if isinstance(value, torch.Tensor) and value.numel() > 1:
                out[f"{key} of {names.get(id(p), f'parameter {i}')}"] = _type(value)
    return out


def _scales(model: Any) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for name, module in model.named_modules():
        own = [*dict(module.named_buffers(recurse=False)), *dict(module.named_parameters(recurse=False))]
        found = [n for n in own if any(s in n.lower() for s in _SCALES)]
        if found:
            out[clean(name) or "model"] = found
    return out
