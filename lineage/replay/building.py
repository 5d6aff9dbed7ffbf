"""What the user's own `build` gives for a replay: model, loss, optimizer. It is their code, and it is run."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any


class BuildError(ValueError):
    """`build` cannot be used; the text says what was found, where, and what to do next."""


@dataclass(frozen=True)
class Given:
    """What `build` is told, where it takes an argument."""

    step: int
    rank: int
    world_size: int
    """of this replay"""
    device: str
    """`cpu`, `cuda:0`, ...: where the model should be"""
    checkpoint: Path | None
    """what `load` will be called with, None where the bundle itself has the state"""
    config: Mapping[str, Any]
    """the requested config as it was recorded, by dotted key"""


@dataclass
class Built:
    """What a replay needs. `build` returns one, or a dict or any object with these names.

    Args:
        model: the module, wrapped and compiled as in training.
        loss: called with (model, micro-batch); gives the loss, a 0-d tensor, as `st.loss` was given it.
        optimizer: with the same parameter groups as in training. Without one no update is made.
        scheduler, scaler: as in training. Learning rates come from the bundle.
        load: called with the checkpoint's path; restores model and optimizer.
        backward: called with (loss, number of micro-batches); by default the loss, divided by that number and
            multiplied by the scaler, goes backward.
        update: makes the whole update by itself, in place of `loss`, `backward` and the optimizer's step: called with
            (micro-batches, before), where `before(i)` is to be called before micro-batch i; gives the losses.
        clip: clips gradients and gives their norm; by default `clip_grad_norm_` with the recorded threshold.
        token_losses: called with (model, micro-batch); gives the losses of the tokens that count, for the rung that
            asks whether each token counts the same.
        reference: a model of trusted code with the same weights, for the rung that holds the two against each other;
            `names`, `weights`, `call` and `call_reference` as `lineage.ladder.compare_models` takes them.
        batches: for rungs of the ladder, which have no bundle: micro-batches, or a function that gives them.
        config: what was asked for, as `lineage.attach` takes it; it is part of the recipe that a rung was made of.
    """

    model: Any
    loss: Callable[[Any, Any], Any] | None = None
    optimizer: Any = None
    scheduler: Any = None
    scaler: Any = None
    load: Callable[[Path], Any] | None = None
    backward: Callable[[Any, int], Any] | None = None
    update: Callable[[list[Any], Callable[[int], None]], Any] | None = None
    clip: Callable[[], Any] | None = None
    token_losses: Callable[[Any, Any], Any] | None = None
    reference: Any = None
    names: Mapping[str, str] | None = None
    weights: Mapping[str, str] | None = None
    call: Callable[[Any, Any], Any] | None = None
    call_reference: Callable[[Any, Any], Any] | None = None
    batches: Any = None
    config: Any = None
    notes: list[str] = field(default_factory=list)

    @property
    def device(self) -> Any:
        """Where the model's parameters are; the CPU for a model without any."""
        import torch

        first = next(iter(self.model.parameters()), None)
        return first.device if first is not None else torch.device("cpu")


def find(spec: str) -> Callable[..., Any]:
    """The function named as `your_module:build` or `path/to/file.py:build`. Raises `BuildError`.

    The working directory is searched first, as by `python -m`.
    """
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise BuildError(f"--with takes a module and a function, as your_module:build; not {spec!r}")
    if place.endswith(".py"):
        module = _from_file(Path(place))
    else:
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as e:
            if e.name is not None and (place == e.name or place.startswith(e.name + ".")):
                raise BuildError(f"there is no module {place!r} in {Path.cwd()} or on PYTHONPATH") from None
            raise
    found = getattr(module, name, None)
    if not callable(found):
        near = difflib.get_close_matches(name, dir(module), 1)
        raise BuildError(f"{place} has no function {name!r}" + (f"; did you mean {near[0]}?" if near else ""))
    return found  # type: ignore[no-any-return]


def _from_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise BuildError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.resolve().parent))  # as for a script: its siblings can be imported
    spec.loader.exec_module(module)
    return module


def build(function: Callable[..., Any], given: Given) -> Built:
    """Call the user's `build`, with what is known where it takes an argument. Raises what that raises, too."""
    try:
        takes = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    except ValueError:
        takes = []
    return made(function(given) if takes else function())


def made(returned: Any) -> Built:
    """What `build` returned, checked. Raises `BuildError`."""
    if isinstance(returned, Built):
        found = returned
    else:
        known = [f.name for f in fields(Built)]
        if isinstance(returned, Mapping):
            for name in returned:
                if name not in known:
                    near = difflib.get_close_matches(str(name), known, 1)
                    meant = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known[:-1])}"
                    raise BuildError(f"build returned {name!r}, which nothing here knows{meant}")
            parts = dict(returned)
        else:
            parts = {n: getattr(returned, n) for n in known if getattr(returned, n, None) is not None}
        if "model" not in parts:
            raise BuildError(
                f"build returned a {type(returned).__name__} without a model; return {{'model': ..., 'loss': ..., "
                "'optimizer': ..., 'load': ...}, see docs/replay.md"
            )
        found = Built(**parts)
    if not hasattr(found.model, "named_parameters"):
        raise BuildError(f"build's model is a {type(found.model).__name__}, and no torch module")
    if found.loss is None and found.update is None:
        raise BuildError(
            "build gave neither loss nor update: return {'loss': lambda model, batch: ...} with the model"
        )
    return found
