"""Names under which people keep the components of a checkpoint, at the top of a saved dict or of a key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .pickle_values import Made, Named, TensorRef

_WORDS: dict[str, tuple[str, ...]] = {
    "weights": (
        "model",
        "state_dict",
        "model_state_dict",
        "module",
        "net",
        "network",
        "weights",
        "params",
        "models",
    ),
    "optimizer_state": (
        "optimizer",
        "optimizer_state_dict",
        "optim",
        "optimizer_states",
        "opt_state",
        "optimizers",
    ),
    "lr_scheduler": (
        *("scheduler", "lr_scheduler", "scheduler_state_dict", "lr_schedulers", "opt_param_scheduler"),
        *("lr_scheduler_state_dict", "schedulers", "sched"),
    ),
    "grad_scaler": ("scaler", "grad_scaler", "scaler_state_dict", "gradscaler", "amp"),
    "rng": (
        *(
            "rng",
            "rng_state",
            "rng_states",
            "random_rng_state",
            "torch_rng_state",
            "cpu_rng_state",
            "random_states",
        ),
        *("cuda_rng_state", "numpy_rng_state", "python_rng_state"),
    ),
    "loader_position": (
        *("loader", "dataloader", "data_loader", "train_dataloader", "sampler", "position", "data_state"),
        *("dataset_state", "train_loader", "dataloader_state"),
    ),
}
_OF = {word: component for component, words in _WORDS.items() for word in words}
STEP_KEYS = ("global_step", "global_steps", "step", "iteration", "iter", "num_updates", "iter_num", "steps")
"""Keys at the top of a saved dict that hold the count of completed updates."""


_RANKED = re.compile(r"(?:[._-]*(?:dp[._-]?)?rank)?[._-]*\d+$")
"""A rank, or another number, behind a name: `rng_3`, `dataloader_rank_3`."""
_STATE = re.compile(r"_state(?:s|_dict)?(?:_all)?$")


def component(key: object) -> str | None:
    """The component that a key names, a number and `state` behind it left out; None where it names none."""
    word = str(key).lower()
    for bare in (word, _RANKED.sub("", word), _STATE.sub("", _RANKED.sub("", word))):
        if found := _OF.get(bare):
            return found
    parts = set(re.split(r"[^a-z]+", word))
    random = parts & {"rng", "rngs"} or ("random" in parts and parts & {"state", "states", "seed"})
    return "rng" if random else None


_PRECISION = ("dtype", "precision", "mixed_precision", "amp_dtype", "torch_dtype", "fp16", "half")
_HALF = ("float16", "fp16", "half", "16", "16-mixed", "torch.float16")


def half(value: Any) -> str | None:
    """The setting in a saved dict that says the run trains in fp16, as `config.dtype`; None where none does."""
    for path, v in _settings(value, "", 3):
        key = path.rpartition(".")[2].lower()
        said = v.name if isinstance(v, Named) else v
        if key in _PRECISION and (
            (said is True and key in ("fp16", "half")) or (isinstance(said, str) and said.lower() in _HALF)
        ):
            return path
    return None


def _settings(value: Any, lead: str, depth: int) -> Iterator[tuple[str, Any]]:
    inner = value.state if isinstance(value, Made) else value
    for key, v in inner.items() if isinstance(inner, dict) and depth else ():
        if isinstance(key, str) and component(key) is None:
            yield lead + key, v
            yield from _settings(v, f"{lead}{key}.", depth - 1)


def whole(value: Any) -> int | None:
    """A count, where a value is one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def step_of(value: Any) -> tuple[int, str] | None:
    """The step in a saved dict: at its top, or in a dict `train_state`, `trainer` or `extra_state` of it."""
    if not isinstance(value, dict):
        return None
    for outer in ("", "train_state", "trainer", "extra_state", "state"):
        at: Any = value.get(outer) if outer else value
        for key in STEP_KEYS if isinstance(at, dict) else ():
            found = whole(at.get(key))
            if found is not None:
                return found, f"{outer}.{key}" if outer else key
    return None


def mostly_tensors(value: Any) -> bool:
    """Whether a dict is a state_dict of a model: more than half of it tensors."""
    return isinstance(value, dict) and sum(isinstance(v, TensorRef) for v in value.values()) * 2 > len(value)
