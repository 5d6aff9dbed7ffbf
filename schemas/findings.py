"""What checks of the layer find: in the optimizer, in batches, in the series that the training code logs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ._base import Code, Model, Scalar

SEVERITIES = ("fault", "warning", "note")
"""The worst first."""


def severity_place(word: str) -> int:
    """Where a severity stands among all, from the worst; a word of a newer version stands first, so that it is seen."""
    return SEVERITIES.index(word) if word in SEVERITIES else -1


class Finding(Model):
    """One thing that one check found, with what it rests on. It names a state, and never a cause."""

    kind: Literal["finding"] = "finding"
    code: Code
    check: str = Field(description="name and version of the check, such as optimizer-holds/1")
    severity: Literal["note", "warning", "fault"] = Field(
        description="note: worth knowing; warning: usually unwanted; fault: no healthy run shows it"
    )
    subject: str = Field(
        description="what was looked at: optimizer, gradients, batches, or a series by its key"
    )
    text: str = Field(description="what was found, in words")
    names: list[str] = Field(
        default=[], description="the parameters, samples or series concerned, at most 64"
    )
    count: int | None = Field(
        default=None, ge=0, description="how many there are in all, where names were left out"
    )
    values: dict[str, Scalar] = Field(
        default={}, description="numbers that the finding rests on, with the parameters of the check"
    )
    remedy: str | None = None
