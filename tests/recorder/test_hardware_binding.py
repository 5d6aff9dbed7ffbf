"""The real binding, where it is installed: what the stand-in of the other tests takes for granted is so."""

from __future__ import annotations

import inspect
from ctypes import c_uint
from typing import Any

import pytest

pynvml = pytest.importorskip("pynvml")

from lineage.recorder.hardware import nvml

from .nvml_fake import FakeNvml, NVMLError

NEWER = {n for n in dir(FakeNvml) if n.startswith("NVML_FI_DEV_NVLINK_COUNT_")}
MADE = [n for n in dir(FakeNvml) if n.startswith(("nvml", "NVML_"))]


@pytest.mark.parametrize("name", MADE)
def test_each_name_of_the_stand_in_is_one_of_the_binding_with_the_same_value_or_parameters(name: str) -> None:
    if name in NEWER and not hasattr(pynvml, name):
        pytest.skip("this binding is older than these fields, and the reader leaves them out")
    real, made = getattr(pynvml, name), getattr(FakeNvml, name)
    if callable(made):
        wanted = list(inspect.signature(made).parameters)[1:]
        assert list(inspect.signature(inspect.unwrap(real)).parameters) == wanted
    else:
        assert real == made


@pytest.mark.parametrize("code", NVMLError.WORDS)
def test_the_binding_s_errors_have_their_code_and_the_words_of_the_stand_in(code: int) -> None:
    error = pynvml.NVMLError(code)
    assert error.value == code
    assert str(error) == NVMLError.WORDS[code]


class Library:
    """NVML's library as the binding calls it: functions that write into pointers and return a code."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)  # the binding says FUNCTION_NOT_FOUND

    def nvmlInitWithFlags(self, flags: Any) -> int:
        return 0

    def nvmlShutdown(self) -> int:
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 1
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: c_uint, device: Any) -> int:
        return 0 if index.value == 0 else 2

    def nvmlDeviceGetUUID(self, device: Any, buffer: Any, size: c_uint) -> int:
        buffer.value = b"GPU-11111111-2222-3333-4444-555555555555"
        return 0

    def nvmlDeviceGetTotalEccErrors(self, device: Any, kind: Any, counter: Any, count: Any) -> int:
        count._obj.value = 10 * kind.value + counter.value
        return 0

    def nvmlDeviceGetPowerUsage(self, device: Any, power: Any) -> int:
        power._obj.value = 412_000
        return 0

    def nvmlDeviceGetFieldValues(self, device: Any, count: Any, values: Any) -> int:
        for value in values._obj:
            if value.fieldId == 52:
                value.nvmlReturn, value.valueType = 0, 3
                value.value.ullVal = 2**40 + 1
            elif (value.fieldId, value.scopeId) == (165, 2):
                value.nvmlReturn, value.valueType = 0, 1
                value.value.uiVal = 1
            elif (value.fieldId, value.scopeId) == (208, 0xFFFFFFFF):
                value.nvmlReturn, value.valueType = 0, 3
                value.value.ullVal = 4
            else:
                value.nvmlReturn = 3
        return 0


def test_the_reader_reads_through_the_real_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above a library of a few functions: 64 bits, scopes of links, strings, and what an old library does not have."""
    monkeypatch.setattr(pynvml, "nvmlLib", Library())
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    gpus = nvml.Nvml(pynvml)
    gpus.begin()
    state = gpus.look().states[0]
    assert gpus.devices[0].uuid == "GPU-11111111-2222-3333-4444-555555555555"
    assert state.power == 412.0
    assert state.counters["nvlink replay errors"] == 2**40 + 1
    newer = hasattr(pynvml, "NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS")
    assert state.counters.get("nvlink receive errors") == (4 if newer else None)
    assert state.counters["ecc aggregate uncorrected"] == 11
    assert state.links == {2: True}
    assert (state.temperature, state.reasons, state.odd) == (None, None, None)
    assert gpus.refused["temperature"] == {"Function Not Found (NVML 13)": [0]}
    gpus.end()


def test_on_a_machine_without_a_driver_the_real_binding_says_so() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        with pytest.raises(nvml.Absent, match="no NVIDIA driver on this node"):
            nvml.Nvml(pynvml).begin()
    else:
        pynvml.nvmlShutdown()
        pytest.skip("a driver is there")
