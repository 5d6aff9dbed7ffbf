"""Reading GPUs by NVML: what it gives, refuses, and loses. The binding is a stand-in, see `nvml_fake.py`."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from lineage.recorder.hardware import nvml

from .nvml_fake import (
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNINITIALIZED,
    UNKNOWN,
    FakeNvml,
)


def begun(fake: FakeNvml) -> nvml.Nvml:
    found = nvml.Nvml(fake)
    found.begin()
    return found


def test_a_look_has_all_that_a_healthy_device_gives() -> None:
    fake = FakeNvml(1)
    fake.gpus[0].ecc[0, 1] = 12
    fake.gpus[0].rows = (1, 0, 0, 0)
    gpus = begun(fake)
    state = gpus.look().states[0]
    assert (state.reasons, state.temperature, state.power, state.limit, state.clock) == (
        0,
        45,
        300.0,
        700.0,
        1980,
    )
    assert state.links == {0: True, 1: True, 2: True, 3: True}
    assert state.counters["ecc aggregate corrected"] == 12
    assert state.counters["remapped rows corrected"] == 1
    assert state.counters["nvlink replay errors"] == 0
    assert gpus.refused == {}
    (device,) = gpus.devices
    assert (device.uuid, device.pci, device.hottest) == (fake.gpus[0].uuid, "00000000:07:00.0", 87.0)


def test_what_a_device_does_not_support_is_asked_once_and_said() -> None:
    """A card without ECC: two kinds of counters are refused, once each, and the rest is read."""
    fake = FakeNvml(2)
    for name in ("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows"):
        fake.gpus[1].errors[name] = NOT_SUPPORTED
    gpus = begun(fake)
    gpus.look()
    calls = dict(fake.calls)
    for _ in range(3):
        state = gpus.look().states[1]
    assert "ecc volatile corrected" not in state.counters
    assert state.counters["retired pages double bit"] == 1  # asked where rows are not remapped
    assert state.temperature == 45
    assert gpus.refused["ECC counters"] == {"Not Supported (NVML 3)": [1]}
    asked = fake.calls["nvmlDeviceGetTotalEccErrors"] - calls["nvmlDeviceGetTotalEccErrors"]
    assert asked == 3 * 4  # of the other device only
    assert fake.calls["nvmlDeviceGetRemappedRows"] - calls["nvmlDeviceGetRemappedRows"] == 3


def test_an_older_driver_is_asked_by_the_older_name() -> None:
    fake = FakeNvml(1)
    fake.gpus[0].errors["nvmlDeviceGetCurrentClocksEventReasons"] = FUNCTION_NOT_FOUND
    fake.gpus[0].reasons = 0x8
    gpus = begun(fake)
    assert [gpus.look().states[0].reasons for _ in range(2)] == [0x8, 0x8]
    assert fake.calls["nvmlDeviceGetCurrentClocksEventReasons"] == 1
    assert gpus.refused == {}


def test_permission_refused_is_said_in_nvml_s_words() -> None:
    fake = FakeNvml(1)
    fake.gpus[0].errors["nvmlDeviceGetPowerUsage"] = NO_PERMISSION
    gpus = begun(fake)
    assert gpus.look().states[0].power is None
    assert gpus.refused == {"power": {"Insufficient Permissions (NVML 4)": [0]}}


def test_a_device_that_is_lost_is_not_asked_again_and_the_others_are() -> None:
    fake = FakeNvml(2)
    gpus = begun(fake)
    gpus.look()
    fake.gpus[0].errors = dict.fromkeys(("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetIndex"), GPU_IS_LOST)
    first = gpus.look().states
    fake.gpus[0].errors = {}
    second = gpus.look().states
    assert [first[0].lost, second[0].lost, second[1].lost] == ["GPU is lost (NVML 15)"] * 2 + [None]
    assert second[1].temperature == 45


def test_a_device_that_is_lost_before_the_start_is_named_and_the_others_are_watched() -> None:
    fake = FakeNvml(2)
    fake.gpus[0].errors["nvmlDeviceGetHandleByIndex"] = GPU_IS_LOST
    states = begun(fake).look().states
    assert (states[0].lost, states[1].temperature) == ("GPU is lost (NVML 15)", 45)


def test_an_unknown_error_costs_one_value_of_one_look() -> None:
    fake = FakeNvml(1)
    gpus = begun(fake)
    fake.gpus[0].errors["nvmlDeviceGetTemperature"] = UNKNOWN
    bad = gpus.look().states[0]
    assert (bad.temperature, bad.odd, bad.power) == (None, "temperature: Unknown Error (NVML 999)", 300.0)
    fake.gpus[0].errors = {}
    assert gpus.look().states[0].temperature == 45


def test_nvml_shut_down_by_somebody_else_is_not_taken_for_a_value() -> None:
    fake = FakeNvml(1)
    gpus = begun(fake)
    fake.initialised = 0
    with pytest.raises(fake.NVMLError) as e:
        gpus.look()
    assert e.value.value == UNINITIALIZED


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (9, "no NVIDIA driver on this node: Driver Not Loaded (NVML 9)"),
        (12, "no NVIDIA driver on this node: NVML Shared Library Not Found (NVML 12)"),
        (999, "NVML cannot be used on this node: Unknown Error (NVML 999)"),
    ],
)
def test_a_node_on_which_nvml_does_not_begin_says_why(code: int, text: str) -> None:
    fake = FakeNvml()
    fake.begin_error = code
    with pytest.raises(nvml.Absent, match=r".") as e:
        begun(fake)
    assert str(e.value) == text


def test_a_node_whose_driver_shows_no_gpu_says_so() -> None:
    with pytest.raises(nvml.Absent, match="shows no GPU"):
        begun(FakeNvml(0))


def test_all_xids_that_wait_are_given_also_of_a_device_that_fell_off_its_bus() -> None:
    fake = FakeNvml(2)
    gpus = begun(fake)
    fake.xids += [(1, 48), (0, 79)]
    fake.gpus[0].errors["nvmlDeviceGetIndex"] = GPU_IS_LOST
    found = gpus.wait(0.5)
    assert [(x.index, x.code) for x in found] == [(1, 48), (0, 79)]


def test_waiting_lasts_although_nvml_comes_back_early() -> None:
    """A wait that returns at an interrupt must not become a loop that never rests."""
    fake = FakeNvml(1)
    gpus = begun(fake)
    assert gpus.wait(0.3) == []
    assert fake.calls["nvmlEventSetWait"] < 30


def test_without_events_of_the_driver_waiting_is_sleeping_and_is_said() -> None:
    fake = FakeNvml(2)
    for g in fake.gpus:
        g.errors["nvmlDeviceRegisterEvents"] = NOT_SUPPORTED
    gpus = begun(fake)
    assert gpus.wait(0.01) == []
    assert gpus.refused["Xids"] == {"Not Supported (NVML 3)": [0, 1]}
    assert "nvmlEventSetWait" not in fake.calls


def test_a_module_of_that_name_that_is_somebody_else_s_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", types.ModuleType("pynvml"))
    with pytest.raises(nvml.Absent, match="is not NVIDIA's") as e:
        nvml.load()
    assert e.value.remedy == nvml.INSTALL


@pytest.mark.parametrize("driver", [True, False])
def test_without_the_binding_a_node_with_a_driver_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, driver: bool
) -> None:
    """And one without a driver has nothing to install."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    (tmp_path / "version").touch()
    monkeypatch.setattr(nvml, "_DRIVER", (tmp_path / "version",) if driver else ())
    with pytest.raises(nvml.Absent, match="cannot be imported" if driver else "no NVIDIA driver") as e:
        nvml.load()
    assert e.value.remedy == (nvml.INSTALL if driver else None)
