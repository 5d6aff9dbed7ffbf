"""The text of `nvidia-smi -q`: the state of each GPU at one moment, or at several where it was repeated."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from . import counters, times
from .draft import Draft, Found, Written

HEADER = "NVSMI LOG"
_GPU = re.compile(r"^GPU ((?:[0-9A-F]{4,8}:)?[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F])\s*$", re.I)


@dataclass
class _Node:
    """A line with what is indented below it."""

    value: str | None = None
    below: dict[str, _Node] = field(default_factory=dict)

    def at(self, *names: str) -> str | None:
        node: _Node | None = self
        for name in names:
            node = node.below.get(name) if node else None
        return node.value if node else None

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        for name, node in self.below.items():
            if node.value is not None:
                yield f"{prefix}{name}", node.value
            yield from node.leaves(f"{prefix}{name} / ")


@dataclass
class _Gpu:
    pci: str
    line: int
    tree: _Node = field(default_factory=_Node)


def read(text: str) -> Found:
    """Read every sample of a file, and every GPU in it."""
    found = Found("nvidia-smi-q", unit="GPU")
    for first, lines in _samples(text):
        head, gpus = _parse(first, lines)
        _sample(found, head, gpus, first)
    return found


def _samples(text: str) -> Iterator[tuple[int, list[str]]]:
    """(number of the first line, lines) of each sample."""
    start, lines = 1, list[str]()
    seen = False
    for number, line in enumerate(text.splitlines(), 1):
        if HEADER in line and line.strip().startswith("="):
            if seen:
                yield start, lines
            seen, start, lines = True, number, []
        lines.append(line)
    if lines:
        yield start, lines


def _parse(first: int, lines: list[str]) -> tuple[dict[str, str], list[_Gpu]]:
    head: dict[str, str] = {}
    gpus: list[_Gpu] = []
    stack: list[tuple[int, _Node]] = []
    for number, line in enumerate(lines, first):
        named = _GPU.match(line.strip()) if not line.startswith(" ") else None
        if named:
            gpus.append(_Gpu(named[1].lower(), number))
            stack = [(-1, gpus[-1].tree)]
            continue
        name, colon, value = line.partition(" : ")
        if not name.strip():
            continue
        if not gpus:
            if colon:
                head[name.strip()] = value.strip()
            continue
        depth = len(name) - len(name.lstrip())
        while stack and stack[-1][0] >= depth:
            stack.pop()
        if not stack:  # a line that is no part of a GPU
            stack = [(-1, gpus[-1].tree)]
        node = _Node(value.strip() if colon else None)
        stack[-1][1].below[name.strip()] = node
        stack.append((depth, node))
    return head, gpus


def _sample(found: Found, head: dict[str, str], gpus: list[_Gpu], line: int) -> None:
    when = times.parse(head["Timestamp"]) if "Timestamp" in head else None
    attached = counters.number(head.get("Attached GPUs"))
    if attached is not None and attached != len(gpus):
        found.problems.append(
            f"LIN-E006: line {line}: {attached:g} GPUs are attached, and {len(gpus)} are in this file; of the others "
            "it says nothing"
        )
    driver, cuda = head.get("Driver Version"), head.get("CUDA Version")
    if driver:
        values = {"driver": driver, **({"cuda": cuda} if cuda else {})}
        text = f"driver {driver}" + (f", CUDA {cuda}" if cuda else "")
        found.drafts.append(
            Draft("driver", "note", text, code="driver version", when=when, line=line, values=values)
        )
    for gpu in gpus:
        found.read += 1
        for event in _events(gpu.tree):
            _place(event, gpu, when)
            found.drafts.append(event)


def _place(event: Draft, gpu: _Gpu, when: Written | None) -> None:
    event.when, event.line, event.device_pci = when, gpu.line, gpu.pci
    event.device_uuid = gpu.tree.at("GPU UUID")


def _events(tree: _Node) -> list[Draft]:
    counted: dict[str, float] = {}
    said = 0
    for section in ("ECC Errors", "Retired Pages", "Remapped Rows"):
        for name, value in tree.below[section].leaves() if section in tree.below else ():
            if "Histogram" in name:
                continue
            flag = {"yes": 1.0, "no": 0.0}.get(value.lower())
            held = flag if flag is not None else counters.number(value)
            if held is not None:
                said += 1
                counted[f"{section} / {name}"] = held
    out = counters.events(counted, "as counted up to this moment")
    reasons = _reasons(tree)
    if reasons:
        out.append(counters.throttled(reasons, _clocks(tree)))
    lost = [name for name, value in tree.leaves() if value in ("ERR!", "GPU is lost", "Unknown Error")]
    if lost:
        text = f"nvidia-smi could not read {', '.join(lost[:5])}{' and more' if len(lost) > 5 else ''}"
        out.append(Draft("driver", "fault", text, code="unreadable", values={"fields": len(lost)}))
    if not out and said:
        values = {k: counters.plain(v) for k, v in counted.items()}
        text = (
            f"no error: {said} counters of ECC errors and replaced memory are zero, and no clock is held down"
        )
        out.append(Draft("ecc", "note", text, code="no error", values=values))
    elif not out:
        out.append(Draft("ecc", "note", "no counter of errors is given for this GPU", code="no counter"))
    return out


def _reasons(tree: _Node) -> list[tuple[str, str]]:
    mask = 0
    for section in ("Clocks Throttle Reasons", "Clocks Event Reasons"):
        for name, value in tree.below[section].leaves() if section in tree.below else ():
            if value.lower() == "active":
                mask |= counters.REASON_WORDS.get(name.rpartition(" / ")[2].lower(), 0)
    return counters.reasons(mask)


def _clocks(tree: _Node) -> dict[str, str]:
    held = {
        "SM clock": tree.at("Clocks", "SM"),
        "temperature": tree.at("Temperature", "GPU Current Temp"),
        "power": tree.at("Power Readings", "Power Draw") or tree.at("GPU Power Readings", "Power Draw"),
    }
    return {k: v for k, v in held.items() if v}
