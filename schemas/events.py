"""What happened to machines and software around the run, as others saw it: errors of memory and links, nodes, drivers.

An event stands beside the run on one timeline. It is never a cause: that two things came at one time shows no more.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ._base import Digest, Float, Model, Scalar, Time


class EventSource(Model):
    """Where an event was read."""

    format: str = Field(
        description="what was read: kernel, nvidia-smi-q, nvidia-smi-csv, dcgm-dmon, dcgm-health, flight-recorder, "
        "nvrx, slurm-nodes, sacct, table (a site's own monitor), nvml (live), or a third party's name"
    )
    file: str | None = Field(default=None, description="name of the file; null where it was read live")
    line: int | None = Field(default=None, ge=1, description="number of the line or entry, from 1")


class Event(Model):
    """One thing that happened, or one state that was read. Segment, ranks and step are derived when it is read."""

    kind: Literal["event"] = "event"
    key: Digest = Field(
        description="over time, place, code and text as they stand here: what is read twice is one event"
    )
    when: Time | None = Field(default=None, description="when it happened or began; null where nothing says")
    until: Time | None = Field(default=None, description="when it ended, or was last seen")
    written: str | None = Field(default=None, description="the time as the source wrote it")
    zone: Literal["stated", "given", "assumed", "unknown"] = Field(
        default="unknown",
        description="stated: by the source, or counted from the epoch; given: by who imported it; assumed: read as "
        "UTC, since nothing says; unknown: there is no time",
    )
    clock: str | None = Field(
        default=None, description="whose clock: the pseudonym of a node; null where nothing says"
    )
    shift: Float | None = Field(
        default=None,
        description="seconds that were added to bring that clock to the run's; null: how far apart is not known",
    )
    precision: Float | None = Field(default=None, description="how fine the time is written, in seconds")
    nodes: list[str] = Field(
        default=[], description="pseudonyms within this run; several for a link or a job"
    )
    device_uuid: str | None = Field(default=None, description="such as GPU-5f0c9a1e-...")
    device_index: int | None = Field(default=None, ge=0, description="number of the device on its node")
    device_pci: str | None = Field(default=None, description="domain:bus:device.function")
    rank: int | None = Field(default=None, ge=0, description="global rank, where the source names one")
    pid: int | None = Field(default=None, ge=0, description="process on the node, where the source names one")
    category: Literal[
        "ecc",
        "xid",
        "remap",
        "throttle",
        "nvlink",
        "network",
        "node",
        "driver",
        "storage",
        "scheduler",
        "process",
        "nccl",
        "other",
    ]
    code: str | None = Field(default=None, description="the source's own code, such as 79 or NODE_FAIL")
    severity: Literal["note", "warning", "fault"] = Field(
        description="note: worth knowing; warning: usually unwanted; fault: no healthy machine shows it"
    )
    text: str = Field(description="in the words of the source, masked; node names are pseudonyms")
    meaning: str | None = Field(
        default=None, description="what the code stands for, and where that is published"
    )
    values: dict[str, Scalar] = Field(
        default={}, description="counters and other fields of the source, masked"
    )
    count: int = Field(default=1, ge=1, description="how often the source says the same")
    source: EventSource
    problems: list[str] = Field(default=[], description="what could not be read or believed")
