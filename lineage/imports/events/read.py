"""From a file to drafts of events: which format it is, by its content, and its reader."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ..entries import ImportTrouble
from . import dcgm, flight, kernel, nvidia_smi, nvidia_smi_csv, nvrx, slurm, table
from .draft import Found

FORMATS = (
    "auto",
    "kernel",
    "nvidia-smi-q",
    "nvidia-smi-csv",
    "dcgm-dmon",
    "dcgm-health",
    "flight-recorder",
    "nvrx",
    "slurm-nodes",
    "sacct",
    "table",
)
MOST_BYTES = 1024 * 1024 * 1024
"""Larger files are refused: cut them to the days of the run."""
_LOOKED_AT = 400


def read(path: Path, format_: str = "auto", given: Mapping[str, str] | None = None) -> Found:
    """Read a file. `given` maps fields to columns of a site's own table. Raises `ImportTrouble`."""
    if not path.is_file():
        raise ImportTrouble(f"LIN-E004: {path} is no file")
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise ImportTrouble(
            f"LIN-E004: {path} has {size:,} bytes; at most {MOST_BYTES:,} are read. Cut it to the run"
        )
    try:
        data = path.read_bytes()
    except OSError as e:
        raise ImportTrouble(f"LIN-E004: {path} cannot be read: {e.strerror or e}") from None
    if flight.is_pickle(data) or (format_ == "flight-recorder" and data.lstrip()[:1] not in (b"{", b"[")):
        return flight.read_pickle(data, path.name)
    text, odd = _text(data, path)
    try:
        found = _by_format(
            text, _format(text, path, given or {}) if format_ == "auto" else format_, path, given or {}
        )
    except ImportTrouble as e:
        raise ImportTrouble(str(e) if path.name in str(e) else f"{path}: {e}") from None
    found.problems += odd
    if (
        not text.endswith("\n")
        and found.format in ("kernel", "table", "sacct", "nvidia-smi-csv")
        and "\n" in text
    ):
        found.problems.append("LIN-E006: the last line has no newline: it may be cut off")
    return found


def _text(data: bytes, path: Path) -> tuple[str, list[str]]:
    """The text of a file, and what is odd about it."""
    if not data.strip():
        raise ImportTrouble(f"LIN-E004: {path} is empty")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace"), ["it is UTF-16, and was read as such"]
    if b"\0" in data[:65536]:
        raise ImportTrouble(f"LIN-E004: {path} is no text, no pickle and no dump of a known kind")
    try:
        return data.decode("utf-8-sig"), []
    except UnicodeDecodeError as e:
        text = data.decode("utf-8-sig", "replace")
        return text, [f"it is no UTF-8 from byte {e.start:,} on: what cannot be read stands as \ufffd"]


def _format(text: str, path: Path, given: Mapping[str, str]) -> str:
    lines = text.split("\n", _LOOKED_AT)[:_LOOKED_AT]
    held = [line.rstrip("\r") for line in lines if line.strip()]
    first = held[0].strip()
    if first[0] in "{[" and _is_json(first, text):
        return _json_format(first, text)
    if any(nvidia_smi.HEADER in line for line in held[:5]):
        return "nvidia-smi-q"
    if any(line.startswith("#Entity") or line.startswith("# Entity") for line in held[:5]):
        return "dcgm-dmon"
    if any("Health Monitor Report" in line for line in held[:5]):
        return "dcgm-health"
    if nvrx.looks_like(first):
        return "nvrx"
    if slurm.is_sacct(first):
        return "sacct"
    if nvidia_smi_csv.is_header(first):
        return "nvidia-smi-csv"
    delimiter = max(",;\t|", key=first.count)
    if first.count(delimiter) and table.is_table(
        [c.strip().strip('"') for c in first.split(delimiter)], given
    ):
        return "table"
    if kernel.looks_like(held):
        return "kernel"
    if slurm.looks_like(held):
        return "slurm-nodes"
    raise ImportTrouble(
        f"LIN-E004: {path} is of no format that is known ({', '.join(FORMATS[1:])}). A table needs a header with a "
        "time, and a text, code or category: --map field=column names them. --format says which it is, where it "
        "looks like something else."
    )


def _is_json(first: str, text: str) -> bool:
    """Whether a text that begins with a bracket is JSON; `[  12.3] NVRM` of dmesg is none."""
    if first[0] == "{":
        return True
    return text[text.index("[") + 1 :].lstrip()[:1] in ("{", "]", '"')


def _json_format(first: str, text: str) -> str:
    if '"__REALTIME_TIMESTAMP"' in text[:65536]:
        return "kernel-json"
    if any(word in text[:65536] for word in ('"pg_status"', '"pg_config"', '"nccl_version"')):
        return "flight-recorder"
    return "table-json"


def _by_format(text: str, format_: str, path: Path, given: Mapping[str, str]) -> Found:
    match format_:
        case "kernel":
            return kernel.read_journal(text.splitlines()) if text.lstrip()[:1] == "{" else kernel.read(text)
        case "kernel-json":
            return kernel.read_journal(text.splitlines())
        case "nvidia-smi-q":
            return nvidia_smi.read(text)
        case "nvidia-smi-csv":
            return nvidia_smi_csv.read(text)
        case "dcgm-dmon":
            return dcgm.read_dmon(text)
        case "dcgm-health":
            return dcgm.read_health(text)
        case "flight-recorder":
            return _flight_json(text, path)
        case "nvrx":
            return nvrx.read(text)
        case "slurm-nodes":
            return slurm.read_nodes(text)
        case "sacct":
            return slurm.read_sacct(text)
        case _:
            return table.read_json(text, given) if text.lstrip()[:1] in "{[" else table.read_csv(text, given)


def _flight_json(text: str, path: Path) -> Found:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ImportTrouble(f"LIN-E006: {path.name} is damaged or cut off: {str(e)[:120]}") from None
    if not flight.is_dump(found):
        raise ImportTrouble(f"LIN-E004: {path.name} is no flight recorder's dump")
    return flight.read(found, path.name)
