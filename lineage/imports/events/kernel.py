"""Kernel logs: `dmesg` in its forms, `journalctl` as text or JSON, /var/log/messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from . import kernel_rules, times
from .draft import Found, Written

_ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_TAG = r"(?P<tag>[\w./@-]+(?:\[\d+\])?): "
_PREFIXES = (
    re.compile(
        rf"^(?P<iso>{_ISO.replace('[.,]', '[.]')}) (?P<node>[\w.-]+) {_TAG}"
    ),  # a comma: dmesg, which has no node
    re.compile(rf"^(?P<words>[A-Z][a-z]{{2}}\s+\d+ \d\d:\d\d:\d\d(?:\.\d+)?) (?P<node>[\w.-]+) {_TAG}"),
    re.compile(r"^\[\s*(?P<words>[A-Z][a-z]{2} [A-Z][a-z]{2}\s+\d+ \d\d:\d\d:\d\d \d{4})\] "),
    re.compile(r"^(?:<\d+>)?\[\s*(?P<boot>\d+\.\d+)\](?:\[\s*[TC]\d+\])? "),
    re.compile(r"^\d+,\d+,(?P<kmsg>\d+),[^;]*;"),
    re.compile(rf"^(?P<iso>{_ISO}) "),
)
_BOOT = re.compile(r"^\[\s*\d+\.\d+\](?:\[\s*[TC]\d+\])? ")
_GPU = re.compile(rf"NVRM: GPU at {kernel_rules.PCI}: (?P<uuid>GPU-[0-9a-f-]{{36}})", re.I)

_Identities = dict[tuple[str | None, str], str]
"""(node, PCI address) -> UUID, as other lines of the log name it"""


def looks_like(lines: Iterable[str]) -> bool:
    """Whether these lines are of a kernel log: most have one of its prefixes, or some line is an event."""
    held = [line for line in lines if line.strip()]
    fitting = sum(any(p.match(line) for p in _PREFIXES) for line in held)
    return bool(held) and (fitting * 2 > len(held) or any(kernel_rules.match(line) for line in held))


def read(text: str) -> Found:
    """Read a log; lines that are no event are counted and left."""
    found = Found("kernel")
    identities: _Identities = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        found.read += 1
        if kernel_rules.may_match(line) or "GPU-" in line:
            _add(found, *_parts(line), number, identities)
    _identify(found, identities)
    return found


def read_journal(lines: Iterable[str]) -> Found:
    """Read `journalctl -o json`: one object per line, times in microseconds since 1970."""
    found = Found("kernel", unit="entry")
    identities: _Identities = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        found.read += 1
        try:
            entry = json.loads(line)
            message, node = entry["MESSAGE"], entry.get("_HOSTNAME")
        except (ValueError, KeyError, TypeError, RecursionError):
            found.problems.append(f"line {number} is no entry of a journal: left out")
            continue
        if not isinstance(message, str):
            continue  # bytes that are no text
        when = times.parse(str(entry.get("__REALTIME_TIMESTAMP", "")))
        _add(found, message, when, str(node) if node else None, number, identities)
    _identify(found, identities)
    return found


def _add(
    found: Found, message: str, when: Written | None, node: str | None, number: int, identities: _Identities
) -> None:
    named = _GPU.search(message)
    if named:
        identities[node, short_pci(named["pci"])] = named["uuid"]
    event = kernel_rules.match(message)
    if event is None:
        return
    event.when, event.line = when, number
    event.nodes = (node,) if node else ()
    if when is not None and when.at is None and when.since_boot is None:
        event.problems.append(f"its time {when.text[:40]!r} cannot be read")
    found.drafts.append(event)


def _parts(line: str) -> tuple[str, Written | None, str | None]:
    """(message, time, node) of a line; the kernel's own seconds since boot are no part of the message."""
    for prefix in _PREFIXES:
        m = prefix.match(line)
        if m is None:
            continue
        held = m.groupdict()
        rest = line[m.end() :]
        message = _BOOT.sub("", rest)
        if held.get("tag") and held["tag"] != "kernel":
            message = f"{held['tag']}: {message}"
        if held.get("boot"):
            return rest, times.since_boot(held["boot"]), None
        if held.get("kmsg"):
            return rest, times.since_boot(f"{int(held['kmsg']) / 1e6:.6f}"), None
        return message, times.parse(held.get("iso") or held.get("words") or ""), held.get("node")
    return line, None, None


def short_pci(text: str) -> str:
    """A PCI address in one form: `0000:07:00`, domain of four digits, no function."""
    parts = text.lower().partition(".")[0].split(":")
    domain = parts[0][-4:] if len(parts) == 3 else "0000"
    return ":".join([domain.rjust(4, "0"), *parts[-2:]])


def _identify(found: Found, identities: _Identities) -> None:
    """Give events the UUID that another line of the same log names for their PCI address."""
    for event in found.drafts:
        if event.device_pci and event.device_uuid is None:
            node: str | None = event.nodes[0] if event.nodes else None
            event.device_uuid = identities.get((node, short_pci(event.device_pci)))
