"""What is found in a checkpoint, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

Severity: TypeAlias = Literal["fails", "differs", "fine"]
"""What a resume would do: fail, go on and silently differ, or be as if nothing had been saved."""
SEVERITIES: tuple[Severity, ...] = ("fine", "differs", "fails")
"""from least to most"""
Status: TypeAlias = Literal["present", "partial", "missing", "by_design", "unknown"]
"""`by_design`: the format, or the settings of the save, leave it out."""

COMPONENTS = (
    "weights",
    "optimizer_state",
    "optimizer_step",
    "lr_scheduler",
    "grad_scaler",
    "rng",
    "loader_position",
)
"""The components of a faithful resume, by the words that records use; buffers lie among the weights at rest."""


class Piece(NamedTuple):
    """A stretch of a file that holds a tensor, or a block of it."""

    file: str
    offset: int | None = None
    """bytes from the start of the file; None where the format does not say without reading more"""
    length: int | None = None
    at: tuple[int, ...] = ()
    """where the block begins in the whole tensor; () for a whole tensor"""


@dataclass(frozen=True)
class Tensor:
    """A tensor that was not loaded."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    component: str
    pieces: tuple[Piece, ...] = ()
    stride: tuple[int, ...] | None = None
    """elements from one to the next along each dimension; None where they lie row by row"""


@dataclass(frozen=True)
class Finding:
    """Something that a resume from here would stumble over, or lose."""

    code: str
    severity: Severity
    text: str
    """what was found, and where"""
    remedy: str
    component: str | None = None
    certain: bool = True
    """False where a lawful cause is possible, such as file times after a copy"""


@dataclass
class Part:
    """A component of a faithful resume."""

    component: str
    status: Status
    text: str
    files: list[str] = field(default_factory=list)


@dataclass
class Contents:
    """A checkpoint as its files tell it."""

    path: str
    """where it lies: an absolute path, or a URL without its secrets"""
    format: str
    title: str
    """the format in the words of its framework"""
    step: int | None = None
    step_from: str = ""
    world: int | None = None
    """ranks that wrote it, where a file says so or the files show it"""
    tensors: list[Tensor] = field(default_factory=list)
    parts: dict[str, Part] = field(default_factory=dict)
    shards: list[str] = field(default_factory=list)
    """the files that hold tensors"""
    findings: list[Finding] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    opened: int = 0
    bytes_read: int = 0
    digests: dict[str, str] = field(default_factory=dict)
    """file -> digest, for a folder of no known format"""

    def part(self, component: str, status: Status, text: str, *files: str) -> None:
        """Say what there is of a component."""
        self.parts[component] = Part(component, status, text, list(files))

    def find(
        self,
        code: str,
        severity: Severity,
        text: str,
        remedy: str,
        component: str | None = None,
        *,
        certain: bool = True,
    ) -> None:
        """Add a finding; the same text is said once."""
        if all(f.text != text for f in self.findings):
            self.findings.append(Finding(code, severity, text, remedy, component, certain))

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def worst(self) -> Severity | None:
        """The gravest severity; None where nothing was found."""
        return max((f.severity for f in self.findings), key=SEVERITIES.index, default=None)
