"""DCGM's text: `dcgmi dmon` (samples of fields) and `dcgmi health --check`."""

from __future__ import annotations

import re

from . import counters, xid
from .draft import Draft, Found

FIELDS = {
    "XIDER": "xid_errors",
    "ESVTL": "ecc_sbe_volatile_total",
    "EDVTL": "ecc_dbe_volatile_total",
    "ESATL": "ecc_sbe_aggregate_total",
    "EDATL": "ecc_dbe_aggregate_total",
    "RPSBE": "retired_pages_sbe",
    "RPDBE": "retired_pages_dbe",
    "RPPEN": "retired_pages_pending",
    "URMPS": "uncorrectable_remapped_rows",
    "CRMPS": "correctable_remapped_rows",
    "RRF": "row_remap_failure",
    "RRP": "row_remap_pending",
    "DVCCTR": "clocks_event_reasons",
    "RPCTR": "pcie_replay_counter",
    "NFELT": "nvlink_flit_crc_error_count_total",
    "NDELT": "nvlink_data_crc_error_count_total",
    "NRELT": "nvlink_replay_error_count_total",
    "NRCLT": "nvlink_recovery_error_count_total",
    "NLCRC": "nvlink_crc_err",
    "NLREC": "nvlink_recovery_err",
    "NLREP": "nvlink_replay_err",
    "GNVERR": "gpu_nvlink_errors",
    "TMPTR": "gpu_temp",
    "MMTMP": "memory_temp",
}
"""Short name in the header of `dcgmi dmon` -> DCGM's name of the field (dcgm_fields.cpp)."""

_ROW = re.compile(r"^\s*GPU\s+(\d+)\s+(.+)$")
_TOLD = re.compile(r"^\|\s*(.*?)\s*\|\s*(.*?)\s*\|\s*$")
_HEALTH = {"healthy": "note", "warning": "warning", "failure": "fault"}
_SYSTEMS = {
    "nvlink": "nvlink",
    "nvswitch": "nvlink",
    "memory": "ecc",
    "thermal": "throttle",
    "power": "throttle",
    "driver": "driver",
    "connectx": "network",
}


def read_dmon(text: str) -> Found:
    """Read `dcgmi dmon`. Its rows have no time, and only GPUs are looked at."""
    found = Found("dcgm-dmon", unit="row")
    found.problems.append("LIN-E002: `dcgmi dmon` prints no times; --at says when the sample was taken")
    head: list[str] = []
    before: dict[int, dict[str, float]] = {}
    odd = 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            head = line.lstrip("# ").split()[1:]
            unknown = [h for h in head if h not in FIELDS]
            if unknown and not before:
                found.problems.append(
                    f"columns that are no counter of errors are left out: {', '.join(unknown[:12])}"
                )
            continue
        row = _ROW.match(line)
        if row is None:
            odd += bool(line.strip()) and line.split()[0] not in ("ID", "Id")
            continue
        cells = row[2].split()
        if len(cells) != len(head):
            odd += 1
            continue
        found.read += 1
        index = int(row[1])
        held = {
            FIELDS[h]: v
            for h, c in zip(head, cells, strict=True)
            if h in FIELDS and (v := counters.number(c)) is not None
        }
        for event in _dmon(held, before.get(index)):
            event.device_index, event.line = index, number
            found.drafts.append(event)
        before[index] = {**before.get(index, {}), **held}
    if odd:
        found.problems.append(f"LIN-E006: {odd} lines do not fit the header; left out")
    return found


def _dmon(held: dict[str, float], before: dict[str, float] | None) -> list[Draft]:
    out: list[Draft] = []
    known = before or {}
    number = int(held.get("xid_errors", 0))
    if number and number != known.get("xid_errors"):
        published = xid.table().get(number)
        category, severity = (published.kind, published.severity) if published else ("xid", "warning")
        text = f"DCGM: the last Xid of this GPU is {number}"
        out.append(
            Draft(
                category,
                severity,
                text,
                code=str(number),
                meaning=xid.meaning(number),
                values={"xid": number},
            )
        )
    counted = {k: v for k, v in held.items() if counters.severity_of(k)}
    rose = {k: v - known.get(k, 0.0) for k, v in counted.items() if v > known.get(k, 0.0)}
    out += counters.events(
        rose, "at the first sample" if before is None else "more than at the sample before"
    )
    mask = int(held.get("clocks_event_reasons", 0))
    if mask != known.get("clocks_event_reasons") and counters.reasons(mask):
        temperatures = {k: counters.plain(v) for k, v in held.items() if "temp" in k}
        out.append(counters.throttled(counters.reasons(mask), temperatures))
    return out


def read_health(text: str) -> Found:
    """Read the table of `dcgmi health --check`."""
    found = Found("dcgm-health", unit="row")
    found.problems.append("LIN-E002: `dcgmi health` prints no time; --at says when it was taken")
    entity, index, current = "GPU", None, None
    for number, line in enumerate(text.splitlines(), 1):
        m = _TOLD.match(line)
        if m is None:
            continue
        found.read += 1
        left, right = m.groups()
        depth = len(left) - len(left.lstrip("-> "))
        name = left.lstrip("-> ").strip()
        if name == "Overall Health":
            severity = _HEALTH.get(right.lower(), "warning")
            text_ = f"DCGM: overall health {right.lower()}"
            found.drafts.append(Draft("node", severity, text_, code="health", line=number))
        elif not name:
            if current is not None and right:
                current.text += f"{' ' if current.values.get('said') else ': '}{right}"
                current.values = {**current.values, "said": True}
        elif name.isdigit() and depth:
            index, current = int(name), None
        elif right.lower() in _HEALTH and name not in ("Errors",):
            word = name.split()[0].lower()
            current = Draft(
                _SYSTEMS.get(word, "other"),
                _HEALTH[right.lower()],
                f"DCGM: {entity} {index if index is not None else ''}, {name}: {right.lower()}",
                code=name,
                device_index=index if entity == "GPU" else None,
                line=number,
            )
            found.drafts.append(current)
        elif not depth and not right:
            entity, index, current = name, None, None
    for event in found.drafts:
        event.values = {k: v for k, v in event.values.items() if k != "said"}
    return found
