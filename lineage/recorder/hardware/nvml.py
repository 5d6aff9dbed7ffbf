"""GPUs by NVML, through its official binding (`nvidia-ml-py`, module `pynvml`).

Every call may be missing, refused or slow: a function that a device or a driver does not have is asked once, and a
call may hang for as long as the driver does. So all of it runs on a thread of its own, and nothing waits for it.
Return codes and their meaning: https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..._rooms import schemas
from .nvml_values import Device, Look, State, Xid, address, number, text, words

INSTALL = "pip install 'runlineage[nvml]'"
_DRIVER = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""One of these is there where a driver is loaded, natively or under WSL."""
_LINKS = 36
"""Links that a device may have, as `NVML_NVLINK_MAX_LINKS` of the newest binding says."""
_ALL_LINKS = 0xFFFFFFFF
"""The scope that stands for all links of a device together."""
_TOTALS = {
    "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "nvlink crc flit errors",
    "NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": "nvlink crc data errors",
    "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": "nvlink replay errors",
    "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": "nvlink recovery errors",
    "NVML_FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL": "nvlink ecc data errors",
}
"""Counters over all links: up to Hopper."""
_COUNTS = {
    "NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS": "nvlink receive errors",
    "NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS": "nvlink integrity errors",
    "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS": "nvlink link recoveries",
    "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS": "nvlink failed link recoveries",
}
"""The same from Blackwell on."""
_ECC = [("corrected", 0), ("uncorrected", 1)]
_SINCE = [("volatile", 0), ("aggregate", 1)]


class Absent(Exception):
    """Nothing of GPUs can be read. The text says why; `remedy` is what would change that."""

    def __init__(self, text: str, remedy: str | None = None) -> None:
        super().__init__(text)
        self.remedy = remedy


class _Gone(Exception):
    """A device does not answer any more."""


def load() -> Any:
    """The binding. Raises `Absent`."""
    there = any(p.exists() for p in _DRIVER)
    try:
        found = importlib.import_module("pynvml")
    except Exception as e:  # whatever an import of others may raise
        if not there:
            raise Absent("no NVIDIA driver on this node") from None
        raise Absent(f"the binding of NVML cannot be imported ({type(e).__name__})", INSTALL) from None
    if not all(hasattr(found, name) for name in ("nvmlInit", "NVMLError", "nvmlDeviceGetHandleByIndex")):
        raise Absent(f"the module pynvml is not NVIDIA's: {getattr(found, '__file__', '?')}", INSTALL)
    return found


