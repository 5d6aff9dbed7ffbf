"""A stand-in for NVIDIA's binding `pynvml`, at the boundary of the module. There is no GPU where these tests run.

It is no GPU and proves nothing of one: it gives the values and error codes that NVML documents
(https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html), in the form in which the binding gives them.
`test_hardware_binding.py` holds its names, numbers and parameters against the real module where that is installed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from types import SimpleNamespace
from typing import Any, ClassVar

NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, GPU_IS_LOST = 3, 4, 13, 15
DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND, UNINITIALIZED, UNKNOWN = 9, 10, 12, 1, 999


class NVMLError(Exception):
    """As the binding's: the code is `value`, the text NVML's own."""

    WORDS: ClassVar = {
        1: "Uninitialized",
        3: "Not Supported",
        4: "Insufficient Permissions",
        9: "Driver Not Loaded",
        10: "Timeout",
        12: "NVML Shared Library Not Found",
        13: "Function Not Found",
        15: "GPU is lost",
        16: "GPU requires restart",
        999: "Unknown Error",
    }

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return self.WORDS[self.value]


class Gpu:
    """One device. A test changes what it holds between two looks; `errors` is function -> code that it answers with."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.uuid = f"GPU-00000000-0000-0000-0000-00000000000{index + 1}"
        self.pci = f"00000000:0{index + 7}:00.0"
        self.ecc = {(kind, since): 0 for kind in (0, 1) for since in (0, 1)}
        self.rows = (0, 0, 0, 0)
        self.reasons = 0
        self.temperature, self.slowdown = 45, 87
        self.power_mw, self.limit_mw, self.sm_mhz = 300_000, 700_000, 1_980
        self.fields: dict[tuple[int, int], int] = {(165, link): 1 for link in range(4)}
        self.fields |= {(38, 0): 0, (45, 0): 0, (52, 0): 0, (59, 0): 0}
        self.errors: dict[str, int] = {}


