"""What an imported torch says of itself: build, devices and numerics switches. Never imports torch."""

from __future__ import annotations

import re
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from .._rooms import schemas

_DRIVER = Path("/proc/driver/nvidia/version")
_GPUS = Path("/proc/driver/nvidia/gpus")

# name -> how it is read. Each is read for itself: a switch that this build lacks is left out.
_SWITCHES: Mapping[str, Callable[[Any], Any]] = {
    "deterministic_algorithms": lambda t: t.are_deterministic_algorithms_enabled(),
    "deterministic_warn_only": lambda t: t.is_deterministic_algorithms_warn_only_enabled(),
    "fill_uninitialized_memory": lambda t: t.utils.deterministic.fill_uninitialized_memory,
    "float32_matmul_precision": lambda t: t.get_float32_matmul_precision(),
    "default_dtype": lambda t: str(t.get_default_dtype()),
    "num_threads": lambda t: t.get_num_threads(),
    "detect_anomaly": lambda t: t.is_anomaly_enabled(),
    "cudnn.enabled": lambda t: t.backends.cudnn.enabled,
    "cudnn.benchmark": lambda t: t.backends.cudnn.benchmark,
    "cudnn.deterministic": lambda t: t.backends.cudnn.deterministic,
    "cudnn.allow_tf32": lambda t: t.backends.cudnn.allow_tf32,
    "cudnn.conv.fp32_precision": lambda t: t.backends.cudnn.conv.fp32_precision,
    "cuda.matmul.allow_tf32": lambda t: t.backends.cuda.matmul.allow_tf32,
    "cuda.matmul.fp32_precision": lambda t: t.backends.cuda.matmul.fp32_precision,
    "cuda.matmul.allow_fp16_reduced_precision_reduction": lambda t: (
        t.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    ),
    "cuda.matmul.allow_bf16_reduced_precision_reduction": lambda t: (
        t.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    ),
    "cuda.matmul.allow_fp16_accumulation": lambda t: t.backends.cuda.matmul.allow_fp16_accumulation,
    "cuda.preferred_blas_library": lambda t: str(t.backends.cuda.preferred_blas_library()),
    "cuda.preferred_linalg_library": lambda t: str(t.backends.cuda.preferred_linalg_library()),
    "sdp.flash": lambda t: t.backends.cuda.flash_sdp_enabled(),
    "sdp.mem_efficient": lambda t: t.backends.cuda.mem_efficient_sdp_enabled(),
    "sdp.math": lambda t: t.backends.cuda.math_sdp_enabled(),
    "sdp.cudnn": lambda t: t.backends.cuda.cudnn_sdp_enabled(),
    "sdp.fp16_bf16_reduction_math": lambda t: t.backends.cuda.fp16_bf16_reduction_math_sdp_allowed(),
    "mkldnn.enabled": lambda t: t.backends.mkldnn.enabled,
    "mkldnn.deterministic": lambda t: t.backends.mkldnn.deterministic,
}
# Settings of the compiler, read only where it is imported already, and recorded only where they are not the
# default: torch imports its compiler when something first needs it, which is no change of the environment.
# (Defaults that a variable sets stand among the variables.)
_COMPILER: Mapping[str, tuple[str, ...]] = {
    "torch._dynamo.config": ("disable", "suppress_errors", "automatic_dynamic_shapes", "optimize_ddp"),
    "torch._inductor.config": (
        *(
            "max_autotune",
            "fallback_random",
            "emulate_precision_casts",
            "epilogue_fusion",
            "coordinate_descent_tuning",
        ),
        *("force_same_precision", "deterministic"),
    ),
}


IMPORT = 60.0
"""Seconds for which an import of torch that is under way is waited for."""


def loaded() -> Any | None:
    """Return torch if this process has imported it, else None. An import under way is waited for.

    It is read on a thread of its own, and a script may import torch right after it attached.
    """
    until = time.monotonic() + IMPORT
    while _under_way(torch := sys.modules.get("torch")) and time.monotonic() < until:
        time.sleep(0.01)
    return torch if hasattr(torch, "__version__") else None


