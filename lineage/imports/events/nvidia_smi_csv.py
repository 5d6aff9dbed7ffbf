"""`nvidia-smi --query-gpu=... --format=csv`: samples of GPUs, of which only what changed is an event."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field

from ..entries import ImportTrouble
from . import counters, times
from .draft import Draft, Found, Written

_DEVICE = ("uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "index", "serial", "gpu_serial")
_FIELD = re.compile(
    r"^(?:timestamp|name|gpu_name|count|gpu_count|driver_version|index|uuid|gpu_uuid|serial|gpu_serial|pstate|"
    r"(?:pci|gpu_bus_id|clocks|clocks_(?:throttle|event)_reasons|clocks_event_reasons_counters|ecc|retired_pages|"
    r"remapped_rows|temperature|power|utilization|memory|fan|enforced|mig|pcie|fabric|encoder|module_id|compute_mode|"
    r"compute_cap|gpu_recovery_action|accounting|persistence_mode|display_|vbios_version|inforom|gom|driver_model)"
    r"[\w.]*)$"
)


def is_header(line: str) -> bool:
    """Whether a line is the header of such a file."""
    names = [_name(c) for c in line.split(",")]
    return (
        len(names) > 1
        and all(_FIELD.match(n) for n in names)
        and any("." in n or n in _DEVICE for n in names)
    )


def _name(cell: str) -> str:
    return cell.strip().strip('"').partition(" [")[0].lower()


@dataclass
class _Device:
    """What was last seen of one device."""

    counted: dict[str, float] = field(default_factory=dict)
    throttled: Draft | None = None
    reasons: tuple[str, ...] = ()
    driver: str | None = None
    samples: int = 0


def read(text: str) -> Found:
    """Read all rows in their order. Raises `ImportTrouble` where no column names the device."""
    found = Found("nvidia-smi-csv", unit="row")
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    head = [_name(c) for c in next(rows)]
    if not any(c in _DEVICE for c in head):
        raise ImportTrouble(
            "LIN-E004: no column names the GPU; query index, uuid or pci.bus_id too: "
            "nvidia-smi --query-gpu=timestamp,uuid,pci.bus_id,... --format=csv"
        )
    if "timestamp" not in head:
        found.problems.append("LIN-E002: there is no column timestamp, so no row has a time")
    devices: dict[str, _Device] = {}
    short = 0
    for number, cells in enumerate(rows, 2):
        if not cells:
            continue
        if [_name(c) for c in cells] == head:
            continue  # repeated by a restart of the sampler
        if len(cells) != len(head):
            short += 1
            continue
        found.read += 1
        _row(found, devices, dict(zip(head, (c.strip() for c in cells), strict=True)), number)
    if short:
        found.problems.append(
            f"LIN-E006: {short} rows have another number of cells than the header, such as a last one that was cut "
            "off; left out"
        )
    return found


def _row(found: Found, devices: dict[str, _Device], row: dict[str, str], number: int) -> None:
    key = next(row[c] for c in _DEVICE if c in row)
    device = devices.setdefault(key, _Device())
    when = times.parse(row["timestamp"]) if "timestamp" in row else None
    first = device.samples == 0
    device.samples += 1
    new: list[Draft] = []
    driver = row.get("driver_version")
    if driver and driver != device.driver and driver.lower() not in counters.NOT_TOLD:
        was = device.driver
        text = f"driver {driver}" if was is None else f"driver {was} -> {driver}"
        severity = "note" if was is None else "warning"
        new.append(Draft("driver", severity, text, code="driver version", values={"driver": driver}))
        device.driver = driver
    rose = _risen(device, row, first)
    new += counters.events(rose, "at the first sample" if first else "more than at the sample before")
    _throttle(found, device, row, when, number)
    for event in new:
        _place(event, row, when, number)
        found.drafts.append(event)


def _place(event: Draft, row: dict[str, str], when: Written | None, number: int) -> None:
    event.when, event.line = when, number
    event.device_uuid = row.get("uuid") or row.get("gpu_uuid")
    event.device_pci = row.get("pci.bus_id") or row.get("gpu_bus_id")
    index = row.get("index", "")
    event.device_index = int(index) if index.isdigit() else None


def _risen(device: _Device, row: dict[str, str], first: bool) -> dict[str, float]:
    """Error counters that stand higher than at the sample before; at the first sample, those above zero."""
    out: dict[str, float] = {}
    for name, cell in row.items():
        if counters.severity_of(name) is None:
            continue
        value = {"yes": 1.0, "no": 0.0}.get(cell.lower(), counters.number(cell))
        if value is None:
            continue
        before = device.counted.get(name, 0.0)
        device.counted[name] = value
        if value > before:
            out[name] = value if first else value - before
    return out


def _throttle(found: Found, device: _Device, row: dict[str, str], when: Written | None, number: int) -> None:
    """One event for as long as the same reasons hold in row after row."""
    mask = 0
    for name, cell in row.items():
        section, _, word = name.rpartition(".")
        if section not in ("clocks_throttle_reasons", "clocks_event_reasons"):
            continue
        if word == "active":
            mask |= int(counters.number(cell) or 0)
        elif cell.lower() == "active":
            mask |= counters.REASON_WORDS.get(word, 0)
    reasons = counters.reasons(mask)
    names = tuple(n for n, _ in reasons)
    if device.throttled is not None and names == device.reasons:
        device.throttled.until = when
        return
    device.throttled, device.reasons = None, names
    if reasons:
        held = {k: v for k, v in row.items() if k.startswith(("temperature", "clocks.", "power.draw"))}
        device.throttled = counters.throttled(reasons, held)
        _place(device.throttled, row, when, number)
        found.drafts.append(device.throttled)