class FakeNvml:
    """The module. `hang` names a function that does not come back until `release` is set."""

    NVMLError = NVMLError
    NVML_SUCCESS = 0
    NVML_ERROR_UNINITIALIZED = 1
    NVML_ERROR_INVALID_ARGUMENT = 2
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_TIMEOUT = 10
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_FUNCTION_NOT_FOUND = 13
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_RESET_REQUIRED = 16
    NVML_TEMPERATURE_GPU = 0
    NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1
    NVML_CLOCK_SM = 1
    NVML_VALUE_TYPE_DOUBLE = 0
    NVML_VALUE_TYPE_UNSIGNED_INT = 1
    NVML_VALUE_TYPE_UNSIGNED_LONG = 2
    NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 3
    NVML_VALUE_TYPE_SIGNED_LONG_LONG = 4
    NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL = 38
    NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL = 45
    NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL = 52
    NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL = 59
    NVML_FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL = 160
    NVML_FI_DEV_NVLINK_GET_STATE = 165
    NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS = 208
    NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS = 211
    NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS = 214
    NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS = 215
    nvmlEventTypeXidCriticalError = 8  # noqa: N815 - NVIDIA's name

    def __init__(self, gpus: int = 2) -> None:
        self.gpus = [Gpu(i) for i in range(gpus)]
        self.driver = "580.65.06"
        self.initialised = 0
        self.begin_error: int | None = None
        self.hang: str | None = None
        self.hanging, self.release = threading.Event(), threading.Event()
        self.xids: deque[tuple[int, int]] = deque()
        self.calls: dict[str, int] = {}
        self.looks = threading.Semaphore(0)
        """one for each whole look"""

    def _called(self, name: str, gpu: Gpu | None = None) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
        if self.hang == name:
            self.hanging.set()
            self.release.wait()
        if not self.initialised:
            raise NVMLError(UNINITIALIZED)
        if gpu is not None and name in gpu.errors:
            raise NVMLError(gpu.errors[name])

    def nvmlInit(self) -> None:
        if self.begin_error is not None:
            raise NVMLError(self.begin_error)
        self.initialised += 1
        self._called("nvmlInit")

    def nvmlShutdown(self) -> None:
        self._called("nvmlShutdown")
        self.initialised -= 1

    def nvmlDeviceGetCount(self) -> int:
        self._called("nvmlDeviceGetCount")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Gpu:
        self._called("nvmlDeviceGetHandleByIndex", self.gpus[index])
        return self.gpus[index]

    def nvmlDeviceGetIndex(self, handle: Gpu) -> int:
        self._called("nvmlDeviceGetIndex", handle)
        return handle.index

    def nvmlDeviceGetUUID(self, handle: Gpu) -> str:
        return handle.uuid

    def nvmlDeviceGetPciInfo(self, handle: Gpu) -> Any:
        return SimpleNamespace(busId=handle.pci.encode())

    def nvmlDeviceGetName(self, handle: Gpu) -> str:
        return "NVIDIA H200"

    def nvmlSystemGetDriverVersion(self) -> str:
        self._called("nvmlSystemGetDriverVersion")
        return self.driver

    def nvmlDeviceGetTemperatureThreshold(self, handle: Gpu, threshold: int) -> int:
        self._called("nvmlDeviceGetTemperatureThreshold", handle)
        return handle.slowdown

    def nvmlDeviceGetTotalEccErrors(self, handle: Gpu, errorType: int, counterType: int) -> int:
        self._called("nvmlDeviceGetTotalEccErrors", handle)
        return handle.ecc[errorType, counterType]

    def nvmlDeviceGetRemappedRows(self, device: Gpu) -> tuple[int, int, int, int]:
        self._called("nvmlDeviceGetRemappedRows", device)
        return device.rows

    def nvmlDeviceGetRetiredPages(self, device: Gpu, sourceFilter: int) -> list[int]:
        self._called("nvmlDeviceGetRetiredPages", device)
        return [0x1000] if sourceFilter else []

    def nvmlDeviceGetRetiredPagesPendingStatus(self, device: Gpu) -> int:
        self._called("nvmlDeviceGetRetiredPagesPendingStatus", device)
        return 0

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Gpu) -> int:
        self._called("nvmlDeviceGetCurrentClocksEventReasons", handle)
        return handle.reasons

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Gpu) -> int:
        self._called("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return handle.reasons

    def nvmlDeviceGetTemperature(self, handle: Gpu, sensor: int) -> int:
        self._called("nvmlDeviceGetTemperature", handle)
        return handle.temperature

    def nvmlDeviceGetPowerUsage(self, handle: Gpu) -> int:
        self._called("nvmlDeviceGetPowerUsage", handle)
        return handle.power_mw

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Gpu) -> int:
        self._called("nvmlDeviceGetEnforcedPowerLimit", handle)
        return handle.limit_mw

    def nvmlDeviceGetClockInfo(self, handle: Gpu, type: int) -> int:
        self._called("nvmlDeviceGetClockInfo", handle)
        return handle.sm_mhz

    def nvmlDeviceGetFieldValues(self, handle: Gpu, fieldIds: list[tuple[int, int]]) -> list[Any]:
        self._called("nvmlDeviceGetFieldValues", handle)
        if handle is self.gpus[-1]:
            self.looks.release()
        return [
            SimpleNamespace(
                nvmlReturn=0 if key in handle.fields else NOT_SUPPORTED,
                valueType=self.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
                value=SimpleNamespace(ullVal=handle.fields.get(key, 0)),
            )
            for key in fieldIds
        ]

    def nvmlEventSetCreate(self) -> object:
        self._called("nvmlEventSetCreate")
        return object()

    def nvmlEventSetFree(self, eventSet: object) -> None:
        self._called("nvmlEventSetFree")

    def nvmlDeviceRegisterEvents(self, handle: Gpu, eventTypes: int, eventSet: object) -> None:
        self._called("nvmlDeviceRegisterEvents", handle)

    def nvmlEventSetWait(self, eventSet: object, timeoutms: int) -> Any:
        """An Xid that waits is given at once; else a timeout, which may come early, as NVML says."""
        self._called("nvmlEventSetWait")
        if not self.xids:
            time.sleep(min(timeoutms, 20) / 1000)
            raise NVMLError(TIMEOUT)
        index, code = self.xids.popleft()
        return SimpleNamespace(device=self.gpus[index], eventType=8, eventData=code)
