"""Switches of frameworks that keep non-finite values out of logs, as far as a config shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .._rooms import schemas


@dataclass(frozen=True)
class Switch:
    """One config key whose value hides evidence."""

    key: str
    """the last names of the key"""
    values: tuple[Any, ...]
    framework: str
    does: str
    instead: str


SWITCHES = (
    Switch(
        "logging_nan_inf_filter",
        (True,),
        "Hugging Face Trainer",
        "a loss that is not finite is left out of the logged mean, which stays finite or falls to 0",
        "logging_nan_inf_filter=False",
    ),
    Switch(
        "check_for_nan_in_loss_and_grad",
        (False,),
        "Megatron",
        "losses and gradients are not looked at; non-finite losses are left out of the printed mean and only counted",
        "leave --no-check-for-nan-in-loss-and-grad out",
    ),
    Switch(
        "no_check_for_nan_in_loss_and_grad",
        (True,),
        "Megatron",
        "losses and gradients are not looked at; non-finite losses are left out of the printed mean and only counted",
        "leave --no-check-for-nan-in-loss-and-grad out",
    ),
    Switch(
        "zero_optimization.stage",
        (3,),
        "DeepSpeed ZeRO-3",
        "a gradient norm that is not finite is reported as -1",
        "read a norm of -1 as non-finite",
    ),
)


def named(config: Mapping[str, Any] | None) -> Iterator[schemas.Finding]:
    """Name each switch that a config shows in the position that hides; one note each."""
    for switch in SWITCHES:
        for key, value in (config or {}).items():
            plain = key.replace("-", "_").replace("/", ".")
            if plain != switch.key and not plain.endswith("." + switch.key):
                continue
            if any(_same(value, v) for v in switch.values):
                yield schemas.Finding(
                    code="LIN-S009",
                    check="hiding-switch/1",
                    severity="note",
                    subject="config",
                    text=f"{key}={value} ({switch.framework}): {switch.does}",
                    names=[key],
                    values={"value": schemas.Scalar.of(value)},
                    remedy=switch.instead,
                )
                break


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() == str(wanted).lower()
    return (
        type(value) in (bool, int, float)
        and value == wanted
        and isinstance(value, bool) == isinstance(wanted, bool)
    )
