"""DeepSpeed: what of an engine is watched, in one call. DeepSpeed itself is not imported.

    from lineage.integrations import deepspeed as lineage_deepspeed

    rec = lineage.attach(run, **lineage_deepspeed.objects(engine), loader=loader, config=config, resumed_from=path)

The engine is loaded before that: `docs/integrations/deepspeed.md` has the whole loop.
"""

from __future__ import annotations

from typing import Any


def objects(engine: Any) -> dict[str, Any]:
    """Model, optimizer, scheduler, loss scale and replicas of a DeepSpeedEngine, for `lineage.attach`.

    Under ZeRO stages 0 to 2 every data-parallel rank holds all weights: where all ranks are data-parallel they are
    declared as replicas.
    """
    found: dict[str, Any] = {"model": engine, "optimizer": engine.optimizer, "scheduler": engine.lr_scheduler}
    scale = LossScale(engine.optimizer)
    if scale.is_enabled():
        found["scaler"] = scale
    if engine.dp_world_size == engine.world_size and engine.zero_optimization_stage() < 3:
        found["replicas"] = "all"
    return {k: v for k, v in found.items() if v is not None}


class LossScale:
    """DeepSpeed's loss scale, in the form of torch's GradScaler as far as the layer reads one."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def _holder(self) -> Any:
        """The object that holds the scale now: loading a checkpoint replaces it."""
        o = self._optimizer
        return getattr(o, "loss_scaler", None) or getattr(o, "loss_scale_config", None)

    def is_enabled(self) -> bool:
        """Whether losses are scaled by something that moves."""
        return bool(
            getattr(self._holder(), "dynamic", False) or getattr(self._holder(), "dynamic_loss_scale", False)
        )

    def state_dict(self) -> dict[str, float | int]:
        """The scale, and what decides when it moves next."""
        names = {
            "scale": "cur_scale",
            "iteration": "cur_iter",
            "last_overflow": "last_overflow_iter",
            "hysteresis": "cur_hysteresis",
        }
        held = self._holder()
        return {k: getattr(held, name) for k, name in names.items() if hasattr(held, name)}

    @property
    def _scale(self) -> Any:
        import torch

        return torch.tensor(float(self._holder().cur_scale))

    @property
    def _init_scale(self) -> float:
        return float(self._holder().cur_scale)

    @property
    def _growth_factor(self) -> Any:
        return getattr(self._holder(), "scale_factor", None)

    @property
    def _growth_interval(self) -> Any:
        return getattr(self._holder(), "scale_window", None)