class Nvml:
    """The GPUs of this node. Every method may take as long as the driver does."""

    def __init__(self, binding: Any) -> None:
        self._nvml = binding
        self.devices: list[Device] = []
        self.driver: str | None = None
        self.refused: dict[str, dict[str, list[int]]] = {}
        """what cannot be read -> NVML's words -> indices of the devices"""
        self._never: set[tuple[int, str]] = set()
        self._lost: dict[int, str] = {}
        self._events: Any = None
        self._asked = 0.0
        self._looked = 0.0

    # -- the beginning and the end

    def begin(self) -> None:
        """Initialise NVML and find the devices. Raises `Absent`."""
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as e:
            none = e.value in (
                self._nvml.NVML_ERROR_LIBRARY_NOT_FOUND,
                self._nvml.NVML_ERROR_DRIVER_NOT_LOADED,
            )
            what = "no NVIDIA driver on this node" if none else "NVML cannot be used on this node"
            raise Absent(f"{what}: {words(e)}") from None
        self._find()
        self._register()

    def _find(self) -> None:
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as e:
            raise Absent(f"NVML names no devices: {words(e)}") from None
        self.driver = self._plain(self._nvml.nvmlSystemGetDriverVersion)
        self.devices = []
        for index in range(count):
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            except self._nvml.NVMLError as e:
                self._lost[index] = words(e)
                self.devices.append(Device(index, None))
                continue
            device = Device(index, handle)
            device.uuid = self._plain(self._nvml.nvmlDeviceGetUUID, handle)
            pci = self._plain(self._nvml.nvmlDeviceGetPciInfo, handle)
            device.pci = None if pci is None else text(pci.busId).lower()
            device.name = self._plain(self._nvml.nvmlDeviceGetName, handle) or "GPU"
            hottest = self._plain(
                self._nvml.nvmlDeviceGetTemperatureThreshold,
                handle,
                self._nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
            )
            device.hottest = float(hottest) if hottest else None
            self.devices.append(device)
        if not self.devices:
            raise Absent("the NVIDIA driver of this node shows no GPU")

    def _plain(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """A value that describes; None where it is refused."""
        try:
            found = call(*arguments)
        except self._nvml.NVMLError:
            return None
        return text(found) if isinstance(found, str | bytes) else found

    def _register(self) -> None:
        """Ask to be told of Xids, on the devices that can."""
        try:
            self._events = self._nvml.nvmlEventSetCreate()
        except self._nvml.NVMLError as e:
            self._refuse(e, "Xids", [d.index for d in self.devices])
            return
        kind = self._nvml.nvmlEventTypeXidCriticalError
        told = 0
        for d in self._answering():
            try:
                self._nvml.nvmlDeviceRegisterEvents(d.handle, kind, self._events)
                told += 1
            except self._nvml.NVMLError as e:
                self._refuse(e, "Xids", [d.index])
        if not told:
            self._events = None

    def end(self) -> None:
        """Let go of NVML: its counts of users are the driver library's own."""
        for call, arguments in (
            (self._nvml.nvmlEventSetFree, (self._events,)),
            (self._nvml.nvmlShutdown, ()),
        ):
            if call is self._nvml.nvmlEventSetFree and self._events is None:
                continue
            try:
                call(*arguments)
            except self._nvml.NVMLError:
                continue
        self._events = None

    # -- looking

    def look(self) -> Look:
        """Read every device once."""
        now = time.monotonic()
        since, self._looked = (now - self._looked if self._looked else 0.0), now
        driver = self._plain(self._nvml.nvmlSystemGetDriverVersion)
        states = {d.index: self._state(d) for d in self.devices}
        return Look(schemas.now(), driver, states, since)

    def _answering(self) -> Iterator[Device]:
        return (d for d in self.devices if d.index not in self._lost)

    def _state(self, d: Device) -> State:
        state = State()
        if d.index in self._lost:  # a device that is gone stays gone until it is reset
            state.lost = self._lost[d.index]
            return state
        try:
            self._memory(d, state)
            self._clocks(d, state)
            self._links(d, state)
        except _Gone as e:
            self._lost[d.index] = state.lost = str(e)
        return state

    def _memory(self, d: Device, state: State) -> None:
        n, h = self._nvml, d.handle
        for kind, error in _ECC:
            for since, counter in _SINCE:
                count = self._ask(d, "ECC counters", state, n.nvmlDeviceGetTotalEccErrors, h, error, counter)
                if count is not None:
                    state.counters[f"ecc {since} {kind}"] = float(count)
        rows = self._ask(d, "remapped rows", state, n.nvmlDeviceGetRemappedRows, h)
        if rows is not None:
            for name, value in zip(("corrected", "uncorrected", "pending", "failure"), rows, strict=False):
                state.counters[f"remapped rows {name}"] = float(value)
            return
        # Devices before Ampere retire pages, later ones remap rows.
        for name, cause in (("single bit", 0), ("double bit", 1)):
            pages = self._ask(d, "retired pages", state, n.nvmlDeviceGetRetiredPages, h, cause)
            if pages is not None:
                state.counters[f"retired pages {name}"] = float(len(pages))
        pending = self._ask(d, "retired pages", state, n.nvmlDeviceGetRetiredPagesPendingStatus, h)
        if pending is not None:
            state.counters["retired pages pending"] = float(pending)

    def _clocks(self, d: Device, state: State) -> None:
        n, h = self._nvml, d.handle
        reasons = getattr(n, "nvmlDeviceGetCurrentClocksEventReasons", None)
        state.reasons = reasons and self._ask(d, "clock reasons", state, reasons, h, quiet=True)
        if state.reasons is None:  # its name before driver 535
            older = n.nvmlDeviceGetCurrentClocksThrottleReasons
            state.reasons = self._ask(d, "throttle reasons", state, older, h)
        sensor = n.NVML_TEMPERATURE_GPU
        state.temperature = self._ask(d, "temperature", state, n.nvmlDeviceGetTemperature, h, sensor)
        for name, call in (
            ("power", n.nvmlDeviceGetPowerUsage),
            ("limit", n.nvmlDeviceGetEnforcedPowerLimit),
        ):
            milliwatts = self._ask(d, f"power {name}" if name == "limit" else name, state, call, h)
            setattr(state, name, None if milliwatts is None else milliwatts / 1000)
        state.clock = self._ask(d, "clock", state, n.nvmlDeviceGetClockInfo, h, n.NVML_CLOCK_SM)

    def _links(self, d: Device, state: State) -> None:
        """All of the links in one call; a field that the device does not have says so, and is not asked again."""
        n = self._nvml
        wanted: list[tuple[str, tuple[int, int]]] = []
        for names, scope in ((_TOTALS, 0), (_COUNTS, _ALL_LINKS)):
            wanted += [(told, (getattr(n, f), scope)) for f, told in names.items() if hasattr(n, f)]
        state_field = getattr(n, "NVML_FI_DEV_NVLINK_GET_STATE", None)
        if state_field is not None:
            wanted += [(f"link {link}", (state_field, link)) for link in range(_LINKS)]
        wanted = [w for w in wanted if (d.index, w[0]) not in self._never]
        if not wanted:
            return
        found = self._ask(d, "NVLink", state, n.nvmlDeviceGetFieldValues, d.handle, [w[1] for w in wanted])
        if found is None:
            return
        for (told, _), value in zip(wanted, found, strict=False):
            if value.nvmlReturn == n.NVML_ERROR_GPU_IS_LOST:
                raise _Gone("GPU is lost")
            if value.nvmlReturn != n.NVML_SUCCESS:
                self._never.add((d.index, told))
                continue
            held = number(n, value)
            if told.startswith("link "):
                state.links[int(told[5:])] = bool(held)
            else:
                state.counters[told] = float(held)

    def _ask(
        self,
        d: Device,
        what: str,
        state: State,
        call: Callable[..., Any],
        *arguments: Any,
        quiet: bool = False,
    ) -> Any:
        """One call for one device. None where it is not to be had; what never is, is not asked again.

        Raises `_Gone` where the device answers no more.
        """
        key = (d.index, " ".join([what, *(str(a) for a in arguments[1:] if isinstance(a, int))]))
        if key in self._never:
            return None
        n = self._nvml
        try:
            return call(*arguments)
        except n.NVMLError as e:
            if e.value in (n.NVML_ERROR_GPU_IS_LOST, n.NVML_ERROR_RESET_REQUIRED):
                raise _Gone(words(e)) from None
            if e.value == n.NVML_ERROR_UNINITIALIZED:
                raise  # somebody else shut NVML down
            if e.value in (
                n.NVML_ERROR_NOT_SUPPORTED,
                n.NVML_ERROR_NO_PERMISSION,
                n.NVML_ERROR_FUNCTION_NOT_FOUND,
                n.NVML_ERROR_INVALID_ARGUMENT,
            ):
                self._never.add(key)
                if not quiet:
                    self._refuse(e, what, [d.index])
            else:
                state.odd = state.odd or f"{what}: {words(e)}"
            return None

    def _refuse(self, error: Exception, what: str, indices: list[int]) -> None:
        held = self.refused.setdefault(what, {}).setdefault(words(error), [])
        held += [i for i in indices if i not in held]

    # -- waiting

    def wait(self, seconds: float) -> list[Xid]:
        """Wait for Xids for up to `seconds`, or sleep as long where the driver tells of none. It may return earlier."""
        began = time.monotonic()
        since, self._asked = (began - self._asked if self._asked else 0.0), began
        if self._events is None:
            time.sleep(seconds)
            return []
        out: list[Xid] = []
        n = self._nvml
        while True:
            left = seconds - (time.monotonic() - began)
            try:
                data = n.nvmlEventSetWait(self._events, max(0, int(left * 1000)) if not out else 0)
            except n.NVMLError as e:
                if e.value == n.NVML_ERROR_UNINITIALIZED:
                    raise  # somebody else shut NVML down
                if e.value == n.NVML_ERROR_GPU_IS_LOST:  # the next look says which one
                    time.sleep(min(1.0, max(0.0, left)))
                elif e.value != n.NVML_ERROR_TIMEOUT:
                    self._refuse(e, "Xids", [d.index for d in self._answering()])
                    self._events = None
                elif not out and left > 0.05:  # it may come back early, as at an interrupt
                    time.sleep(min(0.05, left))
                    continue
                return out
            waited = time.monotonic() - began
            fresh = waited > 0.05 and not out
            precision = 1.0 if fresh else max(1.0, since + waited)
            if data.eventType & n.nvmlEventTypeXidCriticalError:
                out.append(Xid(schemas.now(), self._index(data.device), int(data.eventData), precision))
            if len(out) >= 100:
                return out

    def _index(self, handle: Any) -> int | None:
        """The number of the device of a handle; one that has fallen off its bus can no longer be asked."""
        try:
            return int(self._nvml.nvmlDeviceGetIndex(handle))
        except self._nvml.NVMLError:
            mine = address(handle)
            return next((d.index for d in self.devices if d.handle and address(d.handle) == mine), None)
