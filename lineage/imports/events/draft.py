"""What a reader of a source hands on: events with host names and times as they were written, not masked yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Written:
    """A time as a source has it.

    `at` without a zone is naive. `at` is None where the text counts from the boot of a machine (`since_boot`, in
    seconds), or cannot be read. `year` is False where the text has none, and `at` then has the year 1904, which
    is a leap year.
    """

    text: str
    at: datetime | None = None
    precision: float = 1.0
    year: bool = True
    since_boot: float | None = None


@dataclass
class Draft:
    """One event as it was read."""

    category: str
    severity: str
    text: str
    code: str | None = None
    meaning: str | None = None
    when: Written | None = None
    until: Written | None = None
    nodes: tuple[str, ...] = ()
    device_uuid: str | None = None
    device_index: int | None = None
    device_pci: str | None = None
    rank: int | None = None
    pid: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    line: int | None = None
    problems: list[str] = field(default_factory=list)
    severity_unknown: str = ""
    """a severity in the source's words that means none of ours; empty where it does, or says none"""


@dataclass
class Found:
    """What one file gave."""

    format: str
    drafts: list[Draft] = field(default_factory=list)
    read: int = 0
    """lines, rows, samples or entries that were looked at"""
    unit: str = "line"
    problems: list[str] = field(default_factory=list)
