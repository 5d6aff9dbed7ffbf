"""Copies of logged values: numbers as they were at the call, everything else by the name of its type."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lineage.observe.light import events, file_copies, values


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.5, 1.5),
        (True, True),
        ("text", "text"),
        (None, None),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.array([2.0]), 2.0),
        (torch.tensor(0.25), 0.25),
        (torch.tensor([4]), 4),
        (torch.tensor(1.0, dtype=torch.bfloat16), 1.0),
        ({"a": {"b": torch.tensor(2.0)}}, {"a": {"b": 2.0}}),
    ],
)
def test_a_number_is_taken_out_of_whatever_holds_one(value: Any, expected: Any) -> None:
    assert values.scalars({"x": value})["x"] == expected


@pytest.mark.parametrize("value", [torch.zeros(3), np.zeros(2), [1.0, 2.0], object()])
def test_what_is_no_number_is_named_by_its_type_and_not_held(value: Any) -> None:
    found = values.scalars({"x": value})["x"]
    assert isinstance(found, values.Other)
    assert found == type(value).__qualname__


def test_a_value_on_an_accelerator_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is handed to what copies it without blocking; where there is nothing of the kind it is named."""

    def item() -> float:
        raise AssertionError("reading it would wait for the device")

    tensor = SimpleNamespace(
        numel=lambda: 1, detach=lambda: None, item=item, device=SimpleNamespace(type="cuda")
    )
    monkeypatch.setattr(events.SWITCH, "later", lambda t: ("later", t))
    assert values.scalars({"x": tensor})["x"] == ("later", tensor)
    monkeypatch.setattr(events.SWITCH, "later", None)
    assert isinstance(values.scalars({"x": tensor})["x"], values.Other)


def test_of_a_saved_object_only_names_are_kept_and_a_step() -> None:
    state = {
        "model": {"w": torch.ones(2)},
        "optimizer": {"state": {}, "param_groups": []},
        "step": 7,
        "epoch": 2.5,
    }
    assert file_copies.summary(state) == {
        "model": "mapping",
        "optimizer": "optimizer",
        "step": 7,
        "epoch": "float",
    }
    assert file_copies.summary(torch.ones(2)) == {}


@pytest.mark.parametrize("target", ["s3://bucket/x.pt", 7, None, b"bytes"])
def test_what_lies_on_no_file_system_is_no_path(target: Any) -> None:
    assert file_copies.path_of(target) is None