def _under_way(module: Any) -> bool:
    """Say whether another thread is importing a module at this moment."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def switches() -> dict[str, schemas.Scalar]:
    """Return the numerics switches of the imported torch and its compiler; empty without torch."""
    torch = loaded()
    if torch is None:
        return {}
    found: dict[str, schemas.Scalar] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # reading a switch that is to be replaced is no fault of the user's
        for name, read in _SWITCHES.items():
            value = _try(partial(read, torch))
            if value is not None:
                found[f"torch.{name}"] = schemas.Scalar.of(value)
        for module, names in _COMPILER.items():
            config = sys.modules.get(module)
            for name in names if config is not None else ():
                if _try(partial(_is_default, config, name)):
                    continue
                value = _try(partial(getattr, config, name))
                if isinstance(value, bool | int | float | str):
                    found[f"{module.removesuffix('.config')}.{name}"] = schemas.Scalar.of(value)
    return found


def _is_default(config: Any, name: str) -> bool:
    return bool(getattr(config, name) == config._config[name].default)


def builds() -> dict[str, str]:
    """Return the versions that the imported torch was built with and runs on; empty without torch."""
    torch = loaded()
    if torch is None:
        return {}
    readers: dict[str, Callable[[], Any]] = {
        "torch": lambda: torch.__version__,
        "torch_git": lambda: torch.version.git_version,
        "torch_debug": lambda: torch.version.debug or None,
        "torch_build": lambda: re.sub(r"\s+", " ", torch.__config__.show()).strip(),
        "cuda": lambda: torch.version.cuda,
        "hip": lambda: torch.version.hip,
        "cudnn": torch.backends.cudnn.version,
        "nccl": lambda: ".".join(map(str, torch.cuda.nccl.version())),
        "cpu_capability": getattr(torch.backends.cpu, "get_cpu_capability", lambda: None),
    }
    made = {name: _try(read) for name, read in readers.items()}
    return {name: str(value) for name, value in made.items() if value}


def driver() -> str | None:
    """Return the version of the NVIDIA kernel driver, or None where there is none."""
    text = _try(lambda: _DRIVER.read_text(encoding="utf-8", errors="replace"))
    match = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)", text or "")
    return match.group(1) if match else None


def devices() -> list[schemas.Device]:
    """Return the accelerators that this process sees.

    Where torch has not begun to use CUDA, asking it would make a context on the first device, from every
    rank. The kernel driver's list is read instead: the node's devices, without memory and capability.
    """
    torch = loaded()
    if torch is None or not _try(torch.cuda.is_available):
        return []
    if not _try(torch.cuda.is_initialized):
        return _devices_of_driver()
    found = (_try(partial(_device, torch, i)) for i in range(_try(torch.cuda.device_count) or 0))
    return [d for d in found if d is not None]


def _device(torch: Any, index: int) -> schemas.Device:
    p = torch.cuda.get_device_properties(index)
    uuid = getattr(p, "uuid", None)
    return schemas.Device(
        name=str(p.name),
        uuid=f"GPU-{uuid}" if uuid else None,
        memory=int(p.total_memory),
        capability=f"{p.major}.{p.minor}",
    )


def _devices_of_driver() -> list[schemas.Device]:
    found = []
    for path in sorted(_try(lambda: list(_GPUS.glob("*/information"))) or []):
        text = _try(partial(path.read_text, encoding="utf-8", errors="replace")) or ""
        fields = dict(re.findall(r"^([^:\n]+):\s*(.+?)\s*$", text, re.MULTILINE))
        if "Model" in fields:
            found.append(schemas.Device(name=fields["Model"], uuid=fields.get("GPU UUID")))
    return found


def _try(read: Callable[[], Any]) -> Any:
    """Return what `read` gives, or None if this build of torch, or this machine, does not have it."""
    try:
        return read()
    except Exception:
        return None
